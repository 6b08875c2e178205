/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A group's members that policies choose from, in an array that is changed in
 * place. Pure: also built in user space, by the unit tests.
 *
 * The entries are in the order of the members' ranks, and within a rank in that
 * of their ids. Members of the best rank there is are the class that policies
 * choose from: a prefix of the array. So a standby takes over in the moment in
 * which the last active member goes, whatever context that happens in, and
 * what a policy sees depends on who is there, not on who came first.
 */
#ifndef PS_SET_H
#define PS_SET_H

#include <linux/rcupdate.h>
#include <linux/types.h>

struct ps_member;

/* In which members are taken, best first; see ps_rank(). */
enum ps_rank {
	PS_RANK_ACTIVE,
	PS_RANK_ACTIVE_OTHER,	/* not of the working generation */
	PS_RANK_STANDBY,
	PS_RANK_STANDBY_OTHER,
	PS_RANKS,
	PS_RANK_NONE = PS_RANKS,	/* not in the set */
};

struct ps_set {
	struct rcu_head rcu;
	u32 n;			/* entries of the class */
	bool weighted;		/* weights in the class differ */
	u32 all;		/* entries of any rank; readers: ps_set_all() */
	/* Under ps_lock. */
	u32 cap;
	u32 ranks[PS_RANKS];	/* entries of each */
	u32 *upto;		/* [cap]: sum of the class' weights up to each */
	struct ps_member __rcu *m[];
};

struct ps_set *ps_set_alloc(u32 cap, gfp_t gfp);
void ps_set_insert(struct ps_set *set, struct ps_member *m, u8 rank);
void ps_set_remove(struct ps_set *set, struct ps_member *m);
void ps_set_move(struct ps_set *set, const struct ps_set *from);
void ps_set_append(struct ps_set *set, struct ps_member *m, u8 rank);
void ps_set_publish(struct ps_set *set);

/**
 * ps_rank() - where a member stands
 * @state: enum portsteer_state
 * @generation: the member's
 * @working: the group's working generation, -1: all
 *
 * A standby is picked only while no member is active, of whatever generation.
 * Context: any.
 */
static inline u8 ps_rank(u8 state, u32 generation, s32 working)
{
	bool other = working >= 0 && generation != (u32)working;

	switch (state) {
	case PORTSTEER_ACTIVE:
		return other ? PS_RANK_ACTIVE_OTHER : PS_RANK_ACTIVE;
	case PORTSTEER_STANDBY:
		return other ? PS_RANK_STANDBY_OTHER : PS_RANK_STANDBY;
	default:
		return PS_RANK_NONE;
	}
}

/* How many entries of @set a policy may choose from. Context: any, RCU. */
static inline u32 ps_set_count(const struct ps_set *set)
{
	/* Pairs with ps_set_publish(). */
	return smp_load_acquire(&set->n);
}

/* How many entries of any rank a reader may use. Context: any, RCU. */
static inline u32 ps_set_all(const struct ps_set *set)
{
	/* Pairs with smp_store_release() in ps_set_insert(). */
	return smp_load_acquire(&set->all);
}

static inline struct ps_member *ps_set_member(const struct ps_set *set, u32 i)
{
	return rcu_dereference_raw(set->m[i]);
}

/**
 * ps_set_total() - sum of the weights of a class whose weights differ
 * @set: with @weighted
 * @n: what ps_set_count() said of it, at least 1
 *
 * Context: any, RCU.
 */
static inline u32 ps_set_total(const struct ps_set *set, u32 n)
{
	return READ_ONCE(set->upto[n - 1]) ?: 1;
}

/**
 * ps_set_at() - the entry that has a point of the weights laid end to end
 * @set: with @weighted
 * @n: what ps_set_count() said of it, at least 1
 * @point: below ps_set_total()
 *
 * While the set is being changed it may be a neighbour's.
 * Context: any, RCU.
 * Return: index below @n.
 */
static inline u32 ps_set_at(const struct ps_set *set, u32 n, u32 point)
{
	u32 low = 0, high = n - 1, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (point < READ_ONCE(set->upto[mid]))
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

#endif /* PS_SET_H */
