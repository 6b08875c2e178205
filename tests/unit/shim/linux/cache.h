/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_CACHE_H
#define SHIM_LINUX_CACHE_H

#include <linux/compiler.h>

#define SMP_CACHE_BYTES 64
#define ____cacheline_aligned __attribute__((aligned(SMP_CACHE_BYTES)))

#endif /* SHIM_LINUX_CACHE_H */
