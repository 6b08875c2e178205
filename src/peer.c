// SPDX-License-Identifier: GPL-2.0
/*
 * Members with a peer.
 *
 * The kernel marks a group that has a connect()ed socket, and from then on looks
 * at each socket of such a group for every datagram, since another one may be
 * the peer's. Of members we know whose peer's a datagram is, so their group
 * isn't marked: what the peer sends goes to its socket, and for all others the
 * group is as quick as one without such members.
 *
 * Lookups without a packet (ICMP errors) have to find the peer's socket, too,
 * and all that we see of them is the kernel's hash of the 4-tuple, which is
 * keyed. So we learn that of each peer by looking it up ourselves.
 *
 * If any of that fails, and when we have to let go of such a member, its group
 * is marked as if we weren't there; see udp_conns.c.
 */
#include <linux/mutex.h>
#include <linux/slab.h>
#include <net/ipv6.h>
#include <net/sock_reuseport.h>
#include <net/udp.h>

#include "compat/lookup.h"
#include "hook.h"
#include "member_table.h"
#include "peer.h"
#include "pick.h"
#include "tuple.h"

struct ps_peer {
	struct rhlist_head node;
	u32 hash;		/* the kernel's, of what the peer sends */
	struct sock *sk;	/* as long as the member, which holds it */
	struct list_head all;	/* under ps_lock */
	struct rcu_head rcu;
};

struct rhltable ps_peers;
static LIST_HEAD(ps_peer_list);
static bool ps_peers_stopped;	/* under ps_lock */

/* One at a time. */
static DEFINE_MUTEX(ps_peer_mutex);
struct task_struct *ps_peer_learner;
static bool ps_peer_learned;
static u32 ps_peer_hash;

/* It is hashed already, with a key that no sender knows. */
static u32 ps_peer_hashfn(const void *data, u32 len, u32 seed)
{
	return *(const u32 *)data;
}

static const struct rhashtable_params ps_peer_params = {
	.key_len = sizeof(u32),
	.key_offset = offsetof(struct ps_peer, hash),
	.head_offset = offsetof(struct ps_peer, node),
	.hashfn = ps_peer_hashfn,
	.automatic_shrinking = true,
};

/* Is its local address one of IPv4? An IPv6 socket's is that as well, then. */
static bool ps_peer_local_v4(const struct sock *sk)
{
#if IS_ENABLED(CONFIG_IPV6)
	return sk->sk_family != AF_INET6 ||
	       ipv6_addr_v4mapped(&sk->sk_v6_rcv_saddr);
#else
	return true;
#endif
}

/*
 * While an IPv6 socket gets a peer of IPv4, that one's address is in inet_daddr
 * only; by then its own address is one of IPv4.
 */
static bool ps_peer_is_v6(const struct sock *sk)
{
#if IS_ENABLED(CONFIG_IPV6)
	return !ps_peer_local_v4(sk) && !ipv6_addr_v4mapped(&sk->sk_v6_daddr);
#else
	return false;
#endif
}

/*
 * What comes for one of the two comes for the other, too. One with a peer may
 * have become an IPv4 socket (IPV6_ADDRFORM): it is where it was.
 */
static bool ps_peer_local(const struct sock *a, const struct sock *b)
{
	if (!net_eq(sock_net(a), sock_net(b)) ||
	    READ_ONCE(a->sk_num) != READ_ONCE(b->sk_num) ||
	    READ_ONCE(a->sk_bound_dev_if) != READ_ONCE(b->sk_bound_dev_if))
		return false;
#if IS_ENABLED(CONFIG_IPV6)
	if (a->sk_family == AF_INET6 && b->sk_family == AF_INET6)
		return ipv6_addr_equal(&a->sk_v6_rcv_saddr,
				       &b->sk_v6_rcv_saddr);
#endif
	return a->sk_rcv_saddr == b->sk_rcv_saddr && ps_peer_local_v4(a) &&
	       ps_peer_local_v4(b);
}

