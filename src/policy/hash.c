// SPDX-License-Identifier: GPL-2.0
/*
 * hash: by keyed hash of the 4-tuple, uniform over the selectable members.
 *
 * The key keeps a client from choosing its worker. hsiphash (SipHash-1-3 on 64
 * bit) is enough for that: an attacker sees no hash values, only, at best,
 * which flows share a worker.
 */
#include <linux/kernel.h>
#include <linux/random.h>
#include <linux/siphash.h>
#include <linux/string.h>

#include "../group.h"
#include "../policy.h"

/*
 * Written by the operator while packets read it: a lookup that mixes the halves
 * of two seeds gives a member too, only another one.
 */
static hsiphash_key_t ps_seed __read_mostly;
static bool ps_seed_set;

/**
 * ps_flow_hash() - the keyed hash of a flow's 4-tuple
 * @flow: addresses of one family
 *
 * The same on every host that has the same seed, so addresses and ports are
 * taken as they are in the packet, in network order.
 *
 * Context: any.
 * Return: 32 bits, uniform.
 */
u32 ps_flow_hash(const struct ps_flow *flow)
{
	u32 ports = (u32)(__force u16)flow->sport << 16 |
		    (__force u16)htons(flow->hnum);

	if (flow->v6) {
		struct {
			u8 saddr[16], daddr[16];
			u32 ports;
		} tuple;

		memcpy(tuple.saddr, flow->saddr, sizeof(tuple.saddr));
		memcpy(tuple.daddr, flow->daddr, sizeof(tuple.daddr));
		tuple.ports = ports;
		return hsiphash(&tuple, sizeof(tuple), &ps_seed);
	}
	return hsiphash_3u32(*(const u32 *)flow->saddr,
			     *(const u32 *)flow->daddr, ports, &ps_seed);
}

static u32 ps_hash_pick(struct ps_group *group, const struct ps_set *set, u32 n,
			const struct ps_flow *flow, u32 attempt)
{
	u32 hash = ps_flow_hash(flow);
	u32 i = reciprocal_scale(hash, n);

	if (likely(!attempt) || n == 1)
		return i;
	/* One of the others: an unusable member's flows go to all of them. */
	i += 1 + reciprocal_scale(hsiphash_2u32(hash, attempt, &ps_seed),
				  n - 1);
	return i < n ? i : i - n;
}

const struct ps_policy ps_policy_hash = {
	.name = "hash",
	.pick = ps_hash_pick,
};

/**
 * ps_hash_set_seed() - module parameter `seed`: 32 hex digits
 * @text: may end in a newline
 *
 * Context: process.
 * Return: 0 or -EINVAL, and then nothing has changed.
 */
int ps_hash_set_seed(const char *text)
{
	hsiphash_key_t seed;
	size_t len = strcspn(text, "\n");

	if (len != 2 * sizeof(seed) || (text[len] && text[len + 1]) ||
	    hex2bin((u8 *)&seed, text, sizeof(seed)))
		return -EINVAL;
	ps_seed = seed;
	ps_seed_set = true;
	return 0;
}

/* A seed nobody knows, unless the operator gave one. */
void ps_hash_init_seed(void)
{
	if (!ps_seed_set)
		get_random_bytes(&ps_seed, sizeof(ps_seed));
}

int ps_hash_show_seed(char *buf)
{
	return sprintf(buf, "%*phN\n", (int)sizeof(ps_seed), &ps_seed);
}
