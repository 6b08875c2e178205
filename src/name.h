/* SPDX-License-Identifier: GPL-2.0 */
#ifndef PS_NAME_H
#define PS_NAME_H

#include <linux/if.h>
#include <linux/inet.h>

#include "group.h"

/* "udp:[" + address (%pI6c) + "]%" + device + ":65535" + "~4294967295" */
#define PS_NAME_LEN (5 + INET6_ADDRSTRLEN + 2 + IFNAMSIZ + 6 + 11 + 1)

/* The address as IPv6 has it: IPv4 as ::ffff:a.b.c.d. Context: any. */
static inline void ps_key_addr6(const struct ps_key *key, u8 *addr)
{
	struct in6_addr mapped = { .s6_addr32[2] = htonl(0xffff) };

	mapped.s6_addr32[3] = key->addr.s6_addr32[0];
	memcpy(addr, key->family == AF_INET ? &mapped : &key->addr,
	       sizeof(mapped));
}

void ps_group_name(const struct ps_group *g, char *buf, size_t size);

#endif /* PS_NAME_H */
