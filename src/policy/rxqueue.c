// SPDX-License-Identifier: GPL-2.0
/*
 * rxqueue: the member that serves the device queue that the packet came in on.
 *
 * One for which that queue was set, by hash among several. Without any, the
 * members for which none was set, in the order of their ids, serve the queues
 * in turn. By hash among all where each has another queue, or where the
 * device, or the packet's way to us, recorded none.
 *
 * Costs two steps in a table, and two more for members in order, whatever the
 * size of the group. Queues from 2047 on, more than devices have, have no table.
 */
#include <linux/skbuff.h>

#include "../index.h"
#include "keyed.h"

/* Key 0 is no queue set, the others are the queues. */
#define PS_QUEUE_KEYS 2048

static s32 ps_queue_of_member(const struct ps_member *m)
{
	return READ_ONCE(m->rx_queue) + 1;
}

static s32 ps_queue_of_trait(const struct ps_trait *trait)
{
	return trait->rx_queue + 1;
}

static u32 ps_rxqueue_pick(struct ps_group *group, const struct ps_set *set,
			   u32 n, const struct ps_flow *flow, u32 attempt)
{
	const u32 *table = ps_index_of(group, &ps_policy_rxqueue, n);
	const u32 *own = table;
	u32 hash = ps_flow_hash(flow);
	u32 queue, count;

	if (!flow->skb || !skb_rx_queue_recorded(flow->skb))
		return ps_choose_by_hash(set, n, hash, attempt);
	queue = skb_get_rx_queue(flow->skb);
	if (unlikely(queue + 1 >= PS_QUEUE_KEYS))
		own = NULL;
	count = ps_keyed_count(own, PS_QUEUE_KEYS, set, n, ps_queue_of_member,
			       queue + 1);
	if (likely(attempt < count))
		return ps_keyed_at(own, PS_QUEUE_KEYS, set, n,
				   ps_queue_of_member, queue + 1,
				   ps_one_of(count, hash, attempt));
	attempt -= count;
	count = ps_keyed_count(table, PS_QUEUE_KEYS, set, n, ps_queue_of_member,
			       0);
	if (likely(attempt < count))
		return ps_keyed_at(table, PS_QUEUE_KEYS, set, n,
				   ps_queue_of_member, 0,
				   (queue + attempt) % count);
	return ps_choose_by_hash(set, n, hash, attempt - count);
}

static size_t ps_rxqueue_index_size(u32 n)
{
	return ps_keyed_size(PS_QUEUE_KEYS, n);
}

static void ps_rxqueue_index_build(void *index, const struct ps_trait *traits,
				   u32 n, const void *old)
{
	ps_keyed_build(index, PS_QUEUE_KEYS, traits, n, ps_queue_of_trait);
}

const struct ps_policy ps_policy_rxqueue = {
	.name = "rxqueue",
	.pick = ps_rxqueue_pick,
	.index_size = ps_rxqueue_index_size,
	.index_build = ps_rxqueue_index_build,
};