/**
 * ps_peer_sent() - has a socket's peer sent a datagram?
 * @sk: a UDP socket that has, or had, a peer
 * @skb: about to be delivered
 *
 * Context: softirq or process, RCU.
 */
bool ps_peer_sent(const struct sock *sk, const struct sk_buff *skb)
{
	const struct udphdr *uh = (const struct udphdr *)skb->data;

	if (uh->source != READ_ONCE(inet_sk(sk)->inet_dport) ||
	    ps_skb_is_v6(skb) != ps_peer_is_v6(sk))
		return false;
#if IS_ENABLED(CONFIG_IPV6)
	if (ps_skb_is_v6(skb))
		return ipv6_addr_equal(&ipv6_hdr(skb)->saddr,
				       &sk->sk_v6_daddr);
#endif
	return ip_hdr(skb)->saddr == READ_ONCE(inet_sk(sk)->inet_daddr);
}

/* ps_peer_find() where there are peers. Context: softirq or process, RCU. */
struct sock *ps_peer_search(const struct sock *sk, u32 hash,
			    const struct sk_buff *skb)
{
	struct rhlist_head *list, *pos;
	struct ps_peer *peer;

	list = rhltable_lookup(&ps_peers, &hash, ps_peer_params);
	rhl_for_each_entry_rcu(peer, pos, list, node) {
		if (READ_ONCE(peer->sk->sk_state) == TCP_ESTABLISHED &&
		    ps_peer_local(peer->sk, sk) &&
		    (!ps_delivers(skb) || ps_peer_sent(peer->sk, skb)))
			return peer->sk;
	}
	return NULL;
}

/* The lookup's hash. Context: process, BHs disabled, RCU. */
void ps_peer_learn(u32 hash)
{
	ps_peer_hash = hash;
	ps_peer_learned = true;
}

PS_DECLARE_ORIGINAL(__udp4_lib_lookup);

static void ps_peer_look_v4(const struct sock *sk)
{
	struct net *net = sock_net(sk);
	const struct inet_sock *inet = inet_sk(sk);

	ps_original(__udp4_lib_lookup)(net, inet->inet_daddr, inet->inet_dport,
				       inet->inet_rcv_saddr, inet->inet_sport,
				       sk->sk_bound_dev_if, 0,
				       PS_UDP_TABLE_OF(net) NULL);
}

#if IS_ENABLED(CONFIG_IPV6)
PS_DECLARE_ORIGINAL(__udp6_lib_lookup);

static void ps_peer_look_v6(const struct sock *sk)
{
	struct net *net = sock_net(sk);

	ps_original(__udp6_lib_lookup)(net, &sk->sk_v6_daddr,
				       inet_sk(sk)->inet_dport,
				       &sk->sk_v6_rcv_saddr,
				       inet_sk(sk)->inet_sport,
				       sk->sk_bound_dev_if, 0,
				       PS_UDP_TABLE_OF(net) NULL);
}
#endif

/*
 * Looks up what the peer would send, and sees the hash that the kernel chooses
 * by. Softirqs of this CPU, whose lookups would look like ours, are kept out.
 */
static bool ps_peer_look(const struct sock *sk, u32 *hash)
{
	bool learned;

	mutex_lock(&ps_peer_mutex);
	local_bh_disable();
	rcu_read_lock();
	ps_peer_learned = false;
	WRITE_ONCE(ps_peer_learner, current);
#if IS_ENABLED(CONFIG_IPV6)
	if (ps_peer_is_v6(sk))
		ps_peer_look_v6(sk);
	else
#endif
		ps_peer_look_v4(sk);
	WRITE_ONCE(ps_peer_learner, NULL);
	learned = ps_peer_learned;
	*hash = ps_peer_hash;
	rcu_read_unlock();
	local_bh_enable();
	mutex_unlock(&ps_peer_mutex);
	return learned;
}

