// SPDX-License-Identifier: GPL-2.0
/*
 * The packet path: where the kernel, having found which reuseport group a TCP
 * connection request or a UDP datagram is for, chooses a socket of it.
 *
 * Which address class wins (specific before wildcard, device, v6only, BPF
 * sk_lookup, connected UDP) has been decided by then, by the kernel. When the
 * group is one of ours, its policy takes the place of the kernel's hash.
 *
 * All of this runs in softirq or process context, in an RCU read section of
 * the caller, as the kernel's lookups do.
 */
#include <linux/tcp.h>
#include <net/sock_reuseport.h>
#include <net/udp.h>

#include "hook.h"
#include "hooks.h"
#include "member_table.h"
#include "peer.h"
#include "pick.h"

/* A segment that a listener answers with a SYN-ACK. */
static bool ps_starts_connection(const struct sk_buff *skb)
{
	const struct tcphdr *th = (const struct tcphdr *)skb->data;

	return (tcp_flag_word(th) & (TCP_FLAG_SYN | TCP_FLAG_ACK |
				     TCP_FLAG_RST | TCP_FLAG_FIN)) ==
	       TCP_FLAG_SYN;
}

PS_DECLARE_ORIGINAL(reuseport_select_sock);

/*
 * The group that a member's packets are steered in. A listener that is being
 * closed has left it, but the kernel goes on choosing that for a moment.
 */
static struct ps_group *ps_group_of(const struct ps_member *m)
{
	struct ps_group *g;

	if (!m)
		return NULL;
	/* Pairs with rcu_assign_pointer() in ps_group_enroll(). */
	g = rcu_dereference(m->group);
	if (likely(g))
		return g;
	/* Pairs with smp_wmb() in ps_gone_keep(): it left after that. */
	smp_rmb();
	return READ_ONCE(m->gone) ? READ_ONCE(m->home) : NULL;
}

/*
 * The group of a socket that the kernel has chosen. A UDP socket that is being
 * bound, and about to join, is in the kernel's group a moment before it is in
 * ours: that one's policy is to say, if there is such a group already.
 */
static struct ps_group *ps_group_chosen(const struct sock *sk)
{
	const struct ps_member *m = ps_member_find(sk);
	struct ps_group *g = ps_group_of(m);
	struct ps_key key;

	if (g || !m)
		return g;
	/* Pairs with smp_store_release() in ps_expect_end(). */
	if (!smp_load_acquire(&m->joining))
		/* By now it has joined, if it was going to. */
		return ps_group_of(m);
	ps_key_of(&key, sk);
	return ps_group_find_rcu(&key);
}

/* A UDP socket that has been closed has lost sk_num, but not that. */
static u16 ps_select_port(const struct sock *sk)
{
	return sk->sk_protocol == IPPROTO_UDP ? udp_sk(sk)->udp_port_hash :
						READ_ONCE(sk->sk_num);
}

/*
 * The kernel's lookup may come to a UDP socket that is closed already and give
 * it the datagram, for it has no group any more. Those whom it has left get it,
 * if there are any.
 */
static struct ps_group *ps_group_left(const struct sock *sk)
{
	struct ps_key key;

	if (sk->sk_protocol != IPPROTO_UDP || READ_ONCE(sk->sk_num))
		return NULL;
	ps_key_of(&key, sk);
	key.port = ps_select_port(sk);
	return ps_group_find_rcu(&key);
}

/*
 * A stranger's share is of what is new: a live flow stays with its member, and
 * what names a member goes there. Returns that one's socket, or NULL.
 */
static struct sock *ps_select_kept(const struct sock *stranger,
				   const struct sk_buff *skb)
{
	struct ps_flow flow = { .skb = skb };
	const struct sock_reuseport *reuse;
	struct ps_flow_table *flows;
	struct ps_flow_ref ref;
	struct ps_member *m;
	struct ps_group *g;
	struct ps_key key;

	if (stranger->sk_protocol != IPPROTO_UDP || !ps_delivers(skb))
		return NULL;
	ps_key_of(&key, stranger);
	g = ps_group_find_rcu(&key);
	if (!g)
		return NULL;
	reuse = rcu_dereference(stranger->sk_reuseport_cb);
	if (!READ_ONCE(g->explicit_policy) && reuse &&
	    rcu_access_pointer(reuse->prog))
		return NULL;
	/* Pairs with rcu_assign_pointer() in ps_group_set_policy(). */
	m = ps_named(g, rcu_dereference(g->policy), &flow);
	/* Pairs with rcu_assign_pointer() in ps_flows_resize_locked(). */
	flows = rcu_dereference(g->flows);
	if (!m && flows)
		m = ps_flow_find(g, flows, skb, &ref);
	if (!m)
		return NULL;
	/* Else it is counted at the end of the lookup. */
	if (READ_ONCE(g->conns) && ps_udp_conns_armed())
		return m->sk;
	return ps_picked(g, m);
}

