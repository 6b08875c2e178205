/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_SPINLOCK_H
#define SHIM_LINUX_SPINLOCK_H

#include <linux/preempt.h>

/* Tests of what takes it have one thread. */
#define spinlock_t struct shim_spinlock

spinlock_t {
	int locked;
};

#define lockdep_is_held(lock) true

#endif /* SHIM_LINUX_SPINLOCK_H */
