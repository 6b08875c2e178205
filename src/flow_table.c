// SPDX-License-Identifier: GPL-2.0
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/processor.h>
#include <linux/slab.h>

#include "flow_table.h"

/* How long to wait for another CPU that is writing some words. */
#define PS_FLOW_SPINS 1000

/* Slots found taken by others before a flow isn't remembered. */
#define PS_FLOW_ATTEMPTS 8

/**
 * ps_flow_table_alloc() - an empty table
 * @slots: a power of two, at least PS_FLOW_WAYS
 * @gfp: process context
 *
 * Return: to be freed by kvfree(), or NULL.
 */
struct ps_flow_table *ps_flow_table_alloc(u32 slots, gfp_t gfp)
{
	u32 buckets = slots / PS_FLOW_WAYS;
	struct ps_flow_table *t;

	t = kvzalloc(struct_size(t, bucket, buckets), gfp);
	if (!t)
		return NULL;
	t->slots = slots;
	t->mask = buckets - 1;
	return t;
}

/* The two buckets where a flow may be; they may be one. */
static struct ps_flow_bucket *ps_flow_bucket(struct ps_flow_table *t, u64 key,
					     unsigned int choice)
{
	return &t->bucket[(choice ? key >> 32 : key) & t->mask];
}

static bool ps_flow_holds(u32 holder)
{
	return holder != PS_FLOW_FREE && holder != PS_FLOW_BUSY;
}

/* Other CPUs' clocks may be ahead of ours. */
static bool ps_flow_fresh(u32 seen, const struct ps_flow_clock *clock)
{
	return (s32)(clock->now - seen) <= (s32)clock->ttl;
}

/* Slots are used from the first on: is none behind this one in use? */
static bool ps_flow_last(const struct ps_flow_slot *slot)
{
	return !READ_ONCE(slot->key) &&
	       READ_ONCE(slot->holder) == PS_FLOW_FREE;
}

/* The slot of a flow but for @not, or NULL. */
static struct ps_flow_slot *ps_flow_slot(struct ps_flow_table *t, u64 key,
					 const struct ps_flow_slot *not)
{
	struct ps_flow_bucket *b;
	unsigned int choice, i;

	for (choice = 0; choice < 2; choice++) {
		b = ps_flow_bucket(t, key, choice);
		for (i = 0; i < PS_FLOW_WAYS; i++) {
			if (READ_ONCE(b->slot[i].key) == key &&
			    &b->slot[i] != not)
				return &b->slot[i];
			if (ps_flow_last(&b->slot[i]))
				break;
		}
	}
	return NULL;
}

/* Who holds the flow of a slot; PS_FLOW_FREE if the slot isn't its any more. */
static u32 ps_flow_holder(const struct ps_flow_slot *slot, u64 key)
{
	/* Pairs with smp_store_release() in ps_flow_put(): key and holder. */
	u32 holder = smp_load_acquire(&slot->holder);

	return READ_ONCE(slot->key) == key ? holder : PS_FLOW_FREE;
}

/* The same, when whoever is writing it has done so. */
static u32 ps_flow_holder_settled(const struct ps_flow_slot *slot, u64 key)
{
	unsigned int spins;
	u32 holder;

	for (spins = 0; spins < PS_FLOW_SPINS; spins++) {
		holder = ps_flow_holder(slot, key);
		if (likely(holder != PS_FLOW_BUSY))
			break;
		cpu_relax();
	}
	return holder;
}

static u32 ps_flow_find_in(struct ps_flow_table *t, u64 key,
			   const struct ps_flow_clock *clock)
{
	struct ps_flow_slot *slot = ps_flow_slot(t, key, NULL);
	u32 holder, seen;

	if (!slot)
		return PS_FLOW_FREE;
	holder = ps_flow_holder_settled(slot, key);
	seen = READ_ONCE(slot->seen);
	if (!ps_flow_holds(holder) || !ps_flow_fresh(seen, clock))
		return PS_FLOW_FREE;
	/*
	 * Should the slot have become another flow's just now, then that one
	 * lives a little longer. Written once a second, for its readers' sake.
	 */
	if (seen != clock->now)
		WRITE_ONCE(slot->seen, clock->now);
	return holder;
}

/**
 * ps_flow_table_find() - who a live flow is with
 * @t: the table
 * @key: the flow's, not 0
 * @clock: its time
 *
 * The flow has had a datagram now.
 *
 * Context: any, RCU.
 * Return: a handle, whose member may have gone; PS_FLOW_FREE: no live flow.
 */
