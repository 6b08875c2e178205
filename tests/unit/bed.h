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
#include <linux/slab.h>

#include "index.h"
#include "pick.h"
#include "policy/quic.h"

#include <machine.h>

struct bed {
	struct ps_group group;
	struct ps_set *set;	/* of all members, whose ids are 0..n-1 */
	struct ps_index *index;
	struct ps_member *members;
	struct sock *socks;
	struct hlist_node *hashed;
	u32 n;
};

static inline void bed_member_init(struct bed *bed, u32 i)
{
	struct ps_member *m = &bed->members[i];
	struct sock *sk = &bed->socks[i];

	sk->sk_state = TCP_LISTEN;
	sk->sk_num = 443;
	sk->sk_protocol = IPPROTO_TCP;
	sk->sk_node.pprev = &bed->hashed;
	m->sk = sk;
	m->group = &bed->group;
	m->id = i;
	m->weight = 1;
	m->cpu = -1;
	m->ran_on = -1;
	m->rx_queue = -1;
	m->rank = PS_RANK_NONE;
	m->candidate = true;
	xa_store(&bed->group.ids, i, m, GFP_KERNEL);
}

/* @n usable TCP members, in a set that has none. */
static inline void bed_init_empty(struct bed *bed, u32 n)
{
	u32 i;

	memset(bed, 0, sizeof(*bed));
	bed->n = n;
	bed->set = ps_set_alloc(n, GFP_KERNEL);
	bed->members = calloc(n, sizeof(*bed->members));
	bed->socks = calloc(n, sizeof(*bed->socks));
	bed->group.key.proto = IPPROTO_TCP;
	bed->group.key.port = 443;
	bed->group.working_generation = -1;
	bed->group.quic = PS_QUIC_DEFAULT;
	bed->group.set = bed->set;
	bed->group.members = n;
	for (i = 0; i < n; i++)
		bed_member_init(bed, i);
}

/* All of them active. */
static inline void bed_init(struct bed *bed, u32 n)
{
	u32 i;

	bed_init_empty(bed, n);
	for (i = 0; i < n; i++)
		ps_set_append(bed->set, &bed->members[i], PS_RANK_ACTIVE);
	ps_set_publish(bed->set);
}

/* Makes it a group of UDP sockets; handles begin at 1. */
static inline void bed_udp(struct bed *bed)
{
	u32 i;

	bed->group.key.proto = IPPROTO_UDP;
	for (i = 0; i < bed->n; i++) {
		bed->socks[i].sk_state = TCP_CLOSE;
		bed->socks[i].sk_protocol = IPPROTO_UDP;
		bed->members[i].handle = 1 + i;
		xa_store(&bed->group.handles, 1 + i, &bed->members[i],
			 GFP_KERNEL);
	}
}

static inline void bed_unindex(struct bed *bed)
{
	free(bed->index);
	bed->index = NULL;
	bed->group.index = NULL;
}

static inline void bed_free(struct bed *bed)
{
	bed_unindex(bed);
	kvfree(bed->set);
	xa_destroy(&bed->group.ids);
	xa_destroy(&bed->group.handles);
	free(bed->members);
	free(bed->socks);
}

/* After a change of members: what the module does, see rank.c. */
static inline void bed_changed(struct bed *bed)
{
	atomic_inc_return(&bed->group.version);
	ps_set_publish(bed->set);
}

static inline void bed_weigh(struct bed *bed, u32 i, u32 weight)
{
	bed->members[i].weight = weight;
	bed_changed(bed);
}

/* Of all: NULL is a weight of 1 for each. */
static inline void bed_weigh_all(struct bed *bed, const u32 *weights)
{
	u32 i;

	for (i = 0; i < bed->n; i++)
		bed->members[i].weight = weights ? weights[i] : 1;
	bed_changed(bed);
}

/* A fresh index of the members as they are; @old may be NULL. */
static inline struct ps_index *bed_build(const struct bed *bed,
					 const struct ps_policy *policy,
					 const struct ps_index *old)
{
	u32 i, n = ps_set_count(bed->set);
	struct ps_trait *traits;
	struct ps_index *index;

	index = calloc(1, sizeof(*index) + policy->index_size(n));
	traits = calloc(n, sizeof(*traits));
	for (i = 0; i < n; i++) {
		const struct ps_member *m = ps_set_member(bed->set, i);

		traits[i].id = m->id;
		traits[i].weight = m->weight;
		traits[i].cpu = ps_member_cpu(m);
		traits[i].rx_queue = m->rx_queue;
	}
	index->policy = policy;
	index->n = n;
	index->version = atomic_read(&bed->group.version);
	policy->index_build(index->data, traits, n, old ? old->data : NULL);
	free(traits);
	return index;
}

/* Brings the index up to date, if the policy has one: see index.c. */
static inline void bed_index(struct bed *bed, const struct ps_policy *policy)
{
	struct ps_index *old = bed->index;

	if (!policy->index_size)
		return;
	if (old && old->policy != policy)
		bed_unindex(bed);
	old = bed->index;
	bed->index = bed_build(bed, policy, old);
	bed->group.index = bed->index;
	free(old);
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
	struct sock *sk = ps_pick(&bed->group, bed->set,
				  ps_set_count(bed->set), policy, flow, true);

	return sk ? sk - bed->socks : -1;
}

/* The member for a flow, without asking whether it is usable. */
static inline u32 bed_pick(struct bed *bed, const struct ps_policy *policy,
			   const struct ps_flow *flow, u32 attempt)
{
	u32 n = ps_set_count(bed->set);
	u32 i = policy->pick(&bed->group, bed->set, n, flow, attempt);

	if (i >= n)
		abort();
	return ps_set_member(bed->set, i) - bed->members;
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
	f->skb.len = sizeof(f->packet) - f->skb.transport_header;
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
