/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_BUG_H
#define SHIM_LINUX_BUG_H

#include <stdlib.h>

#include <linux/types.h>

static inline bool shim_warn(bool bad)
{
	if (bad)
		abort();
	return bad;
}

#define WARN_ON_ONCE(condition) shim_warn(condition)

#endif /* SHIM_LINUX_BUG_H */
