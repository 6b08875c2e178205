/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SET_CHECK_H
#define SET_CHECK_H

#include "bed.h"

/* What must be true of the set, from the members alone; or what isn't. */
static inline const char *set_check(const struct bed *bed)
{
	const struct ps_set *set = bed->set;
	u32 i, rank, at = 0, class = 0, sum = 0, n = ps_set_count(set);
	bool weighted = false;

	for (rank = 0; rank < PS_RANKS; rank++) {
		const struct ps_member *last = NULL;
		u32 of_rank = 0;

		for (i = 0; i < bed->n; i++)
			of_rank += bed->members[i].rank == rank;
		if (set->ranks[rank] != of_rank)
			return "the number of a rank's members";
		for (i = 0; i < of_rank; i++, at++) {
			const struct ps_member *m = ps_set_member(set, at);

			if (m->rank != rank)
				return "the order of ranks";
			if (last && last->id >= m->id)
				return "the order of ids";
			last = m;
		}
		if (!class)
			class = of_rank;
	}
	if (set->all != at)
		return "the number of all";
	if (n != class)
		return "the class isn't the best rank";
	for (i = 1; i < n; i++)
		weighted |= ps_set_member(set, i)->weight !=
			    ps_set_member(set, 0)->weight;
	if (set->weighted != weighted)
		return "weighted";
	for (i = 0; weighted && i < n; i++) {
		sum += ps_set_member(set, i)->weight;
		if (set->upto[i] != sum)
			return "the sums of weights";
	}
	if (weighted && ps_set_total(set, n) != sum)
		return "the total";
	return NULL;
}

#endif /* SET_CHECK_H */
