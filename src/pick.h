/* SPDX-License-Identifier: GPL-2.0 */
/*
 * From a group to one of its sockets: the end of the packet path.
 */
#ifndef PS_PICK_H
#define PS_PICK_H

#include <linux/skbuff.h>

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

/**
 * ps_pick() - the socket that a policy chooses
 * @g: the group
 * @set: its set
 * @n: what ps_set_count() said of it
 * @policy: to ask
 * @flow: of the packet
 * @counts: the packet starts a connection, or is a datagram
 *
 * Context: softirq or process, RCU.
 * Return: NULL if no member can be picked: the kernel's own choice is to stand.
 */
static inline struct sock *
ps_pick(struct ps_group *g, const struct ps_set *set, u32 n,
	const struct ps_policy *policy, const struct ps_flow *flow,
	bool counts)
{
	struct ps_member *m;
	u32 attempt;

	for (attempt = 0; n && attempt < PS_PICK_ATTEMPTS; attempt++) {
		m = ps_set_member(set, policy->pick(g, set, n, flow, attempt));
		if (likely(ps_member_usable(m, g))) {
			if (counts) {
				atomic64_inc(&m->picked);
				trace_pick(g, m);
			}
			return m->sk;
		}
	}
	if (counts)
		atomic64_inc(&g->fallbacks);
	return NULL;
}

#endif /* PS_PICK_H */
