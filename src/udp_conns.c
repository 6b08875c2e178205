// SPDX-License-Identifier: GPL-2.0
/*
 * The end of a UDP lookup, on ports where members are connect()ed.
 *
 * Some groups the kernel has marked as having connected sockets: strangers' that
 * share the group, and those that were there before it was ours; members' own
 * are for peer.c. There the kernel goes on looking after a socket of the group
 * has been chosen: a connected one may be better. So a policy that takes turns
 * is asked here, and what was picked is counted here.
 *
 * And while a socket is being connect()ed the kernel's lookups may miss; here
 * they are repeated.
 *
 * These hooks are only armed from the first connect() of a member on, since
 * every UDP packet pays for them.
 */
#include <linux/percpu.h>
#include <net/sock_reuseport.h>
#include <net/udp.h>

#include "compat/lookup.h"
#include "hook.h"
#include "hooks.h"
#include "member_table.h"
#include "peer.h"
#include "pick.h"

/* Is, or was, there a group that the kernel has marked? */
static bool ps_udp_marked __read_mostly;

static void ps_udp_mark(struct ps_group *g)
{
	WRITE_ONCE(g->conns, true);
	WRITE_ONCE(ps_udp_marked, true);
}

/*
 * What the policy has chosen at the beginning stands, if it takes no turns and
 * the flow isn't with another member.
 */
static struct ps_member *ps_udp_stands(struct ps_group *g, struct ps_member *m,
				       const struct ps_policy *policy,
				       const struct ps_flow *flow)
{
	struct ps_flow_table *flows;
	struct ps_flow_ref ref;

	/* Pairs with rcu_assign_pointer() in ps_flows_resize_locked(). */
	flows = rcu_dereference(g->flows);
	if (likely(!flows) || ps_named(g, policy, flow))
		return m;
	return ps_flow_find(g, flows, flow->skb, &ref) ?:
	       ps_flow_add(g, flows, &ref, m);
}

/* @sk is what the lookup found, for a datagram that is delivered. */
static struct sock *ps_udp_found(struct sock *sk, const struct sk_buff *skb)
{
	const struct sock_reuseport *reuse;
	const struct ps_policy *policy;
	struct ps_flow flow = { .skb = skb };
	const struct ps_set *set;
	struct ps_member *m;
	struct ps_group *g;

	if (likely(!READ_ONCE(ps_udp_marked)))
		return sk;
	m = ps_member_find(sk);
	/* Pairs with rcu_assign_pointer() in ps_group_enroll(). */
	g = m ? rcu_dereference(m->group) : NULL;
	/* Without connected sockets the choice stood, and was counted. */
	if (!g || !READ_ONCE(g->conns))
		return sk;
	/* The peer of a connected member has no other socket. */
	if (READ_ONCE(sk->sk_state) == TCP_ESTABLISHED)
		return sk;
	reuse = rcu_dereference(sk->sk_reuseport_cb);
	if (!READ_ONCE(g->explicit_policy) && reuse &&
	    rcu_access_pointer(reuse->prog))
		return sk;

	/* Pairs with rcu_assign_pointer() in ps_group_set_policy(). */
	policy = rcu_dereference(g->policy);
	if (!policy->takes_turns)
		return ps_picked(g, ps_udp_stands(g, m, policy, &flow));
	/* Pairs with rcu_assign_pointer() in ps_group_grow(). */
	set = rcu_dereference(g->set);
	return ps_pick(g, set, ps_set_count(set), policy, &flow, true) ?: sk;
}

/* Lookups that come to nothing by such a race, at most, for a datagram. */
#define PS_UDP_TRIES 3

DEFINE_PER_CPU(unsigned int, ps_udp_refusals);

/*
 * Has the lookup met a socket that was just being connect()ed? One that gets
 * another address by that moves to another chain, and takes along who looks at
 * it: then nobody is found. One that had no peer yet when it was compared, and
 * has one when that matters, is found for others' datagrams.
 *
 * Nobody is found either where a BPF program drops the datagram: that one isn't
 * to be asked again. @refusals is what this CPU had counted before. A task that
 * is moved to another CPU meanwhile may look once too often, or not again.
 */
static bool ps_udp_missed(const struct sock *sk, const struct sk_buff *skb,
			  unsigned int refusals)
{
	if (!sk)
		return raw_cpu_read(ps_udp_refusals) == refusals;
	return READ_ONCE(sk->sk_state) == TCP_ESTABLISHED &&
	       !ps_peer_sent(sk, skb);
}

PS_DECLARE_ORIGINAL(__udp4_lib_lookup);

static struct sock *hook___udp4_lib_lookup(PS_UDP4_PARAMS)
{
	unsigned int refusals = raw_cpu_read(ps_udp_refusals), tries;
	struct sock *sk = PS_UDP_ORIGINAL(__udp4_lib_lookup);

	if (!ps_delivers(skb))
		return sk;
	for (tries = 1; tries < PS_UDP_TRIES && ps_udp_missed(sk, skb, refusals);
	     tries++)
		sk = PS_UDP_ORIGINAL(__udp4_lib_lookup);
	return sk ? ps_udp_found(sk, skb) : NULL;
}

PS_DEFINE_HOOK(__udp4_lib_lookup);

