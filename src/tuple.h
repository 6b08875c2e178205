/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who sent a packet to whom, as it is in the packet.
 */
#ifndef PS_TUPLE_H
#define PS_TUPLE_H

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/skbuff.h>

struct ps_tuple6 {
	struct in6_addr saddr, daddr;
	u32 ports;
};

/* A packet whose data begin at the transport header. */
static inline bool ps_skb_is_v6(const struct sk_buff *skb)
{
	return ip_hdr(skb)->version == 6;
}

/* Source and destination port come first in TCP and in UDP. */
static inline u32 ps_skb_ports(const struct sk_buff *skb)
{
	return *(const u32 *)skb->data;
}

static inline void ps_tuple6_of(const struct sk_buff *skb,
				struct ps_tuple6 *tuple)
{
	tuple->saddr = ipv6_hdr(skb)->saddr;
	tuple->daddr = ipv6_hdr(skb)->daddr;
	tuple->ports = ps_skb_ports(skb);
}

#endif /* PS_TUPLE_H */
