/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Changes of a member or of its group that change who is picked.
 */
#ifndef PS_RANK_H
#define PS_RANK_H

#include <linux/types.h>

struct ps_group;
struct ps_member;

void ps_group_place(struct ps_member *m);
void ps_group_reweigh(struct ps_member *m);
int ps_group_renumber(struct ps_member *m, u32 id);
int ps_group_set_working_generation(struct ps_group *g, s32 generation);

#endif /* PS_RANK_H */
