// SPDX-License-Identifier: GPL-2.0
/*
 * Brings sockets that are bound already into their groups: for a new rule, and
 * for those that bind() had no memory for.
 */
#include <linux/slab.h>
#include <net/sock_reuseport.h>

#include "adopt.h"
#include "compat/walk.h"
#include "group.h"
#include "member_table.h"
#include "rules.h"

/* When to look again for what a listen() under way has hidden from us. */
#define PS_ADOPT_DELAY HZ

#define PS_BATCH 64

struct ps_batch {
	struct net *net;
	const struct ps_rule *rule;
	u32 n;
	struct sock *sk[PS_BATCH];
};

static bool ps_batch_fits(const struct ps_batch *b, const struct sock *sk)
{
	return net_eq(sock_net(sk), b->net) &&
	       READ_ONCE(sk->sk_num) == b->rule->port;
}

static bool ps_batch_wants(const struct ps_batch *b, const struct sock *sk)
{
	const struct ps_member *m;

	if (!ps_batch_fits(b, sk))
		return false;
	/* A client's socket is bound to its port, too: leave it alone. */
	if (!sk->sk_reuseport &&
	    (!b->rule->force || READ_ONCE(sk->sk_state) == TCP_ESTABLISHED))
		return false;
	m = ps_member_find(sk);
	return !m || (!rcu_access_pointer(m->group) && !READ_ONCE(m->left));
}

static void ps_batch_take(struct ps_batch *b, struct sock *sk)
{
	if (ps_batch_wants(b, sk) && refcount_inc_not_zero(&sk->sk_refcnt))
		b->sk[b->n++] = sk;
}

/*
 * Of every native group that has strangers, takes the members in the order in
 * which they joined it, so that ids follow the order of bind(). Called in an
 * RCU read section for each hashed socket; true if the walk can end.
 */
static bool ps_batch_add(struct sock *sk, void *arg)
{
	const struct sock_reuseport *reuse;
	struct ps_batch *b = arg;
	u16 i, n;

	if (!ps_batch_fits(b, sk))
		return false;
	reuse = rcu_dereference(sk->sk_reuseport_cb);
	if (!reuse) {
		if (b->rule->force)
			ps_batch_take(b, sk);
		return b->n == PS_BATCH;
	}
	/* Once for each group is enough. */
	if (reuse->socks[0] != sk)
		return false;

	n = READ_ONCE(reuse->num_socks);
	/* Pairs with smp_wmb() in the kernel's reuseport_add_sock(). */
	smp_rmb();
	for (i = 0; i < n && b->n < PS_BATCH; i++)
		ps_batch_take(b, READ_ONCE(reuse->socks[i]));
	return b->n == PS_BATCH;
}

static bool ps_bound(const struct sock *sk, u16 port)
{
	return READ_ONCE(sk->sk_num) == port && !sk_unhashed(sk) &&
	       !sock_flag(sk, SOCK_DEAD);
}

/* Returns 0 if the socket is a member now. */
static int ps_adopt_sock(struct sock *sk, const struct ps_rule *rule)
{
	struct ps_join how = {};
	u16 port = rule->port;
	struct ps_member *m;
	int err = -ENOENT;

	ps_rule_join(rule, &how);
	lock_sock(sk);
	if (ps_bound(sk, port)) {
		m = ps_member_get(sk, GFP_KERNEL_ACCOUNT);
		if (IS_ERR(m))
			err = PTR_ERR(m);
		/* It has left since we saw it: ps_leave() holds the lock, too. */
		else if (!READ_ONCE(m->left))
			err = ps_group_join(sk, &how, GFP_KERNEL_ACCOUNT);
		/* From here on others of its user may bind the port, too. */
		if (!err && rule->force)
			sk->sk_reuseport = 1;
		/* Pairs with smp_mb() in hook_inet_release(). */
		smp_mb();
		if (err || !ps_bound(sk, port)) {
			spin_lock_bh(&ps_lock);
			m = ps_member_find_locked(sk);
			if (m)
				ps_member_drop_if_idle(m);
			spin_unlock_bh(&ps_lock);
			if (!err)
				ps_member_drop(sk);
		}
	}
	release_sock(sk);
	return err;
}

/**
 * ps_adopt_port() - make the sockets that a rule is for members
 * @net: namespace
 * @rule: the rule
 *
 * TCP sockets that are bound but don't listen are left for their listen().
 *
 * Context: process, may sleep; no socket lock held; rules_mutex held, so that
 * the rule stays.
 */
void ps_adopt_port(struct net *net, const struct ps_rule *rule)
{
	struct ps_batch *b;
	bool progress;
	int err;
	u32 i;

	b = kmalloc(sizeof(*b), GFP_KERNEL);
	if (!b) {
		ps_adopt_later(net);
		return;
	}
	b->net = net;
	b->rule = rule;
	do {
		progress = false;
		b->n = 0;
		ps_walk_port(net, rule->proto, rule->port, ps_batch_add, b);
		for (i = 0; i < b->n; i++) {
			err = ps_adopt_sock(b->sk[i], rule);
			if (!err)
				progress = true;
			else if (err == -ENOMEM)
				ps_adopt_later(net);
			sock_put(b->sk[i]);
		}
	} while (progress);
	kfree(b);
}

/**
 * ps_adopt_later() - look for unadopted sockets of a namespace in a while
 * @net: namespace
 *
 * Context: any.
 */
void ps_adopt_later(struct net *net)
{
	schedule_delayed_work(&ps_net(net)->adopt_again, PS_ADOPT_DELAY);
}

/* Sockets that wished to join and were bound when memory was short. */
static void ps_adopt_wishes(struct net *net)
{
	struct rhashtable_iter iter;
	const struct ps_join how = {};
	struct ps_member *m;
	struct sock *sk;

	rhashtable_walk_enter(&ps_members, &iter);
	rhashtable_walk_start(&iter);
	while ((m = rhashtable_walk_next(&iter))) {
		if (IS_ERR(m))
			continue;
		sk = m->sk;
		if (!net_eq(sock_net(sk), net) || !READ_ONCE(m->wish_join) ||
		    rcu_access_pointer(m->group) || !READ_ONCE(sk->sk_num))
			continue;
		sock_hold(sk);
		rhashtable_walk_stop(&iter);
		lock_sock(sk);
		/* A TCP socket may have become a client meanwhile. */
		if (sk->sk_num && sk->sk_reuseport &&
		    (sk->sk_protocol != IPPROTO_TCP ||
		     sk->sk_state == TCP_CLOSE || sk->sk_state == TCP_LISTEN) &&
		    ps_group_join(sk, &how, GFP_KERNEL_ACCOUNT) == -ENOMEM)
			ps_adopt_later(net);
		release_sock(sk);
		sock_put(sk);
		rhashtable_walk_start(&iter);
	}
	rhashtable_walk_stop(&iter);
	rhashtable_walk_exit(&iter);
}

void ps_adopt_work(struct work_struct *work)
{
	struct ps_net *pn = container_of(to_delayed_work(work), struct ps_net,
					 adopt_again);
	struct ps_rule *rule;
	unsigned long index;

	ps_adopt_wishes(pn->net);
	mutex_lock(&pn->rules_mutex);
	xa_for_each(&pn->rules, index, rule)
		ps_adopt_port(pn->net, rule);
	mutex_unlock(&pn->rules_mutex);
}