/*
 * The kernel's own choice, where that may stand: a stranger in the group keeps
 * the share it would have. Returns the group whose policy is to choose instead,
 * or NULL.
 */
static noinline struct ps_group *ps_select_native(struct sock **sk, u32 hash,
						  struct sk_buff *skb,
						  int hdr_len)
{
	const struct sock_reuseport *reuse;
	struct sock *first = *sk;
	struct ps_group *g;

	*sk = ps_original(reuseport_select_sock)(first, hash, skb, hdr_len);
	/* It had a group of the kernel's when we looked: it is being closed. */
	if (unlikely(!*sk && !rcu_access_pointer(first->sk_reuseport_cb))) {
		g = ps_group_of(ps_member_find(first)) ?: ps_group_left(first);
		if (g)
			*sk = first;
		return g;
	}
	/* A BPF program's answer to a packet that it drops. */
	if (IS_ERR(*sk))
		raw_cpu_inc(ps_udp_refusals);
	if (IS_ERR_OR_NULL(*sk))
		return NULL;
	g = ps_group_chosen(*sk) ?: ps_group_left(*sk);
	if (!g) {
		*sk = ps_select_kept(*sk, skb) ?: *sk;
		return NULL;
	}

	reuse = rcu_dereference((*sk)->sk_reuseport_cb);
	if (!READ_ONCE(g->explicit_policy) && reuse &&
	    rcu_access_pointer(reuse->prog)) {
		if (ps_delivers(skb))
			atomic64_inc(&g->fallbacks);
		return NULL;
	}
	return g;
}

static struct sock *hook_reuseport_select_sock(struct sock *sk, u32 hash,
					       struct sk_buff *skb, int hdr_len)
{
	const struct ps_policy *policy = &ps_policy_hash, *chosen;
	struct ps_flow flow = { .hash = hash };
	struct sock *native = NULL, *picked;
	const struct sock_reuseport *reuse;
	const struct ps_set *set;
	bool starts = false;
	struct ps_group *g;
	u32 n;

	if (ps_peer_learns(skb)) {
		ps_peer_learn(hash);
		return sk;
	}
	picked = ps_peer_find(sk, hash, skb);
	if (unlikely(picked))
		return picked;
	g = ps_group_of(ps_member_find(sk)) ?: ps_group_left(sk);
	if (unlikely(!g))
		goto native;
	/* Pairs with rcu_assign_pointer() in ps_group_grow(). */
	set = rcu_dereference(g->set);
	n = ps_set_count(set);
	reuse = rcu_dereference(sk->sk_reuseport_cb);
	/*
	 * A UDP member that had a peer may have lost the kernel's group, which
	 * would then give it all of the packets or none.
	 */
	if (unlikely(!reuse))
		goto steer;
	if (unlikely(READ_ONCE(g->candidates) != READ_ONCE(reuse->num_socks) ||
		     rcu_access_pointer(reuse->prog)))
		goto native;

steer:
	if (ps_delivers(skb)) {
		flow.skb = skb;
		starts = g->key.proto == IPPROTO_UDP ||
			 ps_starts_connection(skb);
	}
	/* Pairs with rcu_assign_pointer() in ps_group_set_policy(). */
	chosen = rcu_dereference(g->policy);
	if (starts || chosen->follows_flow)
		policy = chosen;
	if (unlikely(reuse && reuse->has_conns) && !READ_ONCE(g->conns))
		ps_udp_conns_seen(g);
	/* Known only at the end of the lookup whether this choice stands. */
	if (unlikely(READ_ONCE(g->conns)) && ps_udp_conns_armed()) {
		if (policy->takes_turns)
			policy = &ps_policy_hash;
		starts = false;
	}
	picked = ps_pick(g, set, n, policy, &flow, starts);
	if (likely(picked))
		return picked;
	return native ?: ps_original(reuseport_select_sock)(sk, hash, skb,
							    hdr_len);

native:
	native = sk;
	g = ps_select_native(&native, hash, skb, hdr_len);
	if (!g)
		return native;
	reuse = rcu_dereference(native->sk_reuseport_cb);
	set = rcu_dereference(g->set);
	n = ps_set_count(set);
	goto steer;
}

PS_DEFINE_HOOK(reuseport_select_sock);

/* The price that every other port with a reuseport group pays. */
static void notrace ps_filter_select(unsigned long ip, unsigned long parent_ip,
				     struct ftrace_ops *ops,
				     struct ps_fregs *fregs)
{
	const struct sock *sk = (const struct sock *)ps_fregs_arg(fregs, 0);

	if (test_bit(ps_select_port(sk), ps_ports(sk->sk_protocol)))
		ps_fregs_redirect(fregs, hook_reuseport_select_sock);
}

static struct ps_hook *const ps_select_hooks[] = {
	&ps_hook_reuseport_select_sock,
};

struct ps_hook_set ps_hook_set_select = {
	.filter = ps_filter_select,
	.hooks = ps_select_hooks,
	.n = ARRAY_SIZE(ps_select_hooks),
};
