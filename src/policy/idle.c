// SPDX-License-Identifier: GPL-2.0
/*
 * idle: a member whose worker sleeps waiting for work and has none queued.
 *
 * Of several, one that serves this CPU; else the one last awake, whose caches
 * are still warm, while the others may sleep on. No idle one: as least.
 *
 * Costs a look at each of up to 64 members, and at the threads of those that
 * have nothing queued and would be better than the best so far; of more, at 8
 * that chance gives.
 */
#include <linux/smp.h>

#include "../load.h"
#include "../worker.h"
#include "least.h"
#include "rr.h"

/* An idle member, or @n. */
static u32 ps_idle(const struct ps_group *group, const struct ps_set *set,
		   u32 n)
{
	/* Often the one last awake: the others needn't be looked at closely. */
	u32 warm = READ_ONCE(group->warm), first = warm < n ? warm : 0;
	int cpu = raw_smp_processor_id();
	u32 best = n, i, k;
	bool here, best_here = false;
	u64 awake, best_awake = 0;
	const struct ps_member *m;

	for (k = 0; k < ps_sample_size(n); k++) {
		i = ps_sample(set, n, first, k);
		m = ps_set_member(set, i);
		here = ps_member_cpu(m) == cpu;
		awake = READ_ONCE(m->awake);
		if (best < n && (here != best_here ? best_here :
						     awake <= best_awake))
			continue;
		if (ps_member_load(m) || !ps_member_usable(m, group) ||
		    !ps_worker_waits(READ_ONCE(m->worker)))
			continue;
		best = i;
		best_here = here;
		best_awake = awake;
	}
	return best;
}

static u32 ps_idle_pick(struct ps_group *group, const struct ps_set *set, u32 n,
			const struct ps_flow *flow, u32 attempt)
{
	u32 i = ps_idle(group, set, n);

	if (i == n)
		i = ps_least(group, set, n, &ps_policy_idle);
	WRITE_ONCE(group->warm, i);
	return i;
}

const struct ps_policy ps_policy_idle = {
	.name = "idle",
	.takes_turns = true,
	.pick = ps_idle_pick,
	.index_size = ps_rr_index_size,
	.index_build = ps_rr_index_build,
};
