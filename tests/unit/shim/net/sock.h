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

struct request_sock_queue {
	atomic_t qlen;
};

struct sock {
	struct hlist_node sk_node;
	int sk_state;
	int sk_bound_dev_if;
	u16 sk_num;
	u16 sk_protocol;
	u32 sk_ack_backlog;
	atomic_t sk_rmem_alloc;
	/* What the kernel has behind it, in TCP sockets. */
	struct {
		struct request_sock_queue icsk_accept_queue;
	} shim_icsk;
};

static inline int sk_rmem_alloc_get(const struct sock *sk)
{
	return atomic_read(&sk->sk_rmem_alloc);
}

#endif /* SHIM_NET_SOCK_H */
