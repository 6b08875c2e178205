// SPDX-License-Identifier: GPL-2.0
/*
 * least: the member with the least to do for its weight.
 *
 * Equals take turns, by weight: where nobody has anything to do it is rr. A
 * member with nothing to do is never beaten, so the search ends there.
 *
 * Costs a look at each of up to 64 members. Of more, at 8 that chance gives by
 * weight: the best of a few random ones is nearly as good (Mitzenmacher, The
 * Power of Two Choices in Randomized Load Balancing, 1996), and CPUs that
 * choose at the same time don't all choose the same one.
 */
#include "../load.h"
#include "least.h"
#include "rr.h"

/**
 * ps_least() - the least loaded usable member
 * @group: whose
 * @set: its set
 * @n: entries of it, at least 1
 * @policy: whose index, made by ps_rr_index_build(), the group has
 *
 * Context: any, RCU.
 * Return: below @n; any if none is usable.
 */
u32 ps_least(struct ps_group *group, const struct ps_set *set, u32 n,
	     const struct ps_policy *policy)
{
	u32 best_load = 0, best_weight = 0, best, first, load, weight, i, k;
	const struct ps_member *m;

	first = n <= PS_LEAST_EXACT ? ps_rr_next(group, set, n, policy) : 0;
	best = ps_sample(set, n, first, 0);
	for (k = 0; k < ps_sample_size(n); k++) {
		i = ps_sample(set, n, first, k);
		m = ps_set_member(set, i);
		if (unlikely(!ps_member_usable(m, group)))
			continue;
		load = ps_member_load(m);
		weight = READ_ONCE(m->weight);
		/* load / weight, and the first of them has none to beat. */
		if (best_weight &&
		    (u64)load * best_weight >= (u64)best_load * weight)
			continue;
		best = i;
		best_load = load;
		best_weight = weight;
		if (!load)
			break;
	}
	/*
	 * Turns of members that have more to do were passed over: the next one
	 * begins behind the member that got this, or its neighbour would get
	 * theirs.
	 */
	if (n <= PS_LEAST_EXACT && !READ_ONCE(set->weighted) && best != first)
		atomic_add((best + n - first) % n, &group->turn);
	return best;
}

/* A further attempt looks again: what was unusable is passed over. */
static u32 ps_least_pick(struct ps_group *group, const struct ps_set *set,
			 u32 n, const struct ps_flow *flow, u32 attempt)
{
	return ps_least(group, set, n, &ps_policy_least);
}

const struct ps_policy ps_policy_least = {
	.name = "least",
	.takes_turns = true,
	.pick = ps_least_pick,
	.index_size = ps_rr_index_size,
	.index_build = ps_rr_index_build,
};
