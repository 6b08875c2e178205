/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a policy has worked out about a group's members, off the packet path.
 */
#ifndef PS_INDEX_H
#define PS_INDEX_H

#include <linux/atomic.h>
#include <linux/rcupdate.h>

#include "group.h"
#include "policy.h"

struct ps_index {
	struct rcu_head rcu;
	const struct ps_policy *policy;
	u32 version;	/* of the group, when its members were as in here */
	u32 n;
	u64 data[];	/* the policy's */
};

/**
 * ps_index_of() - the index of a group, if it is up to date
 * @g: the group
 * @policy: whose
 * @n: members of the set that it is to be used on
 *
 * Context: any, RCU.
 * Return: NULL if there is none; entries in it are below @n.
 */
static inline const void *ps_index_of(const struct ps_group *g,
				      const struct ps_policy *policy, u32 n)
{
	/* Pairs with rcu_assign_pointer() in ps_index_update(). */
	const struct ps_index *index = rcu_dereference(g->index);

	if (unlikely(!index || index->policy != policy || index->n != n ||
		     index->version != (u32)atomic_read(&g->version)))
		return NULL;
	return index->data;
}

int ps_index_update(struct ps_group *g);

#endif /* PS_INDEX_H */
