// SPDX-License-Identifier: GPL-2.0
/*
 * cpu: the member that serves the CPU that the packet is on, by hash among
 * several: no other CPU is woken, and no cache line crosses. No such member: as
 * numa.
 *
 * Costs two steps in a table, and four more for the node, whatever the size of
 * the group.
 */
#include <linux/cpumask.h>
#include <linux/smp.h>

#include "../index.h"
#include "keyed.h"
#include "numa.h"

static s32 ps_cpu_of_trait(const struct ps_trait *trait)
{
	return trait->cpu;
}

static u32 ps_cpu_pick(struct ps_group *group, const struct ps_set *set, u32 n,
		       const struct ps_flow *flow, u32 attempt)
{
	const u32 *table = ps_index_of(group, &ps_policy_cpu, n);
	u32 cpu = raw_smp_processor_id();
	u32 hash = ps_flow_hash(flow);
	u32 count;

	count = ps_keyed_count(table, nr_cpu_ids, set, n, ps_member_cpu, cpu);
	if (likely(attempt < count))
		return ps_keyed_at(table, nr_cpu_ids, set, n, ps_member_cpu,
				   cpu, ps_one_of(count, hash, attempt));
	if (likely(table))
		table += ps_keyed_size(nr_cpu_ids, n) / sizeof(*table);
	return ps_numa_choose(table, set, n, hash, attempt - count);
}

static size_t ps_cpu_index_size(u32 n)
{
	return ps_keyed_size(nr_cpu_ids, n) + ps_numa_index_size(n);
}

static void ps_cpu_index_build(void *index, const struct ps_trait *traits,
			       u32 n, const void *old)
{
	ps_keyed_build(index, nr_cpu_ids, traits, n, ps_cpu_of_trait);
	ps_numa_index_build(index + ps_keyed_size(nr_cpu_ids, n), traits, n,
			    NULL);
}

const struct ps_policy ps_policy_cpu = {
	.name = "cpu",
	.takes_turns = true,
	.by_cpu = true,
	.pick = ps_cpu_pick,
	.index_size = ps_cpu_index_size,
	.index_build = ps_cpu_index_build,
};
