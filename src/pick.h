/* SPDX-License-Identifier: GPL-2.0 */
/*
 * From a group to one of its sockets: the end of the packet path.
 */
#ifndef PS_PICK_H
#define PS_PICK_H

#include <linux/skbuff.h>

#include "flow.h"
#include "group.h"
#include "trace.h"

/* Members found unusable before the lookup gives up looking for another. */
#define PS_PICK_ATTEMPTS 8

/*
 * The packet on whose behalf the kernel looks up starts something only if it
 * is about to be delivered: then its data begin at the transport header. Other
 * lookups come without a packet (ICMP errors, BPF, GRO), or with one that is
 * still at its network header (TPROXY, socket matches of the firewall).
 */
static inline bool ps_delivers(const struct sk_buff *skb)
{
	return skb && !skb_transport_offset(skb);
}

/* What a member gets counts, by whatever rule it gets it. */
static inline struct sock *ps_picked(struct ps_group *g, struct ps_member *m)
{
	atomic64_inc(&m->picked);
	trace_pick(g, m);
	return m->sk;
}

/* The member that the policy itself chooses, or NULL. */
static inline struct ps_member *
ps_ask_policy(struct ps_group *g, const struct ps_set *set, u32 n,
	      const struct ps_policy *policy, const struct ps_flow *flow)
{
	struct ps_member *m;
	u32 attempt;

	for (attempt = 0; n && attempt < PS_PICK_ATTEMPTS; attempt++) {
		m = ps_set_member(set, policy->pick(g, set, n, flow, attempt));
		if (likely(ps_member_usable(m, g)))
			return m;
	}
	return NULL;
}

/* The member that the packet itself names, or NULL. */
static inline struct ps_member *ps_named(struct ps_group *g,
					 const struct ps_policy *policy,
					 const struct ps_flow *flow)
{
	struct ps_member *m;

	if (likely(!policy->named) || !flow->skb ||
	    g->key.proto != IPPROTO_UDP)
		return NULL;
	m = policy->named(g, flow);
	return m && READ_ONCE(m->candidate) && ps_member_usable(m, g) ? m :
									NULL;
}

/* ps_ask_policy() for a datagram of a group whose live flows stay where they are. */
static noinline_for_stack struct ps_member *
ps_ask_flow(struct ps_group *g, struct ps_flow_table *flows,
	    const struct ps_set *set, u32 n, const struct ps_policy *policy,
	    const struct ps_flow *flow)
{
	struct ps_flow_ref ref;
	struct ps_member *m;

	m = ps_flow_find(g, flows, flow->skb, &ref);
	if (m)
		return m;
	m = ps_ask_policy(g, set, n, policy, flow);
	return m ? ps_flow_add(g, flows, &ref, m) : NULL;
}

/**
 * ps_pick() - the socket that gets a packet
 * @g: the group
 * @set: its set
 * @n: what ps_set_count() said of it
 * @policy: to ask
 * @flow: of the packet
 * @counts: the packet starts a connection, or is a datagram; it is in @flow
 *
 * Context: softirq or process, RCU.
 * Return: NULL if no member can be picked: the kernel's own choice is to stand.
 */
static inline struct sock *
ps_pick(struct ps_group *g, const struct ps_set *set, u32 n,
	const struct ps_policy *policy, const struct ps_flow *flow,
	bool counts)
{
	struct ps_flow_table *flows;
	struct ps_member *m;

	m = ps_named(g, policy, flow);
	if (unlikely(m))
		return counts ? ps_picked(g, m) : m->sk;
	if (!counts) {
		m = ps_ask_policy(g, set, n, policy, flow);
		return m ? m->sk : NULL;
	}
	/* Pairs with rcu_assign_pointer() in ps_flows_resize_locked(). */
	flows = rcu_dereference(g->flows);
	m = unlikely(flows) ? ps_ask_flow(g, flows, set, n, policy, flow) :
			      ps_ask_policy(g, set, n, policy, flow);
	if (likely(m))
		return ps_picked(g, m);
	atomic64_inc(&g->fallbacks);
	return NULL;
}

#endif /* PS_PICK_H */
