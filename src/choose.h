/* SPDX-License-Identifier: GPL-2.0 */
/*
 * From a number to a member: what policies have in common. Pure: also built in
 * user space, by the unit tests.
 */
#ifndef PS_CHOOSE_H
#define PS_CHOOSE_H

#include <linux/kernel.h>

#include "policy.h"
#include "set.h"

/*
 * Members that a policy looks at, at most, while it has no index: 65536 of them
 * would hold up the packet. Those beyond get nothing by the policy's own rule
 * for that while.
 */
#define PS_SCAN_MAX 1024

static inline u32 ps_scan_size(u32 n)
{
	return n < PS_SCAN_MAX ? n : PS_SCAN_MAX;
}

/* One of @n but for @i, whatever their weights; @i if there is no other. */
static inline u32 ps_any_other(u32 n, u32 i, u32 hash)
{
	i += 1 + reciprocal_scale(hash, n - 1);
	return i < n ? i : i - n;
}

/**
 * ps_one_of() - one of some equals, by hash
 * @n: how many, at least 1
 * @hash: of the flow
 * @attempt: not the first one: another than at the first attempt
 *
 * Context: any.
 * Return: below @n.
 */
static inline u32 ps_one_of(u32 n, u32 hash, u32 attempt)
{
	u32 i = reciprocal_scale(hash, n);

	return likely(!attempt) ? i :
	       ps_any_other(n, i, ps_keyed_hash(hash, attempt));
}

/**
 * ps_choose() - one of a class by weight
 * @set: the set
 * @n: entries of it, at least 1
 * @hash: evenly spread over all of its values
 *
 * Context: any, RCU.
 * Return: below @n.
 */
static inline u32 ps_choose(const struct ps_set *set, u32 n, u32 hash)
{
	if (likely(!READ_ONCE(set->weighted)))
		return reciprocal_scale(hash, n);
	return ps_set_at(set, n,
			 reciprocal_scale(hash, ps_set_total(set, n)));
}

/**
 * ps_choose_other() - one of a class by weight, but for one of them
 * @set: the set
 * @n: entries of it, at least 1
 * @i: the one, below @n
 * @hash: evenly spread over all of its values
 *
 * Context: any, RCU.
 * Return: below @n; @i only if there is no other.
 */
static inline u32 ps_choose_other(const struct ps_set *set, u32 n, u32 i,
				  u32 hash)
{
	u32 start, width, total, point;

	if (likely(!READ_ONCE(set->weighted)))
		return ps_any_other(n, i, hash);
	total = ps_set_total(set, n);
	start = i ? READ_ONCE(set->upto[i - 1]) : 0;
	width = READ_ONCE(set->upto[i]) - start;
	/* Not so only while weights change. */
	if (width >= total)
		return ps_any_other(n, i, hash);
	point = reciprocal_scale(hash, total - width);
	return ps_set_at(set, n, point < start ? point : point + width);
}

/**
 * ps_choose_by_hash() - what policy hash takes
 * @set: the set
 * @n: entries of it, at least 1
 * @hash: of the flow
 * @attempt: not the first one: another than at the first attempt
 *
 * Context: any, RCU.
 * Return: below @n.
 */
static inline u32 ps_choose_by_hash(const struct ps_set *set, u32 n, u32 hash,
				    u32 attempt)
{
	u32 i = ps_choose(set, n, hash);

	/* An unusable member's flows go to all of the others. */
	return likely(!attempt) ? i :
	       ps_choose_other(set, n, i, ps_keyed_hash(hash, attempt));
}

#endif /* PS_CHOOSE_H */
