// SPDX-License-Identifier: GPL-2.0
/*
 * The array of the members that policies choose from.
 *
 * Readers (packets) may see a change half done: a member twice, or not, or one
 * that has just left the class. Every entry below the count that they have read
 * is of a member that was in the group when they began, so it isn't freed under
 * them. Who has to be sure that a member gets nothing any more waits for a grace
 * period.
 */
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/slab.h>

#include "group.h"
#include "set.h"

/**
 * ps_set_alloc() - an empty set
 * @cap: how many members it has room for
 * @gfp: if it doesn't allow to wait, a large one may well not be had
 *
 * Context: any that @gfp is for.
 * Return: to be freed by kvfree() or kvfree_rcu(); NULL: no memory.
 */
struct ps_set *ps_set_alloc(u32 cap, gfp_t gfp)
{
	size_t entry = sizeof(((struct ps_set *)NULL)->m[0]) + sizeof(u32);
	size_t size = sizeof(struct ps_set) + cap * entry;
	struct ps_set *set;

	/* kvmalloc() can't do atomic. */
	set = gfpflags_allow_blocking(gfp) ? kvzalloc(size, gfp) :
					     kzalloc(size, gfp);
	if (!set)
		return NULL;
	set->cap = cap;
	set->upto = (u32 *)&set->m[cap];
	return set;
}

static struct ps_member *ps_set_entry(const struct ps_set *set, u32 i)
{
	return rcu_dereference_protected(set->m[i], 1);
}

/* Where a member of @rank with this id is, or has to come. */
static u32 ps_set_place(const struct ps_set *set, u8 rank, u32 id)
{
	u32 low = 0, high, mid;
	u8 r;

	for (r = 0; r < rank; r++)
		low += set->ranks[r];
	high = low + set->ranks[rank];
	while (low < high) {
		mid = low + (high - low) / 2;
		if (ps_set_entry(set, mid)->id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The best rank that has members. */
static u8 ps_set_class(const struct ps_set *set)
{
	u8 class = PS_RANK_ACTIVE;

	while (class < PS_RANKS - 1 && !set->ranks[class])
		class++;
	return class;
}

/* Sums up the weights of the class' first @n entries. */
static void ps_set_weigh(struct ps_set *set, u32 n)
{
	bool weighted = false;
	u32 i, sum = 0;

	for (i = 1; i < n && !weighted; i++)
		weighted = ps_set_entry(set, i)->weight !=
			   ps_set_entry(set, 0)->weight;
	/* Without, it's never read, and isn't kept up to date. */
	for (i = 0; weighted && i < n; i++) {
		/* 65536 members of a weight of 65535 at most: fits. */
		sum += ps_set_entry(set, i)->weight;
		WRITE_ONCE(set->upto[i], sum);
	}
	WRITE_ONCE(set->weighted, weighted);
}

/**
 * ps_set_publish() - let readers see what has been changed
 * @set: after ps_set_append(), or when a member's weight has changed
 *
 * Context: any, under ps_lock.
 */
void ps_set_publish(struct ps_set *set)
{
	u32 n = set->ranks[ps_set_class(set)];

	ps_set_weigh(set, n);
	/*
	 * Pairs with smp_load_acquire() in ps_set_count(): who sees the new
	 * count sees the entries and their weights.
	 */
	smp_store_release(&set->n, n);
}

/*
 * ps_set_publish() when a member of @rank has come, with @weight, or gone. Most
 * often no weights differ, and a large class needn't be looked at.
 */
static void ps_set_changed(struct ps_set *set, u8 rank, u32 weight)
{
	u8 class = ps_set_class(set);
	u32 n = set->ranks[class];

	if (rank > class)
		return;
	/* Of two or more, one at least was in the class before. */
	if (rank < class || set->weighted || n < 2 ||
	    ps_set_entry(set, 0)->weight != weight ||
	    ps_set_entry(set, 1)->weight != weight) {
		ps_set_publish(set);
		return;
	}
	/* Pairs with smp_load_acquire() in ps_set_count(), as above. */
	smp_store_release(&set->n, n);
}

/**
 * ps_set_insert() - put a member in its place
 * @set: has room
 * @m: not in the set, its id doesn't change while it is
 * @rank: not PS_RANK_NONE
 *
 * Context: any, under ps_lock.
 */
void ps_set_insert(struct ps_set *set, struct ps_member *m, u8 rank)
{
	u32 place = ps_set_place(set, rank, m->id);
	u32 i;

	for (i = set->all; i > place; i--)
		rcu_assign_pointer(set->m[i], ps_set_entry(set, i - 1));
	m->rank = rank;
	/* Publishes an initialised member to who has an old count. */
	rcu_assign_pointer(set->m[place], m);
	/*
	 * Pairs with smp_load_acquire() in ps_set_all(): the last entry may
	 * have been empty, or of a member freed long ago.
	 */
	smp_store_release(&set->all, set->all + 1);
	set->ranks[rank]++;
	ps_set_changed(set, rank, m->weight);
}

/**
 * ps_set_remove() - take a member out
 * @set: has it
 * @m: the member
 *
 * The last entry's old place stays filled, for readers that still use the old
 * count. Who comes after the grace period that frees the member never reads it:
 * the count is lowered before.
 *
 * Context: any, under ps_lock.
 */
void ps_set_remove(struct ps_set *set, struct ps_member *m)
{
	u8 rank = m->rank;
	u32 i = ps_set_place(set, rank, m->id);

	m->rank = PS_RANK_NONE;
	set->ranks[rank]--;
	if (i < set->n && set->n > 1) {
		/*
		 * First, so that no entry of the next class moves below the
		 * count. Pairs with smp_load_acquire() in ps_set_count().
		 */
		smp_store_release(&set->n, set->n - 1);
	}
	WRITE_ONCE(set->all, set->all - 1);
	for (; i < set->all; i++)
		rcu_assign_pointer(set->m[i], ps_set_entry(set, i + 1));
	ps_set_changed(set, rank, m->weight);
}

/**
 * ps_set_append() - fill a set that no reader sees yet
 * @set: has room, and no member of a worse rank
 * @m: has a higher id than those of its rank that are there
 * @rank: not PS_RANK_NONE
 *
 * To be followed by ps_set_publish().
 *
 * Context: any, under ps_lock.
 */
void ps_set_append(struct ps_set *set, struct ps_member *m, u8 rank)
{
	RCU_INIT_POINTER(set->m[set->all++], m);
	m->rank = rank;
	set->ranks[rank]++;
}

/**
 * ps_set_move() - fill a larger set with what a smaller one has
 * @set: empty, no reader sees it yet
 * @from: is left as it is, for its readers
 *
 * Context: any, under ps_lock.
 */
void ps_set_move(struct ps_set *set, const struct ps_set *from)
{
	memcpy(set->m, from->m, from->all * sizeof(from->m[0]));
	memcpy(set->ranks, from->ranks, sizeof(from->ranks));
	set->all = from->all;
	ps_set_publish(set);
}
