/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_PRANDOM_H
#define SHIM_LINUX_PRANDOM_H

#include <linux/percpu.h>
#include <linux/random.h>

/* Another generator than the kernel's: xorshift, of Marsaglia. */
struct rnd_state {
	u64 x;
};

static inline u32 prandom_u32_state(struct rnd_state *state)
{
	/* Also where nobody has called prandom_seed_full_state(). */
	u64 x = state->x ?: 88172645463325252ull;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	state->x = x;
	return (x * 0x2545f4914f6cdd1dull) >> 32;
}

static inline void prandom_seed_full_state(struct rnd_state __percpu *state)
{
	state->x = (u64)get_random_u32() << 32 | 1;
}

#endif /* SHIM_LINUX_PRANDOM_H */
