/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_SCHED_H
#define SHIM_LINUX_SCHED_H

static inline int cond_resched(void)
{
	return 0;
}

#endif /* SHIM_LINUX_SCHED_H */
