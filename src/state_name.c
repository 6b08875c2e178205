// SPDX-License-Identifier: GPL-2.0
/*
 * What people call the states of a member.
 */
#include <linux/kernel.h>
#include <linux/string.h>

#include <uapi/portsteer.h>

#include "state_name.h"

static const char *const ps_state_names[] = {
	[PORTSTEER_ACTIVE] = "active",
	[PORTSTEER_STANDBY] = "standby",
	[PORTSTEER_DRAINING] = "draining",
};

/**
 * ps_state_name() - for people
 * @state: enum portsteer_state
 *
 * Context: any.
 */
const char *ps_state_name(u8 state)
{
	return ps_state_names[state];
}

/**
 * ps_state_find() - by name
 * @text: the name, may end in a newline
 *
 * Context: any.
 * Return: enum portsteer_state, or -EINVAL.
 */
int ps_state_find(const char *text)
{
	return sysfs_match_string(ps_state_names, text);
}
