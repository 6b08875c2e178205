/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Turns, for the policies that take them.
 */
#ifndef PS_RR_H
#define PS_RR_H

#include "../group.h"
#include "../policy.h"

u32 ps_rr_next(struct ps_group *group, const struct ps_set *set, u32 n,
	       const struct ps_policy *policy);
size_t ps_rr_index_size(u32 n);
void ps_rr_index_build(void *index, const struct ps_trait *traits, u32 n,
		       const void *old);

#endif /* PS_RR_H */
