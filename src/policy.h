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
struct sk_buff;

/* What a policy may know of the packet. */
struct ps_flow {
	/*
	 * The kernel's hash of the 4-tuple, keyed with a secret of this boot:
	 * what its own choice is made of, so it costs us nothing.
	 */
	u32 hash;
	/* Its data begin at the transport header. */
	const struct sk_buff *skb;
};

/**
 * struct ps_policy - decides which selectable member gets a connection or flow
 * @name: what options, rules and sysfs call it
 * @pick: index in @set, below @n, of the member to take. @n is at least 1, and
 *	what a reader may use of @set: read it nowhere else. @attempt counts the
 *	members found unusable before, in this lookup; another attempt should
 *	give another member, spread evenly.
 *	Context: softirq or process, in an RCU read section, no locks.
 * @takes_turns: @pick changes something, so it must not be called for a packet
 *	that may still go elsewhere
 */
struct ps_policy {
	char name[PORTSTEER_POLICY_LEN];
	bool takes_turns;
	u32 (*pick)(struct ps_group *group, const struct ps_set *set, u32 n,
		    const struct ps_flow *flow, u32 attempt);
};

extern const struct ps_policy ps_policy_hash;
extern const struct ps_policy ps_policy_rr;

const struct ps_policy *ps_policy_find(const char *name);
const struct ps_policy *ps_policy_default(void);

/* hash.c */
void ps_hash_init(void);
int ps_hash_set_seed(const char *text);
int ps_hash_show_seed(char *buf);

#endif /* PS_POLICY_H */
