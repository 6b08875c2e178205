/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a policy is: one file in policy/ with one of these in it.
 */
#ifndef PS_POLICY_H
#define PS_POLICY_H

#include <linux/types.h>

#include <uapi/portsteer.h>

struct ps_group;
struct ps_member;
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

/* What an index is made of: the members that a policy chooses from, by id. */
struct ps_trait {
	u32 id;
	u32 weight;
	s32 cpu;	/* in force, -1: not known */
	s32 rx_queue;	/* -1: by order */
};

/**
 * struct ps_policy - decides which selectable member gets a connection or flow
 * @name: what options, rules and sysfs call it
 * @pick: index in @set, below @n, of the member to take. @n is at least 1, and
 *	what a reader may use of @set, whose members are in the order of their
 *	ids: read it nowhere else. @attempt counts the members found unusable
 *	before, in this lookup; another attempt should give another member,
 *	spread evenly.
 *	Context: softirq or process, in an RCU read section, no locks.
 * @named: optional: the member that a datagram itself is for, whatever its state
 *	and generation, or NULL: then @pick is asked. It may be unusable.
 *	Context: as @pick; @flow has a packet.
 * @takes_turns: @pick changes something, or depends on what changes by the
 *	moment, so it must not be called for a packet that may still go
 *	elsewhere
 * @follows_flow: @pick depends on nothing but the flow and the members: it
 *	serves packets that start nothing, too
 * @by_cpu: @pick depends on which CPUs the members run on
 * @index_size: optional: bytes of an index of @n members, which makes @pick
 *	cheap. @pick has to do without while there is none (ps_index_of()), at a
 *	cost that may grow with the members, and with the same result.
 * @index_build: fill an index of @size bytes, zeroed, for @n members; @old is
 *	this policy's index before, or NULL.
 *	Context: process, may sleep.
 */
struct ps_policy {
	char name[PORTSTEER_POLICY_LEN];
	bool takes_turns;
	bool follows_flow;
	bool by_cpu;
	u32 (*pick)(struct ps_group *group, const struct ps_set *set, u32 n,
		    const struct ps_flow *flow, u32 attempt);
	struct ps_member *(*named)(struct ps_group *group,
				   const struct ps_flow *flow);
	size_t (*index_size)(u32 n);
	void (*index_build)(void *index, const struct ps_trait *traits, u32 n,
			    const void *old);
};

extern const struct ps_policy ps_policy_hash;
extern const struct ps_policy ps_policy_rr;
extern const struct ps_policy ps_policy_random;
extern const struct ps_policy ps_policy_least;
extern const struct ps_policy ps_policy_cpu;
extern const struct ps_policy ps_policy_numa;
extern const struct ps_policy ps_policy_rxqueue;
extern const struct ps_policy ps_policy_idle;
extern const struct ps_policy ps_policy_consistent;
extern const struct ps_policy ps_policy_quic;

const struct ps_policy *ps_policy_find(const char *name);
const struct ps_policy *ps_policy_default(void);
const struct ps_policy *ps_policy_nth(unsigned int i);

/* policy/hash.c */
u32 ps_hash_pick(struct ps_group *group, const struct ps_set *set, u32 n,
		 const struct ps_flow *flow, u32 attempt);
void ps_hash_init(void);
int ps_hash_set_seed(const char *text);
int ps_hash_show_seed(char *buf);
u32 ps_seed_epoch(void);
u32 ps_flow_hash(const struct ps_flow *flow);
u32 ps_keyed_hash(u32 a, u32 b);

/* policy/random.c */
void ps_random_init(void);
u32 ps_random_u32(void);

#endif /* PS_POLICY_H */
