/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_OVERFLOW_H
#define SHIM_LINUX_OVERFLOW_H

#include <linux/types.h>

/* Of a struct with @n elements of its last member, an array. */
#define struct_size(p, member, n)					\
	(sizeof(*(p)) + (size_t)(n) * sizeof(*(p)->member))

#endif /* SHIM_LINUX_OVERFLOW_H */
