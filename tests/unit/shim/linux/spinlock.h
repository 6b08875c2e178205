/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_SPINLOCK_H
#define SHIM_LINUX_SPINLOCK_H

#include <stdlib.h>

#include <linux/bug.h>
#include <linux/preempt.h>

/* Tests of what takes it have one thread. */
#define spinlock_t struct shim_spinlock

spinlock_t {
	int locked;
};

/* What others do as soon as a lock is free. */
extern void (*shim_unlocked)(void);

static inline void spin_lock_bh(spinlock_t *lock)
{
	if (lock->locked++)
		abort();
}

static inline void spin_unlock_bh(spinlock_t *lock)
{
	if (!lock->locked--)
		abort();
	if (shim_unlocked)
		shim_unlocked();
}

#define lockdep_is_held(lock) true
#define lockdep_assert_held(lock) WARN_ON_ONCE(!(lock)->locked)

#endif /* SHIM_LINUX_SPINLOCK_H */
