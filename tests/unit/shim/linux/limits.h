/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_LIMITS_H
#define SHIM_LINUX_LIMITS_H

/* glibc's <limits.h> includes this, too. */
#include_next <linux/limits.h>

#ifndef INT_MAX
#define INT_MAX __INT_MAX__
#endif

#endif /* SHIM_LINUX_LIMITS_H */
