/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The lookup of a member by its socket, inline for the packet path.
 */
#ifndef PS_MEMBER_TABLE_H
#define PS_MEMBER_TABLE_H

#include <linux/hash.h>
#include <linux/rhashtable.h>

#include "group.h"

extern struct rhashtable ps_members;

/* Kernel addresses that no user chooses: no keyed hash is needed. */
static inline u32 ps_member_hash(const void *data, u32 len, u32 seed)
{
	return hash_ptr(*(void *const *)data, 32);
}

static inline int ps_member_cmp(struct rhashtable_compare_arg *arg,
				const void *obj)
{
	return ((const struct ps_member *)obj)->sk !=
	       *(struct sock *const *)arg->key;
}

static const struct rhashtable_params ps_member_params = {
	.key_len = sizeof(struct sock *),
	.key_offset = offsetof(struct ps_member, sk),
	.head_offset = offsetof(struct ps_member, node),
	.hashfn = ps_member_hash,
	.obj_cmpfn = ps_member_cmp,
	.automatic_shrinking = true,
};

/**
 * ps_member_find() - what we know of a socket
 * @sk: any address, need not be a socket's any more
 *
 * Context: any, in an RCU read section; good until its end.
 * Return: NULL if nothing.
 */
static inline struct ps_member *ps_member_find(const struct sock *sk)
{
	return rhashtable_lookup(&ps_members, &sk, ps_member_params);
}

/* Do we know anything of it? For callers that lock only then. Context: any. */
static inline bool ps_member_known(const struct sock *sk)
{
	bool known;

	rcu_read_lock();
	known = ps_member_find(sk);
	rcu_read_unlock();
	return known;
}

/* ps_member_find() for writers. Context: any, under ps_lock until let go. */
static inline struct ps_member *ps_member_find_locked(const struct sock *sk)
{
	lockdep_assert_held(&ps_lock);
	return rhashtable_lookup_fast(&ps_members, &sk, ps_member_params);
}

#endif /* PS_MEMBER_TABLE_H */
