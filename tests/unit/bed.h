/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A test bed: a group with its members, and packets for it.
 */
#ifndef BED_H
#define BED_H

#include <stdlib.h>

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/siphash.h>

#include "pick.h"

struct bed {
	struct ps_group group;
	struct ps_set *set;	/* n members with the ids 0..n-1 */
	struct ps_member *members;
	struct sock *socks;
	struct hlist_node *hashed;
};

/* TCP members, all of them usable. */
static inline void bed_init(struct bed *bed, u32 n)
{
	u32 i;

	memset(bed, 0, sizeof(*bed));
	bed->set = calloc(1, sizeof(*bed->set) + n * sizeof(bed->set->m[0]));
	bed->members = calloc(n, sizeof(*bed->members));
	bed->socks = calloc(n, sizeof(*bed->socks));
	bed->group.key.proto = IPPROTO_TCP;
	bed->group.key.port = 443;
	for (i = 0; i < n; i++) {
		bed->socks[i].sk_state = TCP_LISTEN;
		bed->socks[i].sk_num = 443;
		bed->socks[i].sk_node.pprev = &bed->hashed;
		bed->members[i].sk = &bed->socks[i];
		bed->members[i].group = &bed->group;
		bed->members[i].slot = i;
		bed->members[i].id = i;
		bed->set->m[i] = &bed->members[i];
	}
	bed->set->n = n;
	bed->set->cap = n;
	bed->group.set = bed->set;
	bed->group.members = n;
}

static inline void bed_free(struct bed *bed)
{
	free(bed->set);
	free(bed->members);
	free(bed->socks);
}

static inline void bed_break(struct bed *bed, u32 i)
{
	bed->socks[i].sk_state = TCP_CLOSE;
}

static inline bool bed_usable(const struct bed *bed, u32 i)
{
	return ps_member_usable(&bed->members[i], &bed->group);
}

static inline u32 bed_picked(const struct bed *bed, u32 i)
{
	return atomic64_read(&bed->members[i].picked);
}

static inline u32 bed_fallbacks(const struct bed *bed)
{
	return atomic64_read(&bed->group.fallbacks);
}

/* The member for a connection or datagram, or -1. */
static inline int bed_steer(struct bed *bed, const struct ps_policy *policy,
			    const struct ps_flow *flow)
{
	struct sock *sk = ps_pick(&bed->group, bed->set, bed->set->n, policy,
				  flow, true);

	return sk ? sk - bed->socks : -1;
}

/* A packet with what may be around its headers. Not to be copied. */
struct bed_flow {
	struct ps_flow flow;
	struct sk_buff skb;
	struct {
		u8 link[16];
		union {
			struct iphdr v4;
			struct ipv6hdr v6;
		};
		u8 options[8];
		__be16 sport, dport;
		u8 rest[16];
	} packet;
};

/* Flow @k of many: clients' ports one after the other, client by client. */
static inline const struct ps_flow *bed_flow(struct bed_flow *f, u32 k, bool v6)
{
	const hsiphash_key_t secret = { { 1, 2 } };
	u32 client = k / 500;

	memset(f, 0, sizeof(*f));
	f->flow.hash = hsiphash_1u32(k, &secret);
	f->flow.skb = &f->skb;
	f->skb.head = (u8 *)&f->packet;
	f->skb.network_header = offsetof(typeof(f->packet), v4);
	f->skb.transport_header = offsetof(typeof(f->packet), sport);
	f->skb.data = f->skb.head + f->skb.transport_header;
	f->packet.sport = htons(32768 + k % 500);
	f->packet.dport = htons(443);
	if (v6) {
		f->packet.v6.version = 6;
		f->packet.v6.saddr.s6_addr32[0] = htonl(0x20010db8);
		f->packet.v6.saddr.s6_addr32[3] = htonl(client + 1);
		f->packet.v6.daddr.s6_addr32[0] = htonl(0x20010db8);
		f->packet.v6.daddr.s6_addr32[3] = htonl(0x443);
	} else {
		f->packet.v4.version = 4;
		f->packet.v4.saddr = htonl(0x0a000001 + client);
		f->packet.v4.daddr = htonl(0xc0000201);
	}
	return &f->flow;
}

#endif /* BED_H */
