/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_COMPILER_H
#define SHIM_LINUX_COMPILER_H

#define __rcu
#define __force
#define __read_mostly
#define ____cacheline_aligned_in_smp
#define notrace

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define READ_ONCE(x) __atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELAXED)
/* What they pair with is said where they are used. */
#define smp_load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
/* the same */
#define smp_store_release(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)

#endif /* SHIM_LINUX_COMPILER_H */
