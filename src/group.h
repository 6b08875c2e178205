/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The table: sockets that portsteer knows (members), and the groups they form.
 *
 * Readers are packets: RCU, no locks. Writers hold ps_lock. It is taken inside
 * the socket lock and inside the kernel's listener and UDP hash bucket locks;
 * nothing of the kernel's hash tables is touched under it.
 */
#ifndef PS_GROUP_H
#define PS_GROUP_H

#include <linux/atomic.h>
#include <linux/in6.h>
#include <linux/list.h>
#include <linux/rhashtable.h>
#include <linux/spinlock.h>
#include <linux/uidgid.h>
#include <linux/xarray.h>
#include <net/sock.h>
#include <net/tcp_states.h>

#include "policy.h"

extern spinlock_t ps_lock;

/* What the kernel groups: sockets alike in all of this share a port. */
struct ps_key {
	struct net *net;	/* kept alive by the members' sockets */
	struct in6_addr addr;	/* IPv4: in s6_addr32[0], the others 0 */
	int dev;		/* bound device, 0: none */
	kuid_t uid;
	u16 port;		/* host order */
	u16 family;
	u8 proto;
	u8 v6only;
};

/*
 * The selectable members, in an array that is changed in place: @n counts the
 * entries that readers may use.
 */
struct ps_set {
	struct rcu_head rcu;
	u32 n;
	u32 cap;
	struct ps_member __rcu *m[];
};

struct ps_group {
	/* Read by every packet. */
	const struct ps_policy __rcu *policy;
	struct ps_set __rcu *set;
	struct ps_key key;
	bool explicit_policy;	/* chosen by a member or a rule */
	bool conns;		/* has, or had, connect()ed UDP sockets */

	/* Written by packets. */
	atomic_t turn ____cacheline_aligned_in_smp;
	atomic64_t fallbacks;

	/* Written under ps_lock. */
	u64 picked_gone;	/* by members that have left */
	u32 members;
	u32 twin;		/* 2, 3...: the name is taken by others; 1: not */
	struct xarray ids;	/* of members, by id */
	struct hlist_node port_node;	/* RCU */
	struct list_head net_node;	/* RCU */
	struct rcu_head rcu;
};

#define PS_NO_SLOT U32_MAX
#define PS_NO_ID U32_MAX

/*
 * A socket that portsteer knows: a member of a group, or one that only has
 * wishes (@group is NULL). Holds a reference to the socket until a grace period
 * after it has gone from the table, so that @sk is good for every reader, and
 * would be even if a leave were missed.
 */
struct ps_member {
	struct sock *sk;
	struct ps_group __rcu *group;
	struct rhash_head node;
	atomic64_t picked;	/* a listener's own lock is hotter than this */

	/* Under ps_lock. */
	u32 slot;		/* index in the group's set, or PS_NO_SLOT */
	u32 id;			/* while in a group */
	u32 wish_id;		/* or PS_NO_ID */
	const struct ps_policy *wish_policy;	/* or NULL */
	bool wish_join;
	bool gave_reuseport;	/* SO_REUSEPORT is of our making */
	bool by_rule;
	bool busy;		/* an option is being set: not idle */
	struct rcu_head rcu;
};

/* Why and how a socket joins. */
struct ps_join {
	bool by_rule;
	bool bound_before;	/* JOIN of a bound socket: check its uid */
	const struct ps_policy *policy;	/* the rule's, or NULL */
};

/* member.c */
struct ps_member *ps_member_get(struct sock *sk, gfp_t gfp);
void ps_member_drop(struct sock *sk);
void ps_member_drop_all(const struct net *net);
void ps_member_drop_if_idle(struct ps_member *m);
int ps_member_set_id(struct ps_member *m, u32 id);
u32 ps_member_backlog(const struct ps_member *m);
int ps_members_init(void);
void ps_members_exit(void);

/* group.c */
void ps_key_of(struct ps_key *key, const struct sock *sk);
int ps_group_join(struct sock *sk, const struct ps_join *how, gfp_t gfp);
void ps_group_leave(struct ps_member *m);
bool ps_group_fits(const struct ps_member *m);
void ps_group_select(struct ps_member *m);
void ps_group_unselect(struct ps_member *m);
void ps_group_set_policy(struct ps_group *g, const struct ps_policy *policy);
void ps_group_set_policy_on_port(const struct net *net, u8 proto, u16 port,
				 const struct ps_policy *policy);
void ps_group_release_rule(const struct net *net, u8 proto, u16 port);
u32 ps_group_selectable(const struct ps_group *g);
u64 ps_group_picked(struct ps_group *g);

/* The group @m is in; for writers. */
static inline struct ps_group *ps_member_group(const struct ps_member *m)
{
	return rcu_dereference_protected(m->group, lockdep_is_held(&ps_lock));
}

/**
 * ps_member_usable() - can the socket take what @g's policy gives it?
 * @m: a member
 * @g: its group
 *
 * What may have changed without our being told: a TCP member that doesn't
 * listen (any more) or isn't hashed yet, a UDP member that was connect()ed or
 * unbound, a socket that was bound to another device after bind().
 *
 * Context: any, RCU.
 */
static inline bool ps_member_usable(const struct ps_member *m,
				    const struct ps_group *g)
{
	const struct sock *sk = m->sk;
	int state = READ_ONCE(sk->sk_state);

	if (g->key.proto == IPPROTO_TCP ? state != TCP_LISTEN :
					  state == TCP_ESTABLISHED)
		return false;
	return !hlist_unhashed_lockless(&sk->sk_node) &&
	       READ_ONCE(sk->sk_bound_dev_if) == g->key.dev &&
	       READ_ONCE(sk->sk_num) == g->key.port;
}

/* How many entries of @set a reader may use. */
static inline u32 ps_set_count(const struct ps_set *set)
{
	/* Pairs with ps_group_select() and ps_group_unselect(). */
	return smp_load_acquire(&set->n);
}

static inline struct ps_member *ps_set_member(const struct ps_set *set, u32 i)
{
	return rcu_dereference_check(set->m[i], lockdep_is_held(&ps_lock));
}

/* ports.c: which ports have a group, for the callbacks of the lookups */
extern unsigned long ps_ports_tcp[];
extern unsigned long ps_ports_udp[];

static inline unsigned long *ps_ports(u8 proto)
{
	return proto == IPPROTO_TCP ? ps_ports_tcp : ps_ports_udp;
}

#endif /* PS_GROUP_H */
