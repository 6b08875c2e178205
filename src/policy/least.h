/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The members that a policy compares: all of them, or some.
 */
#ifndef PS_LEAST_H
#define PS_LEAST_H

#include "../choose.h"
#include "../group.h"
#include "../policy.h"

/* Up to so many members are compared all; of more, so many by chance. */
#define PS_LEAST_EXACT 64
#define PS_LEAST_SAMPLES 8

static inline u32 ps_sample_size(u32 n)
{
	return n <= PS_LEAST_EXACT ? n : PS_LEAST_SAMPLES;
}

/* The @k-th of those to be compared, from entry @first on. */
static inline u32 ps_sample(const struct ps_set *set, u32 n, u32 first, u32 k)
{
	if (unlikely(n > PS_LEAST_EXACT))
		return ps_choose(set, n, ps_random_u32());
	k += first;
	return k < n ? k : k - n;
}

u32 ps_least(struct ps_group *group, const struct ps_set *set, u32 n,
	     const struct ps_policy *policy);

#endif /* PS_LEAST_H */
