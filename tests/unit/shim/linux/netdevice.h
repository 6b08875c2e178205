/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_NETDEVICE_H
#define SHIM_LINUX_NETDEVICE_H

#include <linux/if.h>
#include <linux/types.h>
#include <net/net_namespace.h>

struct net_device {
	char name[IFNAMSIZ];
	int ifindex;
};

static inline struct net_device *dev_get_by_index_rcu(struct net *net,
						      int ifindex)
{
	unsigned int i;

	for (i = 0; i < net->n_devices; i++)
		if (net->devices[i].ifindex == ifindex)
			return &net->devices[i];
	return NULL;
}

#endif /* SHIM_LINUX_NETDEVICE_H */
