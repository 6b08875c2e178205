/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Members of the node that the packet is on.
 */
#ifndef PS_NUMA_H
#define PS_NUMA_H

#include "../group.h"
#include "../policy.h"

u32 ps_numa_choose(const u32 *table, const struct ps_set *set, u32 n, u32 hash,
		   u32 attempt);
size_t ps_numa_index_size(u32 n);
void ps_numa_index_build(void *index, const struct ps_trait *traits, u32 n,
			 const void *old);

#endif /* PS_NUMA_H */
