/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The parameters of the kernel's UDP lookups, which differ between series, and
 * the table they look in. What is said here is checked against the kernel's
 * headers when a hook is defined.
 */
#ifndef PS_COMPAT_LOOKUP_H
#define PS_COMPAT_LOOKUP_H

#include <net/udp.h>

#ifdef PS_UDP_CONST_NET
#define PS_UDP_NET const struct net *net
#else
#define PS_UDP_NET struct net *net
#endif

static inline struct udp_table *ps_udp_table(const struct net *net)
{
#ifdef PS_UDP_TABLE_PER_NET
	return net->ipv4.udp_table;
#else
	return &udp_table;
#endif
}

#ifdef PS_UDP_TABLE
#define PS_UDP_TABLE_OF(net) ps_udp_table(net),
#define PS_UDP_TABLE_PARAM struct udp_table *udptable,
#define PS_UDP_TABLE_ARG udptable,
#else
#define PS_UDP_TABLE_OF(net)
#define PS_UDP_TABLE_PARAM
#define PS_UDP_TABLE_ARG
#endif
#define PS_UDP_DPORT_ARG 4

#define PS_UDP4_PARAMS							\
	PS_UDP_NET, __be32 saddr, __be16 sport, __be32 daddr,		\
	__be16 dport, int dif, int sdif, PS_UDP_TABLE_PARAM		\
	struct sk_buff *skb
#define PS_UDP_ORIGINAL(fn)						\
	ps_original(fn)(net, saddr, sport, daddr, dport, dif, sdif,	\
			PS_UDP_TABLE_ARG skb)

#define PS_UDP6_PARAMS							\
	PS_UDP_NET, const struct in6_addr *saddr, __be16 sport,		\
	const struct in6_addr *daddr, __be16 dport, int dif, int sdif,	\
	PS_UDP_TABLE_PARAM struct sk_buff *skb

#endif /* PS_COMPAT_LOOKUP_H */
