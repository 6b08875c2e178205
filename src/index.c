// SPDX-License-Identifier: GPL-2.0
/*
 * Builds what a policy wants to have worked out about a group's members.
 */
#include <linux/mm.h>
#include <linux/slab.h>

#include "compat/memcg.h"
#include "index.h"
#include "set.h"

static struct ps_index *ps_index_protected(const struct ps_group *g)
{
	return rcu_dereference_protected(g->index, lockdep_is_held(&ps_lock));
}

/* The members of the class as they are now, and what version that is. */
static struct ps_trait *ps_index_traits(struct ps_group *g, u32 *n,
					u32 *version)
{
	struct ps_trait *traits = NULL;
	const struct ps_member *m;
	const struct ps_set *set;
	u32 i, room = 0;

	for (;;) {
		spin_lock_bh(&ps_lock);
		set = rcu_dereference_protected(g->set,
						lockdep_is_held(&ps_lock));
		*n = set->n;
		if (traits && room >= *n)
			break;
		room = set->cap;
		spin_unlock_bh(&ps_lock);
		kvfree(traits);
		traits = kvmalloc_array(room, sizeof(*traits), GFP_KERNEL);
		if (!traits)
			return NULL;
	}
	/* Before what it is the version of: see ps_member_ran(). */
	*version = atomic_read_acquire(&g->version);
	for (i = 0; i < *n; i++) {
		m = ps_set_member(set, i);
		traits[i] = (struct ps_trait){
			.id = m->id,
			.weight = m->weight,
			.cpu = ps_member_cpu(m),
			.rx_queue = m->rx_queue,
		};
	}
	spin_unlock_bh(&ps_lock);
	return traits;
}

/* Puts @fresh, which may be NULL, in the place of the group's index. */
static void ps_index_replace(struct ps_group *g, struct ps_index *fresh)
{
	struct ps_index *old;

	spin_lock_bh(&ps_lock);
	old = ps_index_protected(g);
	/* Pairs with rcu_dereference() in ps_index_of(): filled before seen. */
	rcu_assign_pointer(g->index, fresh);
	spin_unlock_bh(&ps_lock);
	if (old)
		kvfree_rcu(old, rcu);
}

static struct ps_index *ps_index_build(const struct ps_policy *policy,
				       const struct ps_index *old,
				       const struct ps_trait *traits, u32 n)
{
	struct ps_index *index;

	/* It's asked for again later: nobody is to be killed for it. */
	index = kvzalloc(sizeof(*index) + policy->index_size(n),
			 GFP_KERNEL_ACCOUNT | __GFP_NOWARN |
			 __GFP_RETRY_MAYFAIL);
	if (!index)
		return NULL;
	index->policy = policy;
	index->n = n;
	policy->index_build(index->data, traits, n,
			    old && old->policy == policy ? old->data : NULL);
	return index;
}

/**
 * ps_index_update() - bring the index of a group up to date
 * @g: the group
 *
 * Context: process, may sleep; not twice at a time for a group.
 * Return: 0 or -ENOMEM, and then the policy goes on without an index.
 */
int ps_index_update(struct ps_group *g)
{
	const struct ps_policy *policy;
	const struct ps_index *old;
	struct ps_index *index;
	struct ps_trait *traits;
	struct ps_memcg_scope scope;
	u32 n, version;
	int err = 0;

	/* Only we replace them. */
	old = rcu_dereference_protected(g->index, true);
	rcu_read_lock();
	policy = rcu_dereference(g->policy);
	rcu_read_unlock();
	if (!policy->index_size) {
		if (old)
			ps_index_replace(g, NULL);
		return 0;
	}
	if (old && old->policy == policy &&
	    old->version == (u32)atomic_read(&g->version))
		return 0;
	traits = ps_index_traits(g, &n, &version);
	if (!traits)
		return -ENOMEM;
	if (n) {
		ps_memcg_enter(&scope, g->memcg);
		index = ps_index_build(policy, old, traits, n);
		ps_memcg_exit(&scope);
		if (index) {
			index->version = version;
			ps_index_replace(g, index);
		} else {
			err = -ENOMEM;
		}
	}
	kvfree(traits);
	return err;
}
