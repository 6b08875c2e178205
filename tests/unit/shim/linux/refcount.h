/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_REFCOUNT_H
#define SHIM_LINUX_REFCOUNT_H

#include <linux/atomic.h>

#define refcount_t struct shim_refcount

refcount_t {
	atomic_t refs;
};

static inline bool refcount_inc_not_zero(refcount_t *r)
{
	if (!atomic_read(&r->refs))
		return false;
	atomic_inc_return(&r->refs);
	return true;
}

#endif /* SHIM_LINUX_REFCOUNT_H */
