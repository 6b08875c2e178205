/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a policy is: one file in policy/ with one of these in it.
 */
#ifndef PS_POLICY_H
#define PS_POLICY_H

#include <linux/types.h>

#include <uapi/portsteer.h>

struct ps_group;
struct ps_set;

/* What a packet (or a lookup without one) says of its flow. */
struct ps_flow {
	const void *saddr;	/* remote; struct in6_addr or __be32 */
	const void *daddr;	/* local */
	__be16 sport;
	u16 hnum;		/* local port, host order */
	bool v6;
};

/**
 * struct ps_policy - decides which selectable member gets a connection or flow
 * @name: what options, rules and sysfs call it
 * @pick: index in @set, below @n, of the member to take. @n is at least 1, and
 *	what a reader may use of @set: read it nowhere else. @attempt counts the
 *	members found unusable before, in this lookup; another attempt should
 *	give another member, spread evenly.
 *	Context: softirq or process, in an RCU read section, no locks.
 */
struct ps_policy {
	char name[PORTSTEER_POLICY_LEN];
	u32 (*pick)(struct ps_group *group, const struct ps_set *set, u32 n,
		    const struct ps_flow *flow, u32 attempt);
};

extern const struct ps_policy ps_policy_hash;
extern const struct ps_policy ps_policy_rr;

const struct ps_policy *ps_policy_find(const char *name);
const struct ps_policy *ps_policy_default(void);
void ps_policy_init(void);

/* hash.c: also what lookups use that start nothing. */
u32 ps_flow_hash(const struct ps_flow *flow);
int ps_hash_set_seed(const char *text);
void ps_hash_init_seed(void);
int ps_hash_show_seed(char *buf);

#endif /* PS_POLICY_H */
