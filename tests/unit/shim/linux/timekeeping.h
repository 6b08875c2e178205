/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_TIMEKEEPING_H
#define SHIM_LINUX_TIMEKEEPING_H

#include <machine.h>

static inline s64 ktime_get_seconds(void)
{
	return READ_ONCE(machine.seconds);
}

#endif /* SHIM_LINUX_TIMEKEEPING_H */