/*
 * Is it in a group of the kernel's that isn't marked yet? And one with a peer of
 * port 0 takes what comes from any port, which we would have to look up each.
 */
static bool ps_peer_spares(const struct sock *sk)
{
	const struct sock_reuseport *reuse;
	bool spares;

	if (!inet_sk(sk)->inet_dport)
		return false;
	rcu_read_lock();
	reuse = rcu_dereference(sk->sk_reuseport_cb);
	spares = reuse && !reuse->has_conns;
	rcu_read_unlock();
	return spares;
}

/**
 * ps_peer_add() - a socket is being connect()ed
 * @sk: perhaps a member; its lock is held, and its peer's address is there
 *
 * From here on it isn't selectable.
 *
 * Context: process, may sleep.
 * Return: false if the kernel has to go about it in its own way.
 */
bool ps_peer_add(struct sock *sk)
{
	struct ps_peer *peer;
	struct ps_member *m;
	bool added = false;

	if (!ps_member_known(sk) || !ps_peer_spares(sk))
		return false;
	peer = kzalloc(sizeof(*peer), GFP_KERNEL_ACCOUNT);
	if (!peer)
		return false;
	peer->sk = sk;
	if (!ps_peer_look(sk, &peer->hash))
		goto out;

	spin_lock_bh(&ps_lock);
	m = ps_member_find_locked(sk);
	if (m && ps_group_fits(m) && !ps_peers_stopped) {
		/* It had another one before. */
		ps_peer_drop(m);
		/* Pairs with the RCU lookup: publishes what is filled in. */
		if (!rhltable_insert(&ps_peers, &peer->node, ps_peer_params)) {
			list_add(&peer->all, &ps_peer_list);
			m->peer = peer;
			ps_group_unselect(m);
			/* The kernel counts it on. */
			ps_group_count(ps_member_group(m), 1);
			added = true;
		}
	}
	spin_unlock_bh(&ps_lock);
out:
	if (!added)
		kfree(peer);
	return added;
}

/**
 * ps_peer_drop() - a member has no peer any more, or is no longer hashed
 * @m: in a group; perhaps without a peer
 *
 * Context: any, under ps_lock.
 */
void ps_peer_drop(struct ps_member *m)
{
	struct ps_peer *peer = m->peer;

	lockdep_assert_held(&ps_lock);
	if (!peer)
		return;
	rhltable_remove(&ps_peers, &peer->node, ps_peer_params);
	list_del(&peer->all);
	m->peer = NULL;
	ps_group_count(ps_member_group(m), -1);
	kfree_rcu(peer, rcu);
}

PS_DECLARE_ORIGINAL(reuseport_has_conns_set);

/**
 * ps_peer_release() - a member leaves us, perhaps with a peer
 * @m: in a group
 *
 * Context: any, under ps_lock.
 */
void ps_peer_release(struct ps_member *m)
{
	lockdep_assert_held(&ps_lock);
	if (!m->peer)
		return;
	/* Before, so that what the peer sends is always its own. */
	ps_original(reuseport_has_conns_set)(m->sk);
	ps_peer_drop(m);
}

int ps_peers_init(void)
{
	return rhltable_init(&ps_peers, &ps_peer_params);
}

/*
 * While the hooks are still there: from here on the kernel goes about connected
 * sockets in its own way. Context: process.
 */
void ps_peers_stop(void)
{
	struct ps_peer *peer;

	spin_lock_bh(&ps_lock);
	ps_peers_stopped = true;
	list_for_each_entry(peer, &ps_peer_list, all)
		ps_original(reuseport_has_conns_set)(peer->sk);
	spin_unlock_bh(&ps_lock);
}

/* When there are no members any more. Context: process, may sleep. */
void ps_peers_exit(void)
{
	rhltable_destroy(&ps_peers);
}
