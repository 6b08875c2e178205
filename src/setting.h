/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Numbers that programs (by option) and operators (by sysfs) set for a member
 * or a group, by the number of their option. What may be set where, and what
 * it does, is the same for both.
 */
#ifndef PS_SETTING_H
#define PS_SETTING_H

#include <linux/types.h>

struct ps_group;
struct ps_member;
struct ps_policy;

/* Numbers of a group that no option has; as an option's number. */
enum ps_setting {
	PS_SETTING_FLOWS = -1,
	PS_SETTING_QUIC_OFFSET = -2,
	PS_SETTING_QUIC_LENGTH = -3,
};

bool ps_setting_valid(int opt, s64 value);

bool ps_member_wished(const struct ps_member *m, int opt);
int ps_member_setting(const struct ps_member *m, int opt);
int ps_member_set(struct ps_member *m, int opt, int value);
bool ps_member_set_excludes(int opt);

int ps_group_setting(const struct ps_group *g, int opt);
int ps_group_set(struct ps_group *g, int opt, int value);
void ps_group_set_policy(struct ps_group *g, const struct ps_policy *policy);

void ps_setting_await(void);

#endif /* PS_SETTING_H */
