// SPDX-License-Identifier: GPL-2.0
/*
 * What a group is called: tcp:0.0.0.0:443, udp:[::]:53, tcp:[fe80::1]%eth0:80,
 * tcp:0.0.0.0:443~2.
 */
#include <linux/netdevice.h>

#include "name.h"

/* A device that is gone, or in another namespace now, goes by its number. */
static int ps_device_name(const struct ps_key *key, char *buf, size_t size)
{
	const struct net_device *dev;
	int len;

	if (!key->dev)
		return 0;
	rcu_read_lock();
	dev = dev_get_by_index_rcu(key->net, key->dev);
	len = dev ? scnprintf(buf, size, "%%%s", dev->name) :
		    scnprintf(buf, size, "%%%d", key->dev);
	rcu_read_unlock();
	return len;
}

/**
 * ps_group_name() - for people and for sysfs
 * @g: the group
 * @buf: filled
 * @size: PS_NAME_LEN is enough
 *
 * Context: any, RCU.
 */
void ps_group_name(const struct ps_group *g, char *buf, size_t size)
{
	const struct ps_key *key = &g->key;
	const char *proto = key->proto == IPPROTO_TCP ? "tcp" : "udp";
	int len;

	if (key->family == AF_INET6)
		len = scnprintf(buf, size, "%s:[%pI6c]", proto, &key->addr);
	else
		len = scnprintf(buf, size, "%s:%pI4", proto, &key->addr);
	len += ps_device_name(key, buf + len, size - len);
	len += scnprintf(buf + len, size - len, ":%u", key->port);
	if (g->twin > 1)
		scnprintf(buf + len, size - len, "~%u", g->twin);
}
