/* SPDX-License-Identifier: GPL-2.0 */
#ifndef PS_NAME_H
#define PS_NAME_H

#include <linux/if.h>
#include <linux/inet.h>

#include "group.h"

/* "udp:[" + address (%pI6c) + "]%" + device + ":65535" + "~4294967295" */
#define PS_NAME_LEN (5 + INET6_ADDRSTRLEN + 2 + IFNAMSIZ + 6 + 11 + 1)

void ps_group_name(const struct ps_group *g, char *buf, size_t size);

#endif /* PS_NAME_H */
