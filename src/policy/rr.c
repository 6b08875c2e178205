// SPDX-License-Identifier: GPL-2.0
/*
 * rr: the next selectable member in turn.
 *
 * A turn is taken by what starts something only (see lookup.c), so that N
 * connections over n members give each of them N/n.
 */
#include <linux/atomic.h>

#include "../group.h"
#include "../policy.h"

static u32 ps_rr_pick(struct ps_group *group, const struct ps_set *set, u32 n,
		      const struct ps_flow *flow, u32 attempt)
{
	/*
	 * Also at a further attempt: an unusable member's turn is used up, and
	 * the next member takes the next turn, so the others stay even.
	 */
	return (u32)atomic_inc_return(&group->turn) % n;
}

const struct ps_policy ps_policy_rr = {
	.name = "rr",
	.takes_turns = true,
	.pick = ps_rr_pick,
};
