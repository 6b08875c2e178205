// SPDX-License-Identifier: GPL-2.0
/*
 * The table of known sockets, by address of the socket.
 */
#include <linux/hash.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <net/inet_sock.h>

#include "group.h"
#include "hook.h"
#include "member_table.h"
#include "migrate.h"

struct rhashtable ps_members;

static void ps_member_free_rcu(struct rcu_head *head)
{
	struct ps_member *m = container_of(head, struct ps_member, rcu);

	sock_put(m->sk);
	if (m->home)
		ps_group_put(m->home);
	kfree_sensitive(m);
}

/**
 * ps_member_unlink() - forget a socket, its membership and its wishes
 * @m: perhaps not in the table any more
 *
 * Context: any, under ps_lock.
 */
void ps_member_unlink(struct ps_member *m)
{
	lockdep_assert_held(&ps_lock);
	/* Whoever succeeds in that disposes of it. */
	if (rhashtable_remove_fast(&ps_members, &m->node, ps_member_params))
		return;
	ps_group_leave(m);
	list_del_init(&m->gone_node);
	/* Readers that found it may use it, and the socket, a little longer. */
	call_rcu(&m->rcu, ps_member_free_rcu);
	ps_hooks_put();
}

/**
 * ps_member_reset() - forget what was set for a socket, and what it wished
 * @m: in no group
 *
 * Context: any, under ps_lock once it is in the table.
 */
void ps_member_reset(struct ps_member *m)
{
	m->weight = 1;
	m->cpu = -1;
	m->rx_queue = -1;
	m->state = PORTSTEER_ACTIVE;
	m->generation = 0;
	m->wishes = 0;
	m->wish_id = PS_NO_ID;
	m->wish_policy = NULL;
	memzero_explicit(&m->secret, sizeof(m->secret));
}

/**
 * ps_member_get() - what we know of a socket, made if need be
 * @sk: the caller keeps it from being closed and holds its lock
 * @gfp: for the allocation
 *
 * Context: process; atomic if @gfp is. The hooks have to be armed, or closing
 * the socket would go unseen.
 * Return: the member, or an ERR_PTR(): -ENOMEM, -ESHUTDOWN.
 */
struct ps_member *ps_member_get(struct sock *sk, gfp_t gfp)
{
	struct ps_member *m;

	rcu_read_lock();
	m = ps_member_find(sk);
	rcu_read_unlock();
	if (m)
		return m;

	if (!ps_hooks_get_armed())
		return ERR_PTR(-ESHUTDOWN);

	m = kzalloc(sizeof(*m), gfp);
	if (!m)
		goto no_memory;
	m->sk = sk;
	m->id = PS_NO_ID;
	m->rank = PS_RANK_NONE;
	m->ran_on = -1;
	INIT_LIST_HEAD(&m->gone_node);
	ps_member_reset(m);
	atomic64_set(&m->picked, 0);
	atomic64_set(&m->migrated_in, 0);
	atomic64_set(&m->migrated_out, 0);

	sock_hold(sk);
	spin_lock_bh(&ps_lock);
	/* Pairs with the RCU lookups: publishes the initialised member. */
	if (rhashtable_insert_fast(&ps_members, &m->node, ps_member_params)) {
		spin_unlock_bh(&ps_lock);
		sock_put(sk);
		kfree(m);
		goto no_memory;
	}
	spin_unlock_bh(&ps_lock);
	return m;

no_memory:
	ps_hooks_put();
	return ERR_PTR(-ENOMEM);
}

/**
 * ps_member_drop() - forget a socket, its membership and its wishes
 * @sk: need not be known
 *
 * Context: any, also softirq and under the kernel's hash bucket locks.
 */
void ps_member_drop(struct sock *sk)
{
	struct ps_member *m;

	/* Every close() on the machine comes here: most are strangers. */
	if (!ps_member_known(sk))
		return;

	spin_lock_bh(&ps_lock);
	m = ps_member_find_locked(sk);
	if (m)
		ps_member_unlink(m);
	spin_unlock_bh(&ps_lock);
}

