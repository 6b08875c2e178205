/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_NET_SOCK_H
#define SHIM_NET_SOCK_H

#include <linux/atomic.h>
#include <linux/in.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <net/net_namespace.h>

struct sock {
	struct hlist_node sk_node;
	int sk_state;
	int sk_bound_dev_if;
	u16 sk_num;
};

#endif /* SHIM_NET_SOCK_H */
