// SPDX-License-Identifier: GPL-2.0
/*
 * What a change of a member, or of its group, makes of the set that policies
 * choose from.
 */
#include <linux/mm.h>

#include "group.h"
#include "rank.h"
#include "set.h"
#include "sysfs.h"

static struct ps_set *ps_rank_set(const struct ps_group *g)
{
	return rcu_dereference_protected(g->set, lockdep_is_held(&ps_lock));
}

static u8 ps_rank_of(const struct ps_group *g, const struct ps_member *m)
{
	if (!m->candidate)
		return PS_RANK_NONE;
	return ps_rank(m->state, m->generation, g->working_generation);
}

/* Before the set changes: no index made for what it was is used any more. */
static void ps_rank_outdate(struct ps_group *g)
{
	lockdep_assert_held(&ps_lock);
	atomic_inc(&g->version);
}

/**
 * ps_group_place() - put a member where it belongs now
 * @m: in a group
 *
 * Context: any, under ps_lock.
 */
void ps_group_place(struct ps_member *m)
{
	struct ps_group *g = ps_member_group(m);
	struct ps_set *set = ps_rank_set(g);
	u8 rank = ps_rank_of(g, m);

	lockdep_assert_held(&ps_lock);
	if (rank == m->rank)
		return;
	ps_rank_outdate(g);
	if (m->rank != PS_RANK_NONE)
		ps_set_remove(set, m);
	if (rank != PS_RANK_NONE && !WARN_ON_ONCE(set->all >= set->cap))
		ps_set_insert(set, m, rank);
	ps_group_changed(g);
}

/**
 * ps_group_reweigh() - a member's weight, CPU or RX queue has changed
 * @m: in a group
 *
 * Context: any, under ps_lock.
 */
void ps_group_reweigh(struct ps_member *m)
{
	struct ps_group *g = ps_member_group(m);

	lockdep_assert_held(&ps_lock);
	ps_rank_outdate(g);
	if (m->rank != PS_RANK_NONE)
		ps_set_publish(ps_rank_set(g));
	ps_group_changed(g);
}

/**
 * ps_group_renumber() - give a member another id
 * @m: in a group
 * @id: 0..PORTSTEER_MAX_ID
 *
 * Context: any, under ps_lock.
 * Return: 0, -EEXIST if a member of the group has it, -ENOMEM; then nothing has
 * changed.
 */
int ps_group_renumber(struct ps_member *m, u32 id)
{
	struct ps_group *g = ps_member_group(m);
	int err;

	lockdep_assert_held(&ps_lock);
	if (m->id == id)
		return 0;
	err = xa_insert(&g->ids, id, m, GFP_ATOMIC | __GFP_NOWARN);
	if (err)
		return err == -EBUSY ? -EEXIST : err;
	xa_erase(&g->ids, m->id);
	ps_sysfs_left(g, m);
	ps_rank_outdate(g);
	/* Entries are in the order of their ids. */
	if (m->rank != PS_RANK_NONE)
		ps_set_remove(ps_rank_set(g), m);
	WRITE_ONCE(m->id, id);
	ps_sysfs_enrolled(g, m);
	ps_group_place(m);
	ps_group_changed(g);
	return 0;
}

/*
 * Appends the members of @old that have a rank now. A generation makes a member
 * change between two neighbouring ranks only, so these are all to be looked at;
 * in each of them members are in the order of their ids.
 */
static void ps_rank_append(struct ps_group *g, struct ps_set *fresh,
			   const struct ps_set *old, u8 rank)
{
	u8 one = rank < PS_RANK_STANDBY ? PS_RANK_ACTIVE : PS_RANK_STANDBY;
	u32 i = 0, i_end, j, j_end;
	struct ps_member *m;
	u8 before;

	for (before = 0; before < one; before++)
		i += old->ranks[before];
	i_end = i + old->ranks[one];
	j = i_end;
	j_end = j + old->ranks[one + 1];
	while (i < i_end || j < j_end) {
		if (j == j_end ||
		    (i < i_end && ps_set_member(old, i)->id <
				  ps_set_member(old, j)->id))
			m = ps_set_member(old, i++);
		else
			m = ps_set_member(old, j++);
		if (ps_rank_of(g, m) == rank)
			ps_set_append(fresh, m, rank);
	}
}

/* Fills a set with the members of another by their ranks as they are now. */
static void ps_rank_fill(struct ps_group *g, struct ps_set *fresh,
			 const struct ps_set *old)
{
	u8 rank;

	for (rank = 0; rank < PS_RANKS; rank++)
		ps_rank_append(g, fresh, old, rank);
	ps_set_publish(fresh);
}

/**
 * ps_group_set_working_generation() - whom new connections and flows go to
 * @g: the group; the caller holds a reference
 * @generation: -1: all
 *
 * At once: the members that are chosen from are replaced as a whole.
 *
 * Context: process, may sleep.
 * Return: 0, -ENOMEM, -ENOENT if the group has disbanded.
 */
int ps_group_set_working_generation(struct ps_group *g, s32 generation)
{
	struct ps_set *fresh = NULL, *set;
	int err = 0;
	u32 cap;

	for (;;) {
		spin_lock_bh(&ps_lock);
		set = ps_rank_set(g);
		cap = set->cap;
		if (!g->members)
			err = -ENOENT;
		if (err || g->working_generation == generation)
			break;
		if (fresh && fresh->cap >= cap) {
			WRITE_ONCE(g->working_generation, generation);
			ps_rank_outdate(g);
			ps_rank_fill(g, fresh, set);
			/* Pairs with rcu_dereference() in lookup.c. */
			rcu_assign_pointer(g->set, fresh);
			fresh = NULL;
			kvfree_rcu(set, rcu);
			ps_group_changed(g);
			break;
		}
		spin_unlock_bh(&ps_lock);
		kvfree(fresh);
		fresh = ps_set_alloc(cap, GFP_KERNEL_ACCOUNT);
		if (!fresh)
			return -ENOMEM;
	}
	spin_unlock_bh(&ps_lock);
	kvfree(fresh);
	return err;
}
