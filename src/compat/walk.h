/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Walks the kernel's own tables of listening TCP and bound UDP sockets.
 */
#ifndef PS_COMPAT_WALK_H
#define PS_COMPAT_WALK_H

#include <net/sock.h>

/* Called in an RCU read section and under a bucket lock; true ends the walk. */
typedef bool (*ps_walk_fn)(struct sock *sk, void *arg);

void ps_walk_port(struct net *net, u8 proto, u16 port, ps_walk_fn fn,
		  void *arg);
void ps_walk_bound(struct net *net, u8 proto, u16 port, ps_walk_fn fn,
		   void *arg);

#endif /* PS_COMPAT_WALK_H */