u32 ps_flow_table_find(struct ps_flow_table *t, u64 key,
		       const struct ps_flow_clock *clock)
{
	struct ps_flow_table *before;
	u32 holder;

	holder = ps_flow_find_in(t, key, clock);
	if (likely(holder != PS_FLOW_FREE))
		return holder;
	/* Pairs with rcu_assign_pointer() in ps_flows_resize_locked(). */
	before = rcu_dereference(t->before);
	if (likely(!before))
		return PS_FLOW_FREE;
	holder = ps_flow_find_in(before, key, clock);
	if (holder == PS_FLOW_FREE || !clock->alive(clock->arg, holder))
		return PS_FLOW_FREE;
	/* Where there is no room it stays in the old one while that is there. */
	return ps_flow_table_add(t, key, holder, PS_FLOW_FREE, clock) ?: holder;
}

/* A slot as it was when it was found fit to be taken. */
struct ps_flow_claim {
	struct ps_flow_slot *slot;
	struct ps_flow_slot was;
};

static void ps_flow_look(struct ps_flow_claim *claim, struct ps_flow_slot *slot)
{
	claim->slot = slot;
	/* Pairs with smp_store_release() in ps_flow_put(). */
	claim->was.holder = smp_load_acquire(&slot->holder);
	claim->was.key = READ_ONCE(slot->key);
	claim->was.seen = READ_ONCE(slot->seen);
}

/* Nobody's, or that of a flow which isn't a live one any more. */
static bool ps_flow_idle(const struct ps_flow_slot *was,
			 const struct ps_flow_clock *clock)
{
	return was->holder == PS_FLOW_FREE ||
	       (was->holder != PS_FLOW_BUSY &&
		!ps_flow_fresh(was->seen, clock));
}

static bool ps_flow_orphaned(const struct ps_flow_slot *was,
			     const struct ps_flow_clock *clock)
{
	return ps_flow_holds(was->holder) &&
	       !clock->alive(clock->arg, was->holder);
}

/*
 * A slot that no live flow has, in the bucket with fewer of those that do. If
 * there is none, one whose flow's member has gone, for that takes longer to see.
 */
static bool ps_flow_room(struct ps_flow_table *t, u64 key,
			 const struct ps_flow_clock *clock,
			 struct ps_flow_claim *claim)
{
	unsigned int choice, i, live, fewest = PS_FLOW_WAYS;
	struct ps_flow_claim at, first = {};
	struct ps_flow_bucket *b;

	claim->slot = NULL;
	for (choice = 0; choice < 2; choice++) {
		b = ps_flow_bucket(t, key, choice);
		first.slot = NULL;
		live = 0;
		for (i = 0; i < PS_FLOW_WAYS; i++) {
			ps_flow_look(&at, &b->slot[i]);
			if (!ps_flow_idle(&at.was, clock))
				live++;
			else if (!first.slot)
				first = at;
			if (!at.was.key && at.was.holder == PS_FLOW_FREE)
				break;
		}
		if (first.slot && live < fewest) {
			*claim = first;
			fewest = live;
		}
	}
	for (choice = 0; choice < 2 && !claim->slot; choice++) {
		b = ps_flow_bucket(t, key, choice);
		for (i = 0; i < PS_FLOW_WAYS && !claim->slot; i++) {
			ps_flow_look(&at, &b->slot[i]);
			if (ps_flow_orphaned(&at.was, clock))
				*claim = at;
		}
	}
	return claim->slot;
}

static void ps_flow_put(struct ps_flow_slot *slot, u64 key, u32 holder,
			u32 seen)
{
	WRITE_ONCE(slot->key, key);
	WRITE_ONCE(slot->seen, seen);
	/* Pairs with smp_load_acquire() of the holder. */
	smp_store_release(&slot->holder, holder);
}

static bool ps_flow_keeps(const struct ps_flow_slot *was, u32 stale,
			  const struct ps_flow_clock *clock)
{
	return ps_flow_holds(was->holder) && was->holder != stale &&
	       ps_flow_fresh(was->seen, clock) &&
	       clock->alive(clock->arg, was->holder);
}

/*
 * Puts a flow into a slot. Returns who has the flow then, or PS_FLOW_FREE:
 * others were faster, look again.
 */
