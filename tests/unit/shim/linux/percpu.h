/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_PERCPU_H
#define SHIM_LINUX_PERCPU_H

/* DEFINE_PER_CPU() is in the Makefile: a thread stands for a CPU. */
#define __percpu
#define raw_cpu_ptr(p) (p)

#endif /* SHIM_LINUX_PERCPU_H */
