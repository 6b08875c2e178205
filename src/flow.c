// SPDX-License-Identifier: GPL-2.0
/*
 * UDP flow affinity: which flows of a group are remembered, for how long, and
 * with what memory.
 *
 * A flow is what its addresses and ports say. It is known by the SipHash-2-4 of
 * them, with a key of this load, so that nobody can choose flows that meet in
 * the table. Costs that hash, and a cache line or two, whatever the number of
 * flows.
 */
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/siphash.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "compat/memcg.h"
#include "flow.h"
#include "flow_table.h"
#include "group.h"
#include "tuple.h"

/*
 * All tables together take up no more than one part in so many of the machine's
 * memory: any user may have groups, and no process is seen to have their memory.
 */
#define PS_FLOWS_SHARE 8

static atomic64_t ps_flows_octets;

static siphash_key_t ps_flow_secret __read_mostly;

/* At load. Context: process. */
void ps_flow_init(void)
{
	get_random_bytes(&ps_flow_secret, sizeof(ps_flow_secret));
}

static u64 ps_flow_key(const struct sk_buff *skb)
{
	struct ps_tuple6 tuple;
	u64 key;

	if (ps_skb_is_v6(skb)) {
		ps_tuple6_of(skb, &tuple);
		key = siphash(&tuple, sizeof(tuple), &ps_flow_secret);
	} else {
		key = siphash_3u32((__force u32)ip_hdr(skb)->saddr,
				   (__force u32)ip_hdr(skb)->daddr,
				   ps_skb_ports(skb), &ps_flow_secret);
	}
	/* 0 is an empty slot's. */
	return key ?: 1;
}

/* For how many seconds a flow stays; 0: it needn't. Context: any. */
static u32 ps_flow_ttl(const struct ps_group *g)
{
	u32 affinity = READ_ONCE(g->affinity);

	if (g->key.proto != IPPROTO_UDP)
		return 0;
	if (affinity)
		return affinity;
	return READ_ONCE(g->working_generation) >= 0 ? PS_AFFINITY_OVERLAP : 0;
}

static bool ps_flow_alive(void *arg, u32 holder)
{
	struct ps_group *g = arg;

	return xa_load(&g->handles, holder);
}

static struct ps_flow_clock ps_flow_clock(struct ps_group *g)
{
	return (struct ps_flow_clock){
		.now = ktime_get_seconds(),
		.ttl = ps_flow_ttl(g),
		.alive = ps_flow_alive,
		.arg = g,
	};
}

/* Neither connect()ed nor being closed; its state doesn't matter. */
static struct ps_member *ps_flow_usable(struct ps_group *g, u32 holder)
{
	struct ps_member *m = xa_load(&g->handles, holder);

	if (!m || !READ_ONCE(m->candidate) || !ps_member_usable(m, g))
		return NULL;
	return m;
}

/**
 * ps_flow_find() - whose flow is that?
 * @g: a UDP group
 * @flows: its table
 * @skb: a datagram, about to be delivered
 * @ref: filled, for ps_flow_add()
 *
 * Context: softirq or process, RCU.
 * Return: NULL if no member's: the policy is to say.
 */
struct ps_member *ps_flow_find(struct ps_group *g, struct ps_flow_table *flows,
			       const struct sk_buff *skb,
			       struct ps_flow_ref *ref)
{
	struct ps_flow_clock clock = ps_flow_clock(g);

	ref->key = ps_flow_key(skb);
	ref->now = clock.now;
	ref->stale = ps_flow_table_find(flows, ref->key, &clock);
	if (ref->stale == PS_FLOW_FREE)
		return NULL;
	return ps_flow_usable(g, ref->stale);
}

/**
 * ps_flow_add() - a flow's first datagram has been given to a member
 * @g: a UDP group
 * @flows: its table
 * @ref: from ps_flow_find(), which found none
 * @m: the member
 *
 * Context: softirq or process, RCU.
 * Return: who gets the datagram: @m, or whom another CPU gave the flow's other
 * first one to.
 */
struct ps_member *ps_flow_add(struct ps_group *g, struct ps_flow_table *flows,
			      const struct ps_flow_ref *ref,
			      struct ps_member *m)
{
	struct ps_flow_clock clock = ps_flow_clock(g);
	u32 handle = READ_ONCE(m->handle), holder;

	/* It is leaving, or has joined another group already. */
	if (!handle || xa_load(&g->handles, handle) != m)
		return m;
	clock.now = ref->now;
	holder = ps_flow_table_add(flows, ref->key, handle, ref->stale, &clock);
	if (unlikely(holder == PS_FLOW_FREE)) {
		atomic64_inc(&g->flows_full);
		return m;
	}
	return ps_flow_usable(g, holder) ?: m;
}

/* Of a new group. Context: any. */
void ps_flows_start(struct ps_group *g)
{
	/* A lone writer of the table; packets don't take it. */
	mutex_init(&g->flows_mutex);
	g->flow_room = PS_FLOWS_DEFAULT;
	atomic64_set(&g->flows_full, 0);
	xa_init_flags(&g->handles, XA_FLAGS_ALLOC1 | XA_FLAGS_ACCOUNT);
}

/* Before a table of @slots is freed. */
static void ps_flows_uncount(u32 slots)
{
	atomic64_sub(ps_flow_table_size(slots), &ps_flows_octets);
}

static bool ps_flows_count(u32 slots)
{
	s64 most = ((u64)totalram_pages() << PAGE_SHIFT) / PS_FLOWS_SHARE;

	if (atomic64_add_return(ps_flow_table_size(slots),
				&ps_flows_octets) <= most)
		return true;
	ps_flows_uncount(slots);
	return false;
}