#if IS_ENABLED(CONFIG_IPV6)
PS_DECLARE_ORIGINAL(__udp6_lib_lookup);

static struct sock *hook___udp6_lib_lookup(PS_UDP6_PARAMS)
{
	unsigned int refusals = raw_cpu_read(ps_udp_refusals), tries;
	struct sock *sk = PS_UDP_ORIGINAL(__udp6_lib_lookup);

	if (!ps_delivers(skb))
		return sk;
	for (tries = 1; tries < PS_UDP_TRIES && ps_udp_missed(sk, skb, refusals);
	     tries++)
		sk = PS_UDP_ORIGINAL(__udp6_lib_lookup);
	return sk ? ps_udp_found(sk, skb) : NULL;
}

PS_DEFINE_HOOK(__udp6_lib_lookup);
#endif /* CONFIG_IPV6 */

static void notrace ps_filter_udp(unsigned long ip, unsigned long parent_ip,
				  struct ftrace_ops *ops,
				  struct ps_fregs *fregs)
{
	__be16 dport = (__force __be16)ps_fregs_arg(fregs, PS_UDP_DPORT_ARG);

	if (test_bit(ntohs(dport), ps_ports_udp))
		ps_hook_always(ip, parent_ip, ops, fregs);
}

static struct ps_hook *const ps_udp_hooks[] = {
	&ps_hook___udp4_lib_lookup,
#if IS_ENABLED(CONFIG_IPV6)
	&ps_hook___udp6_lib_lookup,
#endif
};

struct ps_hook_set ps_hook_set_udp = {
	.filter = ps_filter_udp,
	.hooks = ps_udp_hooks,
	.n = ARRAY_SIZE(ps_udp_hooks),
	.on_demand = true,
};

static void ps_udp_conns_work(struct work_struct *work)
{
	ps_hook_set_demand(&ps_hook_set_udp);
}

static DECLARE_WORK(ps_udp_conns_arm, ps_udp_conns_work);

/**
 * ps_udp_conns_seen() - a group has connected sockets that we didn't see connect
 * @g: the group
 *
 * Strangers, or from before it was ours.
 * Context: softirq, or any other; RCU.
 */
void ps_udp_conns_seen(struct ps_group *g)
{
	if (g->key.proto != IPPROTO_UDP)
		return;
	ps_udp_mark(g);
	schedule_work(&ps_udp_conns_arm);
}

/* When the hooks are gone. Context: process, may sleep. */
void ps_udp_conns_exit(void)
{
	cancel_work_sync(&ps_udp_conns_arm);
}

PS_DECLARE_ORIGINAL(reuseport_has_conns_set);

/*
 * A UDP socket is being connect()ed: called with its lock held, before its
 * state changes. Context: process, may sleep.
 */
static void hook_reuseport_has_conns_set(struct sock *sk)
{
	struct ps_member *m;
	bool spared;

	ps_hook_enter();
	/* Members and strangers of the port alike. */
	if (sk->sk_protocol == IPPROTO_UDP &&
	    test_bit(READ_ONCE(sk->sk_num), ps_ports_udp)) {
		/* Failing leaves turns a little uneven, and the kernel's races. */
		ps_hook_set_demand(&ps_hook_set_udp);
		if (ps_peer_add(sk))
			goto out;
		/* With a wildcard address it has got another, and left. */
		spared = !rcu_access_pointer(sk->sk_reuseport_cb);
		spin_lock_bh(&ps_lock);
		m = ps_member_find_locked(sk);
		if (m && ps_member_group(m)) {
			ps_group_unselect(m);
			if (!spared)
				ps_udp_mark(ps_member_group(m));
		}
		spin_unlock_bh(&ps_lock);
	}
	ps_original(reuseport_has_conns_set)(sk);
out:
	ps_hook_exit();
}

PS_DEFINE_HOOK(reuseport_has_conns_set);

/*
 * A UDP socket has let go of its peer. If its address is again, or still, that
 * of its group, it takes part again.
 */
static void ps_udp_disconnected(struct sock *sk)
{
	struct ps_member *m;

	if (sk->sk_protocol != IPPROTO_UDP)
		return;
	spin_lock_bh(&ps_lock);
	m = ps_member_find_locked(sk);
	if (m && ps_member_group(m) && sk->sk_state == TCP_CLOSE) {
		ps_peer_drop(m);
		if (ps_group_fits(m))
			ps_group_select(m);
	}
	spin_unlock_bh(&ps_lock);
}

PS_DECLARE_ORIGINAL(udp_disconnect);

/* connect() to AF_UNSPEC. Context: process, may sleep. */
static int hook_udp_disconnect(struct sock *sk, int flags)
{
	int err;

	ps_hook_enter();
	err = ps_original(udp_disconnect)(sk, flags);
	ps_udp_disconnected(sk);
	ps_hook_exit();
	return err;
}

PS_DEFINE_HOOK(udp_disconnect);

PS_DECLARE_ORIGINAL(udp_abort);

/* SOCK_DESTROY, by `ss -K`. Context: process, may sleep. */
static int hook_udp_abort(struct sock *sk, int err)
{
	ps_hook_enter();
	err = ps_original(udp_abort)(sk, err);
	ps_udp_disconnected(sk);
	ps_hook_exit();
	return err;
}

PS_DEFINE_HOOK(udp_abort);
