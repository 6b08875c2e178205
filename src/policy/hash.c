// SPDX-License-Identifier: GPL-2.0
/*
 * hash: by keyed hash of the 4-tuple, spread over the members by weight.
 *
 * Costs a multiplication (with a seed: 30 ns or so of hashing), whatever the
 * size of the group; where weights differ, a binary search too.
 *
 * The key keeps a client from choosing its worker. Unless hosts have to agree,
 * the kernel's own hash serves, which is keyed with a secret of this boot and
 * has been computed anyway, scattered by a random key of this load. With a
 * seed, hsiphash (SipHash-1-3 on 64 bit) is enough: an attacker sees no hash
 * values, only, at best, which flows share a worker.
 */
#include <linux/kernel.h>
#include <linux/random.h>
#include <linux/siphash.h>
#include <linux/string.h>

#include "../choose.h"
#include "../policy.h"
#include "../tuple.h"

/*
 * Written by the operator while packets read it: a lookup that mixes the halves
 * of two seeds gives a member too, only another one.
 */
static hsiphash_key_t ps_seed __read_mostly;
static bool ps_seeded __read_mostly;
/* How often the seed has been set. */
static u32 ps_seeds;
/* Of this load, where there is no seed. */
static hsiphash_key_t ps_load_key __read_mostly;
/* Odd, so that multiplying by it maps the hashes one to one. */
static u32 ps_scatter __read_mostly = 1;

/*
 * The same on every host that has the same seed, so addresses and ports are
 * taken as they are in the packet.
 */
static u32 ps_seeded_hash(const struct sk_buff *skb)
{
	struct ps_tuple6 tuple;

	if (ps_skb_is_v6(skb)) {
		ps_tuple6_of(skb, &tuple);
		return hsiphash(&tuple, sizeof(tuple), &ps_seed);
	}
	return hsiphash_3u32((__force u32)ip_hdr(skb)->saddr,
			     (__force u32)ip_hdr(skb)->daddr,
			     ps_skb_ports(skb), &ps_seed);
}

/**
 * ps_flow_hash() - the hash that stands for a flow
 * @flow: of the packet
 *
 * Context: any, RCU.
 */
u32 ps_flow_hash(const struct ps_flow *flow)
{
	if (READ_ONCE(ps_seeded) && flow->skb)
		return ps_seeded_hash(flow->skb);
	return flow->hash * ps_scatter;
}

/**
 * ps_keyed_hash() - of two numbers, that nobody without the seed can foretell
 * @a: the one
 * @b: the other
 *
 * The same on every host that has the same seed.
 *
 * Context: any.
 */
u32 ps_keyed_hash(u32 a, u32 b)
{
	return hsiphash_2u32(a, b, READ_ONCE(ps_seeded) ? &ps_seed :
							  &ps_load_key);
}

/**
 * ps_seed_epoch() - changes after every change of the seed
 *
 * Who keeps what was made with the seed asks before it makes it, and before it
 * uses it.
 *
 * Context: any.
 */
u32 ps_seed_epoch(void)
{
	/* Pairs with ps_seed_changed(): later hashes are by the new seed. */
	return smp_load_acquire(&ps_seeds);
}

/* As a policy's @pick; also for those that go on as hash does. */
u32 ps_hash_pick(struct ps_group *group, const struct ps_set *set, u32 n,
		 const struct ps_flow *flow, u32 attempt)
{
	return ps_choose_by_hash(set, n, ps_flow_hash(flow), attempt);
}

const struct ps_policy ps_policy_hash = {
	.name = "hash",
	.follows_flow = true,
	.pick = ps_hash_pick,
};

/* At load. Context: process. */
void ps_hash_init(void)
{
	ps_scatter = get_random_u32() | 1;
	get_random_bytes(&ps_load_key, sizeof(ps_load_key));
}

/* The kernel lets in one writer of a module's parameters at a time. */
static void ps_seed_changed(bool seeded)
{
	WRITE_ONCE(ps_seeded, seeded);
	/* Pairs with ps_seed_epoch(). */
	smp_store_release(&ps_seeds, ps_seeds + 1);
}

/**
 * ps_hash_set_seed() - module parameter `seed`
 * @text: 32 hex digits, or "random"; may end in a newline
 *
 * Context: process.
 * Return: 0 or -EINVAL, and then nothing has changed.
 */
int ps_hash_set_seed(const char *text)
{
	hsiphash_key_t seed;

	if (sysfs_streq(text, "random")) {
		ps_seed_changed(false);
		return 0;
	}
	if (strcspn(text, "\n") != 2 * sizeof(seed) ||
	    (text[2 * sizeof(seed)] && text[2 * sizeof(seed) + 1]) ||
	    hex2bin((u8 *)&seed, text, sizeof(seed)))
		return -EINVAL;
	ps_seed = seed;
	ps_seed_changed(true);
	return 0;
}

/**
 * ps_hash_show_seed() - module parameter `seed`, as it could be written
 * @buf: of a page
 *
 * Context: process.
 * Return: the length.
 */
int ps_hash_show_seed(char *buf)
{
	if (!READ_ONCE(ps_seeded))
		return sprintf(buf, "random\n");
	return sprintf(buf, "%*phN\n", (int)sizeof(ps_seed), &ps_seed);
}
