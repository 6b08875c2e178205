/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_NET_INET_CONNECTION_SOCK_H
#define SHIM_NET_INET_CONNECTION_SOCK_H

#include <net/sock.h>

#define inet_csk(sk) (&(sk)->shim_icsk)

static inline int reqsk_queue_len(const struct request_sock_queue *queue)
{
	return atomic_read(&queue->qlen);
}

#endif /* SHIM_NET_INET_CONNECTION_SOCK_H */
