// SPDX-License-Identifier: GPL-2.0
#include <linux/sched.h>
#include <net/inet_hashtables.h>
#include <net/tcp.h>
#include <net/udp.h>

#include "lookup.h"
#include "walk.h"

static struct inet_hashinfo *ps_tcp_table(const struct net *net)
{
#ifdef PS_TCP_TABLE_PER_NET
	return net->ipv4.tcp_death_row.hashinfo;
#else
	return &tcp_hashinfo;
#endif
}

static bool ps_walk_bucket(struct inet_listen_hashbucket *bucket, ps_walk_fn fn,
			   void *arg)
{
#ifdef PS_LHASH2_NULLS
	struct hlist_nulls_node *node;
	struct sock *sk;

	sk_nulls_for_each(sk, node, &bucket->nulls_head)
		if (fn(sk, arg))
			return true;
#else
	struct inet_connection_sock *icsk;

	hlist_for_each_entry(icsk, &bucket->head, icsk_listen_portaddr_node)
		if (fn((struct sock *)icsk, arg))
			return true;
#endif
	return false;
}

static void ps_walk_listeners(struct net *net, ps_walk_fn fn, void *arg)
{
	struct inet_hashinfo *table = ps_tcp_table(net);
	struct inet_listen_hashbucket *bucket;
	bool end = false;
	unsigned int i;

	/* By address and port, so a port's listeners may be in any bucket. */
	for (i = 0; i <= table->lhash2_mask && !end; i++) {
		bucket = &table->lhash2[i];
		/* Like the kernel's own: never taken in softirq. */
		spin_lock(&bucket->lock);
		rcu_read_lock();
		end = ps_walk_bucket(bucket, fn, arg);
		rcu_read_unlock();
		spin_unlock(&bucket->lock);
		cond_resched();
	}
}

static void ps_walk_udp(struct net *net, u16 port, ps_walk_fn fn, void *arg)
{
	struct udp_hslot *slot = udp_hashslot(ps_udp_table(net), net, port);
	struct sock *sk;

	spin_lock_bh(&slot->lock);
	rcu_read_lock();
	sk_for_each(sk, &slot->head)
		if (fn(sk, arg))
			break;
	rcu_read_unlock();
	spin_unlock_bh(&slot->lock);
}

/**
 * ps_walk_port() - visit the sockets that may hold a port
 * @net: their namespace; others' are visited too
 * @proto: IPPROTO_TCP: listening sockets; IPPROTO_UDP: bound ones
 * @port: host order; other ports' sockets are visited too
 * @fn: to call
 * @arg: for it
 *
 * Context: process, may sleep.
 */
void ps_walk_port(struct net *net, u8 proto, u16 port, ps_walk_fn fn, void *arg)
{
	if (proto == IPPROTO_TCP)
		ps_walk_listeners(net, fn, arg);
	else
		ps_walk_udp(net, port, fn, arg);
}

/* Returns true when @fn ends the walk. */
static bool ps_walk_bucket_bound(struct inet_bind_bucket *tb, ps_walk_fn fn,
				 void *arg)
{
#ifdef PS_BHASH2_OWNERS
	struct inet_bind2_bucket *tb2;
	struct sock *sk;

	hlist_for_each_entry(tb2, &tb->bhash2, bhash_node)
		sk_for_each_bound(sk, &tb2->owners)
			if (fn(sk, arg))
				return true;
#else
	struct sock *sk;

	sk_for_each_bound(sk, &tb->owners)
		if (fn(sk, arg))
			return true;
#endif
	return false;
}

static void ps_walk_tcp_bound(struct net *net, u16 port, ps_walk_fn fn,
			      void *arg)
{
	struct inet_hashinfo *table = ps_tcp_table(net);
	struct inet_bind_hashbucket *head;
	struct inet_bind_bucket *tb;

	head = &table->bhash[inet_bhashfn(net, port, table->bhash_size)];
	spin_lock_bh(&head->lock);
	rcu_read_lock();
	hlist_for_each_entry(tb, &head->chain, node)
		if (net_eq(read_pnet(&tb->ib_net), net) && tb->port == port &&
		    ps_walk_bucket_bound(tb, fn, arg))
			break;
	rcu_read_unlock();
	spin_unlock_bh(&head->lock);
}

/**
 * ps_walk_bound() - visit the sockets that are bound to a port
 * @net: their namespace; with UDP others' are visited too
 * @proto: IPPROTO_TCP: also connections and those in TIME_WAIT, of which only
 *	what struct sock_common has may be read; IPPROTO_UDP
 * @port: host order; with UDP other ports' sockets are visited too
 * @fn: to call
 * @arg: for it
 *
 * Context: process, doesn't sleep.
 */
void ps_walk_bound(struct net *net, u8 proto, u16 port, ps_walk_fn fn,
		   void *arg)
{
	if (proto == IPPROTO_TCP)
		ps_walk_tcp_bound(net, port, fn, arg);
	else
		ps_walk_udp(net, port, fn, arg);
}