static u32 ps_flow_take(struct ps_flow_table *t,
			const struct ps_flow_claim *claim, u64 key, u32 holder,
			u32 stale, u32 seen, const struct ps_flow_clock *clock)
{
	struct ps_flow_slot *slot = claim->slot, *other;
	struct ps_flow_claim theirs;

	if (cmpxchg(&slot->holder, claim->was.holder, PS_FLOW_BUSY) !=
	    claim->was.holder)
		return PS_FLOW_FREE;
	/* The slot is ours now, but perhaps it has changed since. */
	if (slot->key != claim->was.key ||
	    READ_ONCE(slot->seen) != claim->was.seen) {
		ps_flow_put(slot, slot->key, claim->was.holder,
			    READ_ONCE(slot->seen));
		return PS_FLOW_FREE;
	}
	/* Who reads its holder by the new key waits for us. */
	WRITE_ONCE(slot->key, key);
	/* Two put one flow into two slots: one of them, at least, sees that. */
	smp_mb();
	other = ps_flow_slot(t, key, slot);
	if (unlikely(other)) {
		/* Where both see each other the first slot it is. */
		if (other < slot)
			ps_flow_holder_settled(other, key);
		ps_flow_look(&theirs, other);
		if (theirs.was.key == key &&
		    ps_flow_keeps(&theirs.was, stale, clock)) {
			/* Not 0 again: slots are used from the first on. */
			ps_flow_put(slot, claim->was.key ?: ~key | 1,
				    claim->was.holder, claim->was.seen);
			return theirs.was.holder;
		}
	}
	ps_flow_put(slot, key, holder, seen);
	return holder;
}

static u32 ps_flow_add_seen(struct ps_flow_table *t, u64 key, u32 holder,
			    u32 stale, u32 seen,
			    const struct ps_flow_clock *clock)
{
	struct ps_flow_claim claim;
	struct ps_flow_slot *slot;
	unsigned int attempt;
	u32 taken;

	for (attempt = 0; attempt < PS_FLOW_ATTEMPTS; attempt++) {
		slot = ps_flow_slot(t, key, NULL);
		if (slot) {
			ps_flow_holder_settled(slot, key);
			ps_flow_look(&claim, slot);
			if (claim.was.key != key ||
			    claim.was.holder == PS_FLOW_BUSY)
				continue;
			if (ps_flow_keeps(&claim.was, stale, clock))
				return claim.was.holder;
		} else if (!ps_flow_room(t, key, clock, &claim)) {
			break;
		}
		taken = ps_flow_take(t, &claim, key, holder, stale, seen,
				     clock);
		if (taken != PS_FLOW_FREE)
			return taken;
	}
	return PS_FLOW_FREE;
}

/**
 * ps_flow_table_add() - a flow has been given to a member
 * @t: the table
 * @key: the flow's, not 0
 * @holder: handle of the member
 * @stale: a handle that the flow is no longer to have, or PS_FLOW_FREE
 * @clock: its time
 *
 * Context: any, RCU; a CPU must not be taken away from it for long, for others
 * wait a moment for it to be done.
 * Return: who has the flow: @holder, or whom another CPU gave it to meanwhile;
 * PS_FLOW_FREE if there was no room.
 */
u32 ps_flow_table_add(struct ps_flow_table *t, u64 key, u32 holder, u32 stale,
		      const struct ps_flow_clock *clock)
{
	return ps_flow_add_seen(t, key, holder, stale, clock->now, clock);
}

/**
 * ps_flow_table_move() - take over live flows of another table
 * @t: the table; in use
 * @from: the other; nobody adds flows to it any more
 * @begin: first slot of it to look at
 * @n: how many of them
 * @clock: its time
 *
 * Context: process, RCU; see ps_flow_table_add().
 */
void ps_flow_table_move(struct ps_flow_table *t,
			const struct ps_flow_table *from, u32 begin, u32 n,
			const struct ps_flow_clock *clock)
{
	const struct ps_flow_slot *slot;
	u32 holder, seen, i;
	u64 key;

	for (i = begin; i < begin + n; i++) {
		slot = &from->bucket[i / PS_FLOW_WAYS].slot[i % PS_FLOW_WAYS];
		key = READ_ONCE(slot->key);
		holder = READ_ONCE(slot->holder);
		seen = READ_ONCE(slot->seen);
		if (key && ps_flow_holds(holder) &&
		    ps_flow_fresh(seen, clock) &&
		    clock->alive(clock->arg, holder))
			ps_flow_add_seen(t, key, holder, PS_FLOW_FREE, seen,
					 clock);
	}
}

/**
 * ps_flow_table_live() - how many live flows there are
 * @t: the table
 * @clock: its time
 *
 * Context: any, RCU. Looks at each slot.
 */
u32 ps_flow_table_live(const struct ps_flow_table *t,
		       const struct ps_flow_clock *clock)
{
	const struct ps_flow_slot *slot;
	u32 holder, i, live = 0;

	for (i = 0; i < t->slots; i++) {
		slot = &t->bucket[i / PS_FLOW_WAYS].slot[i % PS_FLOW_WAYS];
		holder = READ_ONCE(slot->holder);
		live += ps_flow_holds(holder) &&
			ps_flow_fresh(READ_ONCE(slot->seen), clock) &&
			clock->alive(clock->arg, holder);
	}
	return live;
}
