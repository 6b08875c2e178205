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
	 * An unusable member's turn goes to the next one: with the turns
	 * running on, every other member is equally often that next one's
	 * successor only if the turn is passed on, not repeated.
	 */
	return (u32)atomic_inc_return(&group->turn) % n;
}

const struct ps_policy ps_policy_rr = {
	.name = "rr",
	.takes_turns = true,
	.pick = ps_rr_pick,
};
