// SPDX-License-Identifier: GPL-2.0
/*
 * consistent: by a consistent hash of the 4-tuple over the members' ids and
 * weights.
 *
 * A flow's hash gives it one of 16384 slots. In each slot every member has a
 * random number, by the seed, the slot and its id alone, and the one that has
 * the best number for its weight owns the slot: weighted rendezvous hashing
 * (Thaler and Ravishankar 1998; weights: Schindelhauer and Schomaker 2005). So
 * closing a member moves no slot but its own, a new one takes from each other
 * what it needs and moves nothing between them, and who came first, or whether
 * the group was made anew, doesn't matter. Hosts with the same seed agree.
 *
 * Costs a step in a table, whatever the size of the group, besides the hash.
 * While there is no table, a look at each member (up to PS_SCAN_MAX: of more,
 * at the first ones). The table, of 32 KiB and 10 bytes a member, is made off
 * the packet path: a member that comes costs 16384 comparisons, one that goes
 * as many as there are members, for each of its slots.
 *
 * A slot is the least that a member can get: with more than a thousand members
 * the shares get uneven, and with 16384 some get nothing.
 */
#include <linux/bitops.h>
#include <linux/sched.h>

#include "../choose.h"
#include "../index.h"

#define PS_SLOT_BITS 14
#define PS_SLOTS BIT(PS_SLOT_BITS)

/* What one member has to say for a slot. */
struct ps_bid {
	u32 number;
	u32 cost;	/* of the number, before weight; only if weights differ */
	u32 weight;
	u32 id;
};

struct ps_slots {
	u32 epoch;	/* of the seed */
	u32 n;
	u16 owner[PS_SLOTS];	/* place in the class */
	struct {
		u32 id;
		u32 weight;
	} members[];
	/* u16 [n]: while it is made, those that the old one didn't have */
};

/* log2(1 + i / 64), times 2^26 */
static const u32 ps_log2_table[] = {
	0, 1501079, 2979239, 4435170, 5869532, 7282953,
	8676036, 10049359, 11403474, 12738911, 14056177, 15355762,
	16638134, 17903742, 19153019, 20386381, 21604229, 22806948,
	23994909, 25168470, 26327977, 27473761, 28606143, 29725435,
	30831934, 31925930, 33007703, 34077521, 35135648, 36182335,
	37217828, 38242363, 39256169, 40259469, 41252479, 42235408,
	43208457, 44171825, 45125701, 46070271, 47005714, 47932205,
	48849915, 49759007, 50659643, 51551977, 52436163, 53312346,
	54180672, 55041278, 55894303, 56739877, 57578130, 58409188,
	59233172, 60050204, 60860398, 61663868, 62460725, 63251078,
	64035030, 64812686, 65584145, 66349506, 67108864,
};

/*
 * -log2((@number + 1) / 2^32), times 2^26. It falls, or stays, as @number
 * rises, and is within 0.00005 of what it should be.
 */
static u32 ps_neg_log2(u32 number)
{
	u64 x = (u64)number + 1;
	u32 exp = fls64(x) - 1;
	/* What comes behind the first digit of x, which is a 1. */
	u32 rest = x << (32 - exp);
	u32 i = rest >> 26;
	u32 low = ps_log2_table[i];
	u64 rise = ps_log2_table[i + 1] - low;

	low += rise * (rest & (BIT(26) - 1)) >> 26;
	return ((32 - exp) << 26) - low;
}

/* From which the numbers of all members in a slot follow. */
static u64 ps_slot_seed(u32 slot)
{
	return (u64)ps_keyed_hash(slot, 0) << 32 | ps_keyed_hash(slot, 1);
}

/*
 * The seed is a SplitMix64 generator's (Steele, Lea and Flood 2014), the id
 * says which of its values it is: as cheap as it gets, and passes all tests of
 * randomness.
 */
static u32 ps_bid_number(u64 seed, u32 id)
{
	u64 x = seed + ((u64)id + 1) * 0x9e3779b97f4a7c15ULL;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return (x ^ x >> 31) >> 32;
}

static struct ps_bid ps_bid_make(u64 seed, u32 id, u32 weight, bool weighted)
{
	struct ps_bid bid = {
		.number = ps_bid_number(seed, id),
		.weight = weight,
		.id = id,
	};

	if (weighted)
		bid.cost = ps_neg_log2(bid.number);
	return bid;
}

/*
 * The number as a point between 0 and 1: -log(number) / weight is least with a
 * chance that goes with the weight. With the same weight that is the highest
 * number, without any logarithm. A total order, which doesn't depend on who is
 * compared with whom first.
 */
static bool ps_bid_beats(const struct ps_bid *a, const struct ps_bid *b)
{
	u64 cost_a = (u64)a->cost * b->weight;
	u64 cost_b = (u64)b->cost * a->weight;

	if (a->weight != b->weight && cost_a != cost_b)
		return cost_a < cost_b;
	if (a->number != b->number)
		return a->number > b->number;
	return a->id < b->id;
}

