/* SPDX-License-Identifier: GPL-2.0 */
/*
 * UDP flow affinity: a live flow stays on its socket.
 */
#ifndef PS_FLOW_H
#define PS_FLOW_H

#include <linux/types.h>

struct ps_flow_table;
struct ps_group;
struct ps_member;
struct sk_buff;

/* Flows that a group is to remember, a power of two. */
#define PS_FLOWS_MIN 64
#define PS_FLOWS_MAX 1048576
#define PS_FLOWS_DEFAULT 65536

/* Seconds, while a working generation is set and nobody said how many. */
#define PS_AFFINITY_OVERLAP 120

/* A datagram's flow, between ps_flow_find() and ps_flow_add(). */
struct ps_flow_ref {
	u64 key;
	u32 now;
	u32 stale;
};

void ps_flow_init(void);
void ps_flows_start(struct ps_group *g);
int ps_flows_update(struct ps_group *g);
void ps_flows_end(struct ps_group *g);
int ps_flows_reserve(struct ps_group *g);
int ps_flows_set_room(struct ps_group *g, u32 room);
u32 ps_flows_live(struct ps_group *g);
struct ps_member *ps_flow_find(struct ps_group *g, struct ps_flow_table *flows,
			       const struct sk_buff *skb,
			       struct ps_flow_ref *ref);
struct ps_member *ps_flow_add(struct ps_group *g, struct ps_flow_table *flows,
			      const struct ps_flow_ref *ref,
			      struct ps_member *m);

#endif /* PS_FLOW_H */
