/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The parameters of the kernel's listener lookups, which differ between series.
 * portsteer hooks what they call; only the measurement calls them.
 */
#ifndef PSB_TCP_LOOKUP_H
#define PSB_TCP_LOOKUP_H

#ifdef PSB_TCP_CONST_NET
#define PSB_TCP_NET const struct net *net
#else
#define PSB_TCP_NET struct net *net
#endif

#ifdef PSB_TCP_HASHINFO
#define PSB_TCP_TABLE_PARAM struct inet_hashinfo *hashinfo,
#define PSB_TCP_TABLE_ARG hashinfo,
#else
#define PSB_TCP_TABLE_PARAM
#define PSB_TCP_TABLE_ARG
#endif

#define PSB_TCP4_PARAMS							\
	PSB_TCP_NET, PSB_TCP_TABLE_PARAM struct sk_buff *skb, int doff,	\
	const __be32 saddr, const __be16 sport, const __be32 daddr,	\
	const unsigned short hnum, const int dif, const int sdif

#define PSB_TCP6_PARAMS							\
	PSB_TCP_NET, PSB_TCP_TABLE_PARAM struct sk_buff *skb, int doff,	\
	const struct in6_addr *saddr, const __be16 sport,		\
	const struct in6_addr *daddr, const unsigned short hnum,	\
	const int dif, const int sdif

#endif /* PSB_TCP_LOOKUP_H */
