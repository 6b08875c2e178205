/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_COMPILER_H
#define SHIM_LINUX_COMPILER_H

#define __rcu
#define __force
#define __read_mostly
#define ____cacheline_aligned_in_smp
#define noinline_for_stack __attribute__((noinline))
#define notrace

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/*
 * Between any two accesses to memory that is shared, something else may happen:
 * what a test likes to have happen there.
 */
extern void (*shim_between)(void);

#define shim_point() do {						\
	if (unlikely(shim_between))					\
		shim_between();						\
} while (0)

#define shim_load(p, order) ({						\
	shim_point();							\
	__atomic_load_n((p), (order));					\
})
#define shim_store(p, v, order) ({					\
	typeof(p) _p = (p);						\
	typeof(*_p) _v = (v);						\
									\
	shim_point();							\
	__atomic_store_n(_p, _v, (order));				\
})

#define READ_ONCE(x) shim_load(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, v) shim_store(&(x), (v), __ATOMIC_RELAXED)
/* What they pair with is said where they are used. */
#define smp_load_acquire(p) shim_load((p), __ATOMIC_ACQUIRE)
/* the same */
#define smp_store_release(p, v) shim_store((p), (v), __ATOMIC_RELEASE)
/* the same */
#define smp_mb() __atomic_thread_fence(__ATOMIC_SEQ_CST)
/* the same */
#define smp_rmb() __atomic_thread_fence(__ATOMIC_ACQUIRE)

#endif /* SHIM_LINUX_COMPILER_H */
