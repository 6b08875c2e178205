/* SPDX-License-Identifier: GPL-2.0 */
#ifndef PS_NAME_H
#define PS_NAME_H

#include "group.h"

/* "udp:[" + address + "%" + device + "]:65535~4294967295" */
#define PS_NAME_LEN (5 + 39 + 1 + 16 + 7 + 11 + 1)

void ps_group_name(const struct ps_group *g, char *buf, size_t size);

#endif /* PS_NAME_H */
