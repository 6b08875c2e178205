// SPDX-License-Identifier: GPL-2.0
/*
 * The packet path: where the kernel looks for the socket of a TCP connection
 * request or a UDP datagram.
 *
 * The kernel decides which address class wins; when its choice is a member of
 * one of our groups, the group's policy decides which member it is.
 *
 * All of this runs in softirq or process context, in an RCU read section of
 * the caller, as the kernel's lookups do.
 */
#include <linux/tcp.h>
#include <net/inet6_hashtables.h>
#include <net/inet_hashtables.h>
#include <net/sock_reuseport.h>
#include <net/udp.h>

#include "compat/lookup.h"
#include "hook.h"
#include "hooks.h"
#include "member_table.h"

/* Members found unusable before the lookup gives up looking for another. */
#define PS_PICK_ATTEMPTS 8

/*
 * The packet on whose behalf the kernel looks up starts something only if it
 * is about to be delivered: then its data begin at the transport header. Other
 * lookups come without a packet (ICMP errors, BPF, GRO), or with one that is
 * still at its network header (TPROXY, socket matches of the firewall).
 */
static bool ps_delivers(const struct sk_buff *skb)
{
	return skb && !skb_transport_offset(skb);
}

/* A segment that a listener answers with a SYN-ACK. */
static bool ps_starts_connection(const struct sk_buff *skb)
{
	const struct tcphdr *th;

	if (!ps_delivers(skb))
		return false;
	th = (const struct tcphdr *)skb->data;
	return (tcp_flag_word(th) & (TCP_FLAG_SYN | TCP_FLAG_ACK |
				     TCP_FLAG_RST | TCP_FLAG_FIN)) ==
	       TCP_FLAG_SYN;
}

static bool ps_native_selector(const struct sock *sk)
{
	const struct sock_reuseport *reuse;

	reuse = rcu_dereference(sk->sk_reuseport_cb);
	return reuse && rcu_access_pointer(reuse->prog);
}

/*
 * Replaces the kernel's choice @sk by that of its group's policy. @starts: the
 * packet starts a connection or is a datagram, so turns and counters move.
 * Otherwise the answer is a stateless one.
 */
static struct sock *ps_steer(struct sock *sk, const struct ps_flow *flow,
			     bool starts)
{
	const struct ps_policy *policy = &ps_policy_hash;
	const struct ps_set *set;
	struct ps_member *m;
	struct ps_group *g;
	u32 attempt, n;

	m = ps_member_find(sk);
	if (!m)
		return sk;
	/* Pairs with rcu_assign_pointer() in ps_group_enroll(). */
	g = rcu_dereference(m->group);
	if (!g)
		return sk;
	/* The peer of a connected UDP member has no other socket. */
	if (g->key.proto == IPPROTO_UDP &&
	    READ_ONCE(sk->sk_state) == TCP_ESTABLISHED)
		return sk;
	if (!READ_ONCE(g->explicit_policy) && ps_native_selector(sk))
		goto fallback;

	/* Pairs with rcu_assign_pointer() in ps_group_grow(). */
	set = rcu_dereference(g->set);
	n = ps_set_count(set);
	if (!n)
		goto fallback;
	/* Pairs with rcu_assign_pointer() in ps_group_set_policy(). */
	if (starts)
		policy = rcu_dereference(g->policy);

	for (attempt = 0; attempt < PS_PICK_ATTEMPTS; attempt++) {
		m = ps_set_member(set, policy->pick(g, set, n, flow, attempt));
		if (likely(ps_member_usable(m, g))) {
			if (starts)
				atomic64_inc(&m->picked);
			return m->sk;
		}
	}
fallback:
	if (starts)
		atomic64_inc(&g->fallbacks);
	return sk;
}

PS_DECLARE_ORIGINAL(__inet_lookup_listener);

static struct sock *hook___inet_lookup_listener(PS_TCP4_PARAMS)
{
	const struct ps_flow flow = {
		.saddr = &saddr, .daddr = &daddr, .sport = sport, .hnum = hnum,
	};
	struct sock *sk;