/**
 * ps_member_drop_if_idle() - forget a socket that has no group and no wish
 * @m: in the table
 *
 * Context: any, under ps_lock.
 */
void ps_member_drop_if_idle(struct ps_member *m)
{
	lockdep_assert_held(&ps_lock);
	if (!m->busy && !m->gone && !m->left && !ps_member_group(m) &&
	    !m->wish_join && !m->wishes && !m->wish_policy &&
	    m->wish_id == PS_NO_ID && !m->secret.len)
		ps_member_unlink(m);
}

/* Calls @fn with each member, under RCU. Context: process, without ps_lock. */
static void ps_members_each(void (*fn)(struct ps_member *m, const void *arg),
			    const void *arg)
{
	struct rhashtable_iter iter;
	struct ps_member *m;

	rhashtable_walk_enter(&ps_members, &iter);
	rhashtable_walk_start(&iter);
	while ((m = rhashtable_walk_next(&iter))) {
		/* -EAGAIN: the table was resized, the walk begins anew. */
		if (!IS_ERR(m))
			fn(m, arg);
	}
	rhashtable_walk_stop(&iter);
	rhashtable_walk_exit(&iter);
}

struct ps_member_port {
	const struct net *net;
	u8 proto;
	u16 port;
};

static void ps_member_readmit(struct ps_member *m, const void *arg)
{
	const struct ps_member_port *of = arg;

	if (!net_eq(sock_net(m->sk), of->net) ||
	    m->sk->sk_protocol != of->proto ||
	    READ_ONCE(m->sk->sk_num) != of->port)
		return;
	spin_lock_bh(&ps_lock);
	if (m->left) {
		WRITE_ONCE(m->left, false);
		ps_member_drop_if_idle(m);
	}
	spin_unlock_bh(&ps_lock);
}

/**
 * ps_member_rule_gone() - let a rule to come have the sockets that left this one
 * @net: namespace
 * @proto: IPPROTO_TCP or IPPROTO_UDP
 * @port: host order
 *
 * When ps_rule_find() doesn't find the rule any more: who leaves from then on
 * asks that under ps_lock.
 *
 * Context: process, without ps_lock.
 */
void ps_member_rule_gone(const struct net *net, u8 proto, u16 port)
{
	const struct ps_member_port of = {
		.net = net,
		.proto = proto,
		.port = port,
	};

	ps_members_each(ps_member_readmit, &of);
}

static void ps_member_drop_of(struct ps_member *m, const void *net)
{
	if (net && !net_eq(sock_net(m->sk), net))
		return;
	spin_lock_bh(&ps_lock);
	ps_member_unlink(m);
	spin_unlock_bh(&ps_lock);
}

/**
 * ps_member_drop_all() - forget all sockets of a namespace, or of all
 * @net: the namespace, or NULL for all
 *
 * For unloading, and for a namespace's end, when nobody adds any.
 * Context: process, may sleep.
 */
void ps_member_drop_all(const struct net *net)
{
	ps_members_each(ps_member_drop_of, net);
}

/**
 * ps_member_backlog() - connections to be accepted, or bytes queued for UDP
 * @m: a member
 *
 * Context: any, RCU.
 */
u32 ps_member_backlog(const struct ps_member *m)
{
	const struct sock *sk = m->sk;

	if (sk->sk_protocol == IPPROTO_UDP)
		return sk_rmem_alloc_get(sk);
	return READ_ONCE(sk->sk_state) == TCP_LISTEN ?
	       READ_ONCE(sk->sk_ack_backlog) : 0;
}

int ps_members_init(void)
{
	return rhashtable_init(&ps_members, &ps_member_params);
}

/* At the end, when nobody adds any. Context: process, may sleep. */
void ps_members_forget(void)
{
	/* A walk may miss some when the table is resized under it. */
	while (atomic_read(&ps_members.nelems)) {
		ps_member_drop_all(NULL);
		cond_resched();
	}
	ps_gone_exit();
}

/* After what may still have held a group. Context: process, may sleep. */
void ps_members_exit(void)
{
	/* Members and groups are freed by RCU callbacks, which are our code. */
	rcu_barrier();
	rhashtable_destroy(&ps_members);
}
