/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which member each live UDP flow is with: a table of a fixed size. Pure: also
 * built in user space, by the unit tests.
 *
 * Any number of CPUs read and change it at a time, without locks. A flow is
 * known by a keyed 64-bit hash, its member by a handle that no other member of
 * the group ever has: a table with a million flows takes one for another once
 * in 2^44 lookups. A flow has two buckets where it may be, and goes to the one
 * with fewer live flows, so that buckets are full of them when the whole table
 * nearly is: of a million new flows in a table that is half full, all find room.
 * A live flow is never put out by another: where both buckets are full of them,
 * a new one isn't remembered.
 *
 * A slot's holder says whose turn it is to write: a slot is taken by changing
 * that to PS_FLOW_BUSY, and is there to be read when it has a handle again.
 */
#ifndef PS_FLOW_TABLE_H
#define PS_FLOW_TABLE_H

#include <linux/cache.h>
#include <linux/overflow.h>
#include <linux/rcupdate.h>
#include <linux/types.h>

#define PS_FLOW_WAYS 8

#define PS_FLOW_FREE 0
#define PS_FLOW_BUSY U32_MAX

struct ps_flow_slot {
	u64 key;	/* 0: has never been used */
	u32 holder;	/* handle, or PS_FLOW_FREE or _BUSY */
	u32 seen;	/* second of its last datagram */
};

struct ps_flow_bucket {
	struct ps_flow_slot slot[PS_FLOW_WAYS];
};

struct ps_flow_table {
	struct rcu_head rcu;
	/* The one that this takes the place of, while flows move over. */
	struct ps_flow_table __rcu *before;
	u32 slots;
	u32 mask;	/* of buckets */
	struct ps_flow_bucket bucket[] ____cacheline_aligned;
};

/**
 * struct ps_flow_clock - what makes a flow a live one
 * @now: second
 * @ttl: for how many after its last datagram, at most S32_MAX
 * @alive: is there a member with that handle? Context: any, RCU.
 * @arg: for it
 */
struct ps_flow_clock {
	u32 now;
	u32 ttl;
	bool (*alive)(void *arg, u32 holder);
	void *arg;
};

/* Octets of a table of @slots. */
static inline size_t ps_flow_table_size(u32 slots)
{
	return struct_size((struct ps_flow_table *)NULL, bucket,
			   slots / PS_FLOW_WAYS);
}

struct ps_flow_table *ps_flow_table_alloc(u32 slots, gfp_t gfp);
u32 ps_flow_table_find(struct ps_flow_table *t, u64 key,
		       const struct ps_flow_clock *clock);
u32 ps_flow_table_add(struct ps_flow_table *t, u64 key, u32 holder, u32 stale,
		      const struct ps_flow_clock *clock);
void ps_flow_table_move(struct ps_flow_table *t,
			const struct ps_flow_table *from, u32 begin, u32 n,
			const struct ps_flow_clock *clock);
u32 ps_flow_table_live(const struct ps_flow_table *t, u32 begin, u32 n,
		       const struct ps_flow_clock *clock);

#endif /* PS_FLOW_TABLE_H */
