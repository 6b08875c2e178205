// SPDX-License-Identifier: GPL-2.0
/*
 * numa: a member that serves a CPU of the node the packet is on, by hash among
 * them: what the packet brought stays in that node's memory and caches. No such
 * member: by hash among all.
 *
 * A member whose CPU isn't known may be on any node: it takes part on each, or
 * it would never get anything to be learned by.
 *
 * Costs four steps in a table, whatever the size of the group.
 */
#include <linux/cpumask.h>
#include <linux/nodemask.h>
#include <linux/smp.h>
#include <linux/topology.h>

#include "../index.h"
#include "keyed.h"
#include "numa.h"

/* Key 0 is any node, the others are the nodes. */
#define PS_NODE_KEYS (nr_node_ids + 1)
#define PS_ANY_NODE 0

/* Any number may have been set for a CPU: -1, none of the keys, then. */
static s32 ps_node_of(s32 cpu)
{
	if (cpu < 0)
		return PS_ANY_NODE;
	if ((u32)cpu >= nr_cpu_ids || !cpu_possible(cpu) ||
	    cpu_to_node(cpu) < 0)
		return -1;
	return cpu_to_node(cpu) + 1;
}

static s32 ps_node_of_member(const struct ps_member *m)
{
	return ps_node_of(ps_member_cpu(m));
}

static s32 ps_node_of_trait(const struct ps_trait *trait)
{
	return ps_node_of(trait->cpu);
}

/**
 * ps_numa_choose() - by hash, on this node if there is a member
 * @table: made by ps_numa_index_build(), or NULL
 * @set: the set
 * @n: entries of it, at least 1
 * @hash: of the flow
 * @attempt: further ones come to the whole class in the end
 *
 * Context: any, RCU.
 * Return: below @n.
 */
u32 ps_numa_choose(const u32 *table, const struct ps_set *set, u32 n, u32 hash,
		   u32 attempt)
{
	s32 node = ps_node_of(raw_smp_processor_id());
	u32 here = 0, any = 0, k;

	if (likely(node > PS_ANY_NODE)) {
		here = ps_keyed_count(table, PS_NODE_KEYS, set, n,
				      ps_node_of_member, node);
		any = ps_keyed_count(table, PS_NODE_KEYS, set, n,
				     ps_node_of_member, PS_ANY_NODE);
	}
	if (unlikely(attempt >= here + any))
		return ps_choose_by_hash(set, n, hash, attempt - here - any);
	k = ps_one_of(here + any, hash, attempt);
	if (k >= here)
		return ps_keyed_at(table, PS_NODE_KEYS, set, n,
				   ps_node_of_member, PS_ANY_NODE, k - here);
	return ps_keyed_at(table, PS_NODE_KEYS, set, n, ps_node_of_member, node,
			   k);
}

static u32 ps_numa_pick(struct ps_group *group, const struct ps_set *set, u32 n,
			const struct ps_flow *flow, u32 attempt)
{
	return ps_numa_choose(ps_index_of(group, &ps_policy_numa, n), set, n,
			      ps_flow_hash(flow), attempt);
}

/* For struct ps_policy. Context: any. */
size_t ps_numa_index_size(u32 n)
{
	return ps_keyed_size(PS_NODE_KEYS, n);
}

/* For struct ps_policy. Context: process. */
void ps_numa_index_build(void *index, const struct ps_trait *traits, u32 n,
			 const void *old)
{
	ps_keyed_build(index, PS_NODE_KEYS, traits, n, ps_node_of_trait);
}

const struct ps_policy ps_policy_numa = {
	.name = "numa",
	.takes_turns = true,
	.by_cpu = true,
	.pick = ps_numa_pick,
	.index_size = ps_numa_index_size,
	.index_build = ps_numa_index_build,
};
