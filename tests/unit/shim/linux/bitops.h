/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_BITOPS_H
#define SHIM_LINUX_BITOPS_H

#include <linux/bits.h>
#include <linux/types.h>

/* The number of the highest bit that is set, from 1 on; 0: none. */
static inline int fls64(u64 x)
{
	return x ? 64 - __builtin_clzll(x) : 0;
}

#endif /* SHIM_LINUX_BITOPS_H */
