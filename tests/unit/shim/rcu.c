// SPDX-License-Identifier: GPL-2.0
/*
 * RCU: each thread has a number that is odd while it reads. A grace period is
 * over when every number that was odd has changed.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include <linux/rcupdate.h>
#include <linux/types.h>

/* That ever read; threads' numbers stay when they end. */
#define RCU_READERS 64

static u64 readers[RCU_READERS];
static unsigned int n_readers;
static __thread u64 *me;
static __thread unsigned int depth;

void rcu_read_lock(void)
{
	unsigned int i;

	if (depth++)
		return;
	if (!me) {
		i = __atomic_fetch_add(&n_readers, 1, __ATOMIC_SEQ_CST);
		if (i >= RCU_READERS)
			abort();
		me = &readers[i];
	}
	__atomic_add_fetch(me, 1, __ATOMIC_SEQ_CST);
}

void rcu_read_unlock(void)
{
	if (!depth)
		abort();
	if (!--depth)
		__atomic_add_fetch(me, 1, __ATOMIC_SEQ_CST);
}

void synchronize_rcu(void)
{
	unsigned int i, n = __atomic_load_n(&n_readers, __ATOMIC_SEQ_CST);
	u64 was;

	/* It would wait for itself. */
	if (depth)
		abort();
	for (i = 0; i < n; i++) {
		was = __atomic_load_n(&readers[i], __ATOMIC_SEQ_CST);
		while (was % 2 && __atomic_load_n(&readers[i],
						  __ATOMIC_SEQ_CST) == was)
			sched_yield();
	}
}
