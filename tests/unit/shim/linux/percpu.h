/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_PERCPU_H
#define SHIM_LINUX_PERCPU_H

/* A thread stands for a CPU. */
#define __percpu
#define DEFINE_PER_CPU(type, name) __thread type(name)
#define raw_cpu_ptr(p) (p)

#endif /* SHIM_LINUX_PERCPU_H */
