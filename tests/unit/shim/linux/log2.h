/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_LOG2_H
#define SHIM_LINUX_LOG2_H

#include <linux/bitops.h>

static inline bool is_power_of_2(unsigned long n)
{
	return n && !(n & (n - 1));
}

/* Not of 0, as in the kernel. */
static inline unsigned long roundup_pow_of_two(unsigned long n)
{
	return 1UL << fls64(n - 1);
}

#endif /* SHIM_LINUX_LOG2_H */
