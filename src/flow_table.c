// SPDX-License-Identifier: GPL-2.0
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/preempt.h>
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
	struct ps_flow_table *t = kvzalloc(ps_flow_table_size(slots), gfp);

	if (!t)
		return NULL;
	t->slots = slots;
	t->mask = slots / PS_FLOW_WAYS - 1;
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

/* The slot of a flow, or NULL. */
static struct ps_flow_slot *ps_flow_slot(struct ps_flow_table *t, u64 key)
{
	struct ps_flow_bucket *b;
	unsigned int choice, i;

	for (choice = 0; choice < 2; choice++) {
		b = ps_flow_bucket(t, key, choice);
		for (i = 0; i < PS_FLOW_WAYS; i++) {
			if (READ_ONCE(b->slot[i].key) == key)
				return &b->slot[i];
			if (ps_flow_last(&b->slot[i]))
				break;
		}
	}
	return NULL;
}

/* A slot as it was when somebody looked. */
struct ps_flow_claim {
	struct ps_flow_slot *slot;
	struct ps_flow_slot was;
};

/* All of it at one moment, or PS_FLOW_BUSY: another CPU is writing it. */
static void ps_flow_look(struct ps_flow_claim *claim, struct ps_flow_slot *slot)
{
	claim->slot = slot;
	/* Pairs with smp_store_release() in ps_flow_put(). */
	claim->was.holder = smp_load_acquire(&slot->holder);
	claim->was.key = READ_ONCE(slot->key);
	claim->was.seen = READ_ONCE(slot->seen);
	/* Pairs with cmpxchg() in ps_flow_take(): what comes behind is seen. */
	smp_rmb();
	if (READ_ONCE(slot->holder) != claim->was.holder)
		claim->was.holder = PS_FLOW_BUSY;
}

/* The same of a flow's slot, when whoever is writing it has done so. */
static void ps_flow_look_settled(struct ps_flow_claim *claim,
				 struct ps_flow_slot *slot, u64 key)
{
	unsigned int spins;

	for (spins = 0; spins < PS_FLOW_SPINS; spins++) {
		ps_flow_look(claim, slot);
		if (likely(claim->was.holder != PS_FLOW_BUSY) ||
		    claim->was.key != key)
			break;
		cpu_relax();
	}
}

