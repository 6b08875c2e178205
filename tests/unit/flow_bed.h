/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A table of flows, its clock, and members that are there or have gone.
 */
#ifndef FLOW_BED_H
#define FLOW_BED_H

#include <linux/kernel.h>
#include <linux/slab.h>

#include "flow_table.h"
#include "stats.h"

#define FLOW_BED_HOLDERS 64

struct flow_bed {
	struct ps_flow_table *t;
	struct ps_flow_clock clock;
	bool gone[FLOW_BED_HOLDERS];
};

static inline bool flow_bed_alive(void *arg, u32 holder)
{
	const struct flow_bed *bed = arg;

	if (holder == PS_FLOW_FREE || holder >= FLOW_BED_HOLDERS)
		abort();
	return !READ_ONCE(bed->gone[holder]);
}

static inline void flow_bed_init(struct flow_bed *bed, u32 slots, u32 now,
				 u32 ttl)
{
	memset(bed, 0, sizeof(*bed));
	bed->t = ps_flow_table_alloc(slots, GFP_KERNEL);
	bed->clock = (struct ps_flow_clock){
		.now = now, .ttl = ttl, .alive = flow_bed_alive, .arg = bed,
	};
}

static inline void flow_bed_free(struct flow_bed *bed)
{
	kvfree(bed->t);
}

static inline u32 flow_bed_find(struct flow_bed *bed, u64 key)
{
	return ps_flow_table_find(bed->t, key, &bed->clock);
}

static inline u32 flow_bed_add(struct flow_bed *bed, u64 key, u32 holder)
{
	return ps_flow_table_add(bed->t, key, holder, PS_FLOW_FREE,
				 &bed->clock);
}

static inline u32 flow_bed_live(const struct flow_bed *bed)
{
	return ps_flow_table_live(bed->t, 0, bed->t->slots, &bed->clock);
}

static inline struct ps_flow_slot *flow_bed_slot(const struct flow_bed *bed,
						 u32 i)
{
	return &bed->t->bucket[i / PS_FLOW_WAYS].slot[i % PS_FLOW_WAYS];
}

/* How many slots have that flow with a member. */
static inline u32 flow_bed_copies(const struct flow_bed *bed, u64 key)
{
	u32 i, n = 0;

	for (i = 0; i < bed->t->slots; i++) {
		const struct ps_flow_slot *slot = flow_bed_slot(bed, i);

		n += slot->key == key && slot->holder != PS_FLOW_FREE &&
		     slot->holder != PS_FLOW_BUSY;
	}
	return n;
}

/* No two are alike, and none is 0: a permutation of 1, 2... */
static inline u64 flow_key(u32 i)
{
	u64 x = (i + 1ull) * 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

#endif /* FLOW_BED_H */
