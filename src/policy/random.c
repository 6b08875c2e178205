// SPDX-License-Identifier: GPL-2.0
/*
 * random: any member, by weight. Nothing is shared between CPUs, and a flow's
 * datagrams go everywhere.
 *
 * Costs a step of the kernel's own generator (Tausworthe, L'Ecuyer's LFSR113)
 * of this CPU; where weights differ, a binary search too.
 */
#include <linux/percpu.h>
#include <linux/prandom.h>

#include "../choose.h"
#include "../policy.h"

/* Attempts at random, before it goes from member to member: one is usable. */
#define PS_RANDOM_ATTEMPTS 4

static DEFINE_PER_CPU(struct rnd_state, ps_random);

/* At load. Context: process. */
void ps_random_init(void)
{
	prandom_seed_full_state(&ps_random);
}

/**
 * ps_random_u32() - a random number, not for secrets
 *
 * A packet that comes in between on the same CPU may get the same one.
 *
 * Context: any.
 */
u32 ps_random_u32(void)
{
	return prandom_u32_state(raw_cpu_ptr(&ps_random));
}

static u32 ps_random_pick(struct ps_group *group, const struct ps_set *set,
			  u32 n, const struct ps_flow *flow, u32 attempt)
{
	if (likely(attempt < PS_RANDOM_ATTEMPTS))
		return ps_choose(set, n, ps_random_u32());
	/* By chance it is the same ones, or they have most of the weight. */
	return (reciprocal_scale(ps_flow_hash(flow), n) + attempt) % n;
}

const struct ps_policy ps_policy_random = {
	.name = "random",
	.takes_turns = true,
	.pick = ps_random_pick,
};