/* Without a table. */
static u32 ps_slot_scan(const struct ps_set *set, u32 n, u32 slot)
{
	bool weighted = READ_ONCE(set->weighted);
	u64 seed = ps_slot_seed(slot);
	struct ps_bid bid, best = { 0 };
	const struct ps_member *m;
	u32 i, owner = 0;

	n = ps_scan_size(n);
	for (i = 0; i < n; i++) {
		m = ps_set_member(set, i);
		bid = ps_bid_make(seed, READ_ONCE(m->id), READ_ONCE(m->weight),
				  weighted);
		if (!i || ps_bid_beats(&bid, &best)) {
			best = bid;
			owner = i;
		}
	}
	return owner;
}

static u32 ps_slot_owner(const struct ps_slots *slots, const struct ps_set *set,
			 u32 n, u32 hash)
{
	u32 slot = hash >> (32 - PS_SLOT_BITS);

	return likely(slots) ? slots->owner[slot] : ps_slot_scan(set, n, slot);
}

static u32 ps_consistent_pick(struct ps_group *group, const struct ps_set *set,
			      u32 n, const struct ps_flow *flow, u32 attempt)
{
	const struct ps_slots *slots = ps_index_of(group, &ps_policy_consistent,
						   n);
	u32 hash = ps_flow_hash(flow);
	u32 first, other;

	if (unlikely(slots && slots->epoch != ps_seed_epoch()))
		slots = NULL;
	first = ps_slot_owner(slots, set, n, hash);
	if (likely(!attempt))
		return first;
	hash = ps_keyed_hash(hash, attempt);
	other = ps_slot_owner(slots, set, n, hash);
	return other != first ? other : ps_any_other(n, first, hash);
}

static size_t ps_consistent_index_size(u32 n)
{
	return sizeof(struct ps_slots) +
	       n * (sizeof(((struct ps_slots *)NULL)->members[0]) + sizeof(u16));
}

static u16 *ps_slots_fresh(struct ps_slots *slots)
{
	return (u16 *)&slots->members[slots->n];
}

/* Where the member with @id is in a table, or its n. */
static u32 ps_slots_find(const struct ps_slots *slots, u32 id)
{
	u32 low = 0, high = slots->n, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (slots->members[mid].id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low < slots->n && slots->members[low].id == id ? low : slots->n;
}

/* The member that @old has at @i, if it is in @slots as it was, or n. */
static u32 ps_slots_still(const struct ps_slots *slots,
			  const struct ps_slots *old, u32 i)
{
	u32 now = ps_slots_find(slots, old->members[i].id);

	if (now < slots->n &&
	    slots->members[now].weight != old->members[i].weight)
		now = slots->n;
	return now;
}

/* Returns how many members are new, or have another weight, since @old. */
static u32 ps_slots_list_fresh(struct ps_slots *slots,
			       const struct ps_slots *old)
{
	u16 *fresh = ps_slots_fresh(slots);
	u32 i, was, count = 0;

	for (i = 0; i < slots->n; i++) {
		was = ps_slots_find(old, slots->members[i].id);
		if (was == old->n ||
		    old->members[was].weight != slots->members[i].weight)
			fresh[count++] = i;
	}
	return count;
}

/*
 * Who owns a slot, of @owner (or n: nobody) and @count members: those listed
 * in @list, or the first ones if it is NULL.
 */
static u32 ps_slots_compare(const struct ps_slots *slots, u64 seed,
			    bool weighted, u32 owner, const u16 *list,
			    u32 count)
{
	struct ps_bid bid, best = { 0 };
	u32 i, k;

	if (owner < slots->n)
		best = ps_bid_make(seed, slots->members[owner].id,
				   slots->members[owner].weight, weighted);
	for (k = 0; k < count; k++) {
		i = list ? list[k] : k;
		bid = ps_bid_make(seed, slots->members[i].id,
				  slots->members[i].weight, weighted);
		if (owner == slots->n || ps_bid_beats(&bid, &best)) {
			best = bid;
			owner = i;
		}
	}
	return owner;
}

static void ps_consistent_index_build(void *index,
				      const struct ps_trait *traits, u32 n,
				      const void *before)
{
	const struct ps_slots *old = before;
	struct ps_slots *slots = index;
	u32 slot, i, owner, fresh = 0;
	bool weighted = false;
	u64 seed;

	/* First: if the seed changes from now on, this isn't used. */
	slots->epoch = ps_seed_epoch();
	slots->n = n;
	for (i = 0; i < n; i++) {
		slots->members[i].id = traits[i].id;
		slots->members[i].weight = traits[i].weight;
		weighted |= traits[i].weight != traits[0].weight;
	}
	if (old && old->epoch != slots->epoch)
		old = NULL;
	if (old)
		fresh = ps_slots_list_fresh(slots, old);

	for (slot = 0; slot < PS_SLOTS; slot++) {
		seed = ps_slot_seed(slot);
		owner = old ? ps_slots_still(slots, old, old->owner[slot]) : n;
		/* An owner that is as it was has beaten all but new ones. */
		if (owner < n)
			owner = ps_slots_compare(slots, seed, weighted, owner,
						 ps_slots_fresh(slots), fresh);
		else
			owner = ps_slots_compare(slots, seed, weighted, n,
						 NULL, n);
		slots->owner[slot] = owner;
		cond_resched();
	}
}

const struct ps_policy ps_policy_consistent = {
	.name = "consistent",
	.follows_flow = true,
	.pick = ps_consistent_pick,
	.index_size = ps_consistent_index_size,
	.index_build = ps_consistent_index_build,
};