static struct ps_flow_table *ps_flows_alloc(struct ps_group *g, u32 slots)
{
	struct ps_flow_table *flows;
	struct ps_memcg_scope scope;

	if (!ps_flows_count(slots))
		return NULL;
	ps_memcg_enter(&scope, g->memcg);
	/* The cgroup may be full: that is to be told, nobody is to be killed. */
	flows = ps_flow_table_alloc(slots, GFP_KERNEL_ACCOUNT | __GFP_NOWARN |
					   __GFP_RETRY_MAYFAIL);
	ps_memcg_exit(&scope);
	if (!flows)
		ps_flows_uncount(slots);
	return flows;
}

/* Flows move from the old table to the new one while packets use both. */
static void ps_flows_move(struct ps_group *g, struct ps_flow_table *fresh,
			  struct ps_flow_table *old)
{
	struct ps_flow_clock clock;
	u32 begin;

	/* From here on nobody adds flows to the old one. */
	synchronize_rcu();
	for (begin = 0; begin < old->slots; begin += PS_FLOWS_MIN) {
		rcu_read_lock();
		clock = ps_flow_clock(g);
		ps_flow_table_move(fresh, old, begin, PS_FLOWS_MIN, &clock);
		rcu_read_unlock();
		cond_resched();
	}
	/* Pairs with rcu_dereference() in ps_flow_table_find(). */
	rcu_assign_pointer(fresh->before, NULL);
}

/* @room: of how many flows; 0: no table */
static int ps_flows_resize_locked(struct ps_group *g, u32 room)
{
	/* Half full, it has a slot for every flow. */
	u32 slots = 2 * room;
	struct ps_flow_table *old, *fresh = NULL;

	old = rcu_dereference_protected(g->flows,
					lockdep_is_held(&g->flows_mutex));
	if (slots == (old ? old->slots : 0))
		return 0;
	if (slots) {
		fresh = ps_flows_alloc(g, slots);
		if (!fresh)
			return -ENOMEM;
		RCU_INIT_POINTER(fresh->before, old);
	}
	/* Pairs with rcu_dereference() in pick.h: an empty, or linked, table. */
	rcu_assign_pointer(g->flows, fresh);
	if (old && fresh)
		ps_flows_move(g, fresh, old);
	if (old) {
		ps_flows_uncount(old->slots);
		kvfree_rcu(old, rcu);
	}
	return 0;
}

/* Of a group that nobody knows any more. Context: any. */
void ps_flows_end(struct ps_group *g)
{
	struct ps_flow_table *flows = rcu_dereference_protected(g->flows, 1);

	if (!flows)
		return;
	ps_flows_uncount(flows->slots);
	kvfree(flows);
}

/**
 * ps_flows_reserve() - give a group a table, for flows that it is to keep
 * @g: the group; the caller holds a reference
 *
 * Context: process, may sleep.
 * Return: 0 or -ENOMEM, and then nothing has changed.
 */
int ps_flows_reserve(struct ps_group *g)
{
	int err;

	if (g->key.proto != IPPROTO_UDP)
		return 0;
	mutex_lock(&g->flows_mutex);
	err = ps_flows_resize_locked(g, g->flow_room);
	mutex_unlock(&g->flows_mutex);
	return err;
}

/**
 * ps_flows_update() - give a group a table if it is to have one, else none
 * @g: the group; the caller holds a reference
 *
 * Context: process, may sleep.
 * Return: 0 or -ENOMEM, and then flows don't stay on their sockets.
 */
int ps_flows_update(struct ps_group *g)
{
	bool needed;
	int err;

	mutex_lock(&g->flows_mutex);
	needed = READ_ONCE(g->members) && ps_flow_ttl(g);
	err = ps_flows_resize_locked(g, needed ? g->flow_room : 0);
	mutex_unlock(&g->flows_mutex);
	return err;
}

/**
 * ps_flows_set_room() - how many flows a group is to remember
 * @g: the group; the caller holds a reference
 * @room: up to PS_FLOWS_MAX; made a power of two. Nearly twice as many, at best.
 *
 * Context: process, may sleep.
 * Return: 0 or -ENOMEM, and then nothing has changed.
 */
int ps_flows_set_room(struct ps_group *g, u32 room)
{
	int err = 0;

	room = roundup_pow_of_two(max_t(u32, room, PS_FLOWS_MIN));
	mutex_lock(&g->flows_mutex);
	if (rcu_access_pointer(g->flows))
		err = ps_flows_resize_locked(g, room);
	if (!err)
		WRITE_ONCE(g->flow_room, room);
	mutex_unlock(&g->flows_mutex);
	return err;
}

/**
 * ps_flows_live() - how many flows a group remembers
 * @g: the group; the caller holds a reference
 *
 * Context: process, may sleep.
 */
u32 ps_flows_live(struct ps_group *g)
{
	const struct ps_flow_table *flows;
	struct ps_flow_clock clock;
	u32 begin, live = 0;

	/* Keeps the table. */
	mutex_lock(&g->flows_mutex);
	flows = rcu_dereference_protected(g->flows,
					  lockdep_is_held(&g->flows_mutex));
	for (begin = 0; flows && begin < flows->slots; begin += PS_FLOWS_MIN) {
		rcu_read_lock();
		clock = ps_flow_clock(g);
		live += ps_flow_table_live(flows, begin, PS_FLOWS_MIN, &clock);
		rcu_read_unlock();
		cond_resched();
	}
	mutex_unlock(&g->flows_mutex);
	return live;
}
