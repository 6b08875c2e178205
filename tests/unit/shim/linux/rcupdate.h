/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_RCUPDATE_H
#define SHIM_LINUX_RCUPDATE_H

#include <linux/atomic.h>
#include <linux/compiler.h>

/* Of any thread; may be nested. */
void rcu_read_lock(void);
void rcu_read_unlock(void);
void synchronize_rcu(void);

#define rcu_dereference(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
#define rcu_dereference_check(p, c) rcu_dereference(p)
#define rcu_dereference_protected(p, c) (p)
#define rcu_dereference_raw(p) rcu_dereference(p)
#define rcu_access_pointer(p) READ_ONCE(p)
/* Pairs with rcu_dereference(). */
#define rcu_assign_pointer(p, v) smp_store_release(&(p), (v))
#define RCU_INIT_POINTER(p, v) WRITE_ONCE(p, v)

/*
 * Where it is called one may sleep, or a lock is held and the test has no
 * readers: so the grace period can be awaited.
 */
#define kvfree_rcu(p, field) do {					\
	synchronize_rcu();						\
	kvfree(p);							\
} while (0)

#endif /* SHIM_LINUX_RCUPDATE_H */