static u32 ps_flow_find_in(struct ps_flow_table *t, u64 key,
			   const struct ps_flow_clock *clock)
{
	struct ps_flow_slot *slot = ps_flow_slot(t, key);
	struct ps_flow_claim at;

	if (!slot)
		return PS_FLOW_FREE;
	ps_flow_look_settled(&at, slot, key);
	if (at.was.key != key || !ps_flow_holds(at.was.holder) ||
	    !ps_flow_fresh(at.was.seen, clock))
		return PS_FLOW_FREE;
	/*
	 * Should the slot have become another flow's just now, then that one
	 * lives a little longer. Written once a second, for its readers' sake.
	 */
	if (at.was.seen != clock->now)
		WRITE_ONCE(slot->seen, clock->now);
	return at.was.holder;
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
 * Where to put a flow: the slot that it has already, or one that no live flow
 * has, in the bucket with fewer of those that do. If there is none, one whose
 * flow's member has gone, for that takes longer to see.
 */
static bool ps_flow_place(struct ps_flow_table *t, u64 key,
			  const struct ps_flow_clock *clock,
			  struct ps_flow_claim *claim)
{
	unsigned int choice, i, live, fewest = PS_FLOW_WAYS;
	struct ps_flow_claim at, first;
	struct ps_flow_bucket *b;

	claim->slot = NULL;
	for (choice = 0; choice < 2; choice++) {
		b = ps_flow_bucket(t, key, choice);
		first.slot = NULL;
		live = 0;
		for (i = 0; i < PS_FLOW_WAYS; i++) {
			ps_flow_look(&at, &b->slot[i]);
			if (at.was.key == key) {
				*claim = at;
				return true;
			}
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
 * Is the flow of a slot that is ours in another slot, too, or being put there?
 * Where several CPUs put one flow into several slots, each waits only for those
 * behind its own, and gives way to those before it: nobody waits in a circle.
 */
static bool ps_flow_elsewhere(struct ps_flow_table *t,
			      const struct ps_flow_slot *slot, u64 key,
			      u32 stale, const struct ps_flow_clock *clock)
{
	struct ps_flow_claim theirs;
	struct ps_flow_slot *other;
	unsigned int choice, i;

	for (choice = 0; choice < 2; choice++) {
		other = ps_flow_bucket(t, key, choice)->slot;
		for (i = 0; i < PS_FLOW_WAYS; i++, other++) {
			if (ps_flow_last(other))
				break;
			if (other == slot || READ_ONCE(other->key) != key)
				continue;
			if (other > slot)
				ps_flow_look_settled(&theirs, other, key);
			else
				ps_flow_look(&theirs, other);
			if (theirs.was.key == key &&
			    (theirs.was.holder == PS_FLOW_BUSY ||
			     ps_flow_keeps(&theirs.was, stale, clock)))
				return true;
		}
	}
	return false;
}

/*
 * Puts a flow into a slot. Returns its holder, or PS_FLOW_FREE: others were
 * faster, look again.
 */
static u32 ps_flow_take(struct ps_flow_table *t,
			const struct ps_flow_claim *claim, u64 key, u32 holder,
			u32 stale, u32 seen, const struct ps_flow_clock *clock)
{
	struct ps_flow_slot *slot = claim->slot;
	u32 taken = PS_FLOW_FREE;

	/* Others wait a moment for a slot that is being written. */
	preempt_disable();
	if (cmpxchg(&slot->holder, claim->was.holder, PS_FLOW_BUSY) !=
	    claim->was.holder)
		goto out;
	/* The slot is ours now, but perhaps it has changed since. */
	if (slot->key != claim->was.key ||
	    READ_ONCE(slot->seen) != claim->was.seen) {
		ps_flow_put(slot, slot->key, claim->was.holder,
			    READ_ONCE(slot->seen));
		goto out;
	}
	/* Who reads its holder by the new key waits for us. */
	WRITE_ONCE(slot->key, key);
	/* Two put one flow into two slots: one of them, at least, sees that. */
	smp_mb();
	if (unlikely(ps_flow_elsewhere(t, slot, key, stale, clock))) {
		/*
		 * Not again the flow's that was there: it may have come back
		 * and be elsewhere now. Not 0: slots are used from the first on.
		 */
		ps_flow_put(slot, ~key | 1, PS_FLOW_FREE, 0);
		goto out;
	}
	ps_flow_put(slot, key, holder, seen);
	taken = holder;
out:
	preempt_enable();
	return taken;
}

static u32 ps_flow_add_seen(struct ps_flow_table *t, u64 key, u32 holder,
			    u32 stale, u32 seen,
			    const struct ps_flow_clock *clock)
{
	struct ps_flow_claim claim;
	unsigned int attempt;
	u32 taken;

	for (attempt = 0; attempt < PS_FLOW_ATTEMPTS; attempt++) {
		if (!ps_flow_place(t, key, clock, &claim))
			break;
		if (claim.was.key == key) {
			if (claim.was.holder == PS_FLOW_BUSY) {
				ps_flow_look_settled(&claim, claim.slot, key);
				/* Its CPU is being held up: not for us to wait. */
				if (claim.was.key == key &&
				    claim.was.holder == PS_FLOW_BUSY)
					break;
				continue;
			}
			if (ps_flow_keeps(&claim.was, stale, clock)) {
				/* Moved here as it was, perhaps, just now. */
				if ((s32)(seen - claim.was.seen) > 0)
					WRITE_ONCE(claim.slot->seen, seen);
				return claim.was.holder;
			}
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
 * Context: any, RCU.
 * Return: who has the flow: @holder, or whom another CPU gave it to meanwhile;
 * PS_FLOW_FREE if there was no room, or too much going on there.
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
 * Context: process, RCU.
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
 * ps_flow_table_live() - how many live flows there are in some slots
 * @t: the table
 * @begin: first slot to look at
 * @n: how many of them
 * @clock: its time
 *
 * Context: any, RCU.
 */
u32 ps_flow_table_live(const struct ps_flow_table *t, u32 begin, u32 n,
		       const struct ps_flow_clock *clock)
{
	const struct ps_flow_slot *slot;
	u32 holder, i, live = 0;

	for (i = begin; i < begin + n; i++) {
		slot = &t->bucket[i / PS_FLOW_WAYS].slot[i % PS_FLOW_WAYS];
		holder = READ_ONCE(slot->holder);
		live += ps_flow_holds(holder) &&
			ps_flow_fresh(READ_ONCE(slot->seen), clock) &&
			clock->alive(clock->arg, holder);
	}
	return live;
}
