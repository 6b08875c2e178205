/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a member has to do yet.
 */
#ifndef PS_LOAD_H
#define PS_LOAD_H

#include <net/inet_connection_sock.h>
#include <net/sock.h>

#include "group.h"

/**
 * ps_member_load() - what waits for a member's worker
 * @m: a member
 *
 * TCP: connections to be accepted, and half-open ones, which will be: a burst
 * of SYNs counts before the first of its handshakes is done. UDP: bytes queued,
 * as the kernel accounts them.
 *
 * Context: any, RCU.
 */
static inline u32 ps_member_load(const struct ps_member *m)
{
	const struct sock *sk = m->sk;

	if (sk->sk_protocol == IPPROTO_UDP)
		return sk_rmem_alloc_get(sk);
	return READ_ONCE(sk->sk_ack_backlog) +
	       reqsk_queue_len(&inet_csk(sk)->icsk_accept_queue);
}

#endif /* PS_LOAD_H */
