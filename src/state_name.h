/* SPDX-License-Identifier: GPL-2.0 */
#ifndef PS_STATE_NAME_H
#define PS_STATE_NAME_H

#include <linux/types.h>

const char *ps_state_name(u8 state);
int ps_state_find(const char *text);

#endif /* PS_STATE_NAME_H */
