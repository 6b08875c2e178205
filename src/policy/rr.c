// SPDX-License-Identifier: GPL-2.0
/*
 * rr: the next member in turn, as often as its weight says.
 *
 * A turn is taken by what starts something only (see lookup.c), so that N
 * connections over n members give each of them N/n.
 *
 * With weights, W in all, a round is W turns. The members' weights are laid end
 * to end on a circle of W points; each turn goes a step further round it, and
 * whose point that is gets it. A step that has no divisor in common with W
 * comes to every point once in a round: exact. A step near the golden section
 * of the circle comes to no stretch of it much earlier or later than its share
 * says: smooth (Weyl's sequence; Steinhaus' three-distance theorem: the times
 * between two turns of a member take three values at most). How far a member
 * is ever from its share goes with the sum of the partial quotients of step / W
 * (Knuth, The Art of Computer Programming, 3.3.3), which Euclid's algorithm
 * gives: so the step with the least sum is taken, of some around the golden
 * section. A member is then within a few turns of its share at any time,
 * measured: 7 with weights up to 65535.
 *
 * Costs an atomic increment of what all CPUs share; with weights, a division
 * and a binary search too, and 1 us more while the step has to be worked out
 * anew for every packet, having no index.
 */
#include <linux/atomic.h>
#include <linux/math64.h>

#include "../choose.h"
#include "../index.h"
#include "rr.h"

#define PS_RR_STEPS 16

struct ps_rr_index {
	u32 total;
	u32 step;
};

/*
 * The sum of the partial quotients of @a / @b, or something not below @limit
 * if it isn't, or if they have a divisor in common.
 */
static u32 ps_rr_quotients(u32 a, u32 b, u32 limit)
{
	u32 sum = 0, rest;

	while (b && sum < limit) {
		sum += a / b;
		rest = a % b;
		a = b;
		b = rest;
	}
	return a == 1 ? sum : limit;
}

/* Of a round of @total turns. Tries few: one in two or three is a candidate. */
static u32 ps_rr_step(u32 total)
{
	u32 golden = reciprocal_scale(0x9e3779b9, total);
	u32 step = 1, least = U32_MAX, i, sum, at;

	for (i = 0; i < PS_RR_STEPS || (least == U32_MAX && i < total); i++) {
		at = i & 1 ? golden + (i + 1) / 2 : golden - i / 2;
		/* Also where it went below 0. */
		if (!at || at >= total)
			continue;
		sum = ps_rr_quotients(total, at, least);
		if (sum < least) {
			least = sum;
			step = at;
		}
	}
	return step;
}

/* Who has turn @turn where weights differ. */
static u32 ps_rr_at(const struct ps_group *group, const struct ps_set *set,
		    u32 n, const struct ps_policy *policy, u32 turn)
{
	const struct ps_rr_index *index = ps_index_of(group, policy, n);
	u32 total = ps_set_total(set, n);
	u32 step, point;

	step = likely(index && index->total == total) ? index->step :
							ps_rr_step(total);
	div_u64_rem((u64)(turn % total) * step, total, &point);
	return ps_set_at(set, n, point);
}

/**
 * ps_rr_next() - take a turn
 * @group: whose
 * @set: its set
 * @n: entries of it, at least 1
 * @policy: whose index, made by ps_rr_index_build(), the group has
 *
 * Context: any, RCU.
 * Return: whose it is, below @n.
 */
u32 ps_rr_next(struct ps_group *group, const struct ps_set *set, u32 n,
	       const struct ps_policy *policy)
{
	u32 turn = atomic_inc_return(&group->turn);

	if (likely(!READ_ONCE(set->weighted)))
		return turn % n;
	return ps_rr_at(group, set, n, policy, turn);
}

static u32 ps_rr_pick(struct ps_group *group, const struct ps_set *set, u32 n,
		      const struct ps_flow *flow, u32 attempt)
{
	u32 turn, last;

	/*
	 * Also at a further attempt: an unusable member's turn is used up, and
	 * the next member takes the next turn, so the others stay even.
	 */
	if (likely(!attempt || !READ_ONCE(set->weighted)))
		return ps_rr_next(group, set, n, &ps_policy_rr);
	/* The next turn may well be the same member's, if it has most. */
	turn = atomic_read(&group->turn);
	last = ps_rr_at(group, set, n, &ps_policy_rr, turn);
	return ps_choose_other(set, n, last, ps_keyed_hash(turn, attempt));
}

/* For struct ps_policy. Context: any. */
size_t ps_rr_index_size(u32 n)
{
	return sizeof(struct ps_rr_index);
}

/* For struct ps_policy. Context: process. */
void ps_rr_index_build(void *index, const struct ps_trait *traits, u32 n,
		       const void *old)
{
	struct ps_rr_index *rr = index;
	u32 i;

	for (i = 0; i < n; i++)
		rr->total += traits[i].weight;
	rr->step = ps_rr_step(rr->total);
}

const struct ps_policy ps_policy_rr = {
	.name = "rr",
	.takes_turns = true,
	.pick = ps_rr_pick,
	.index_size = ps_rr_index_size,
	.index_build = ps_rr_index_build,
};
