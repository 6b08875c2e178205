/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What portsteer keeps for each network namespace.
 */
#ifndef PS_NET_H
#define PS_NET_H

#include <linux/device.h>
#include <linux/hashtable.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>

struct ps_net {
	struct net *net;
	struct list_head groups;	/* RCU; written under ps_lock */
	struct xarray rules;		/* by protocol and port; RCU readers */
	struct mutex rules_mutex;	/* rules' writers */
	struct delayed_work adopt_again;
	struct class_attribute rules_attr;
	struct mutex dirs_mutex;	/* directories in sysfs come and go */
	DECLARE_HASHTABLE(dirs, 6);	/* groups' by name, under it */
};

extern unsigned int ps_net_id;

static inline struct ps_net *ps_net(const struct net *net)
{
	return net_generic(net, ps_net_id);
}

int ps_net_init(void);
void ps_net_exit(void);

int ps_procfs_add(struct net *net);
void ps_procfs_remove(struct net *net);

int ps_sysfs_init(void);
void ps_sysfs_exit(void);
int ps_sysfs_add(struct ps_net *pn);
void ps_sysfs_remove(struct ps_net *pn);

#endif /* PS_NET_H */