	sk = PS_TCP_ORIGINAL(__inet_lookup_listener);
	if (!sk)
		return NULL;
	return ps_steer(sk, &flow, ps_starts_connection(skb));
}

PS_DEFINE_HOOK(__inet_lookup_listener);

PS_DECLARE_ORIGINAL(__udp4_lib_lookup);

static struct sock *hook___udp4_lib_lookup(PS_UDP4_PARAMS)
{
	const struct ps_flow flow = {
		.saddr = &saddr, .daddr = &daddr, .sport = sport,
		.hnum = ntohs(dport),
	};
	struct sock *sk;

	sk = PS_UDP_ORIGINAL(__udp4_lib_lookup);
	if (!sk)
		return NULL;
	return ps_steer(sk, &flow, ps_delivers(skb));
}

PS_DEFINE_HOOK(__udp4_lib_lookup);

#if IS_ENABLED(CONFIG_IPV6)
PS_DECLARE_ORIGINAL(inet6_lookup_listener);

static struct sock *hook_inet6_lookup_listener(PS_TCP6_PARAMS)
{
	const struct ps_flow flow = {
		.saddr = saddr, .daddr = daddr, .sport = sport, .hnum = hnum,
		.v6 = true,
	};
	struct sock *sk;

	sk = PS_TCP_ORIGINAL(inet6_lookup_listener);
	if (!sk)
		return NULL;
	return ps_steer(sk, &flow, ps_starts_connection(skb));
}

PS_DECLARE_ORIGINAL(__udp6_lib_lookup);

static struct sock *hook___udp6_lib_lookup(PS_UDP6_PARAMS)
{
	const struct ps_flow flow = {
		.saddr = saddr, .daddr = daddr, .sport = sport,
		.hnum = ntohs(dport), .v6 = true,
	};
	struct sock *sk;

	sk = PS_UDP_ORIGINAL(__udp6_lib_lookup);
	if (!sk)
		return NULL;
	return ps_steer(sk, &flow, ps_delivers(skb));
}

PS_DEFINE_HOOK(inet6_lookup_listener);
PS_DEFINE_HOOK(__udp6_lib_lookup);
#endif /* CONFIG_IPV6 */

/*
 * The callbacks of the lookups: the price that every other port pays. Both
 * families have the port in the same place.
 */
static void notrace ps_filter_tcp(unsigned long ip, unsigned long parent_ip,
				  struct ftrace_ops *ops,
				  struct ps_fregs *fregs)
{
	u16 hnum = ps_fregs_arg(fregs, PS_TCP_HNUM_ARG);

	if (test_bit(hnum, ps_ports_tcp))
		ps_hook_always(ip, parent_ip, ops, fregs);
}

static void notrace ps_filter_udp(unsigned long ip, unsigned long parent_ip,
				  struct ftrace_ops *ops,
				  struct ps_fregs *fregs)
{
	__be16 dport = (__force __be16)ps_fregs_arg(fregs, PS_UDP_DPORT_ARG);

	if (test_bit(ntohs(dport), ps_ports_udp))
		ps_hook_always(ip, parent_ip, ops, fregs);
}

static struct ps_hook *const ps_tcp_hooks[] = {
	&ps_hook___inet_lookup_listener,
#if IS_ENABLED(CONFIG_IPV6)
	&ps_hook_inet6_lookup_listener,
#endif
};

static struct ps_hook *const ps_udp_hooks[] = {
	&ps_hook___udp4_lib_lookup,
#if IS_ENABLED(CONFIG_IPV6)
	&ps_hook___udp6_lib_lookup,
#endif
};

struct ps_hook_set ps_hook_set_tcp = {
	.filter = ps_filter_tcp,
	.hooks = ps_tcp_hooks,
	.n = ARRAY_SIZE(ps_tcp_hooks),
};

struct ps_hook_set ps_hook_set_udp = {
	.filter = ps_filter_udp,
	.hooks = ps_udp_hooks,
	.n = ARRAY_SIZE(ps_udp_hooks),
};
