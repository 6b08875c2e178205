/* SPDX-License-Identifier: GPL-2.0 */
/*
 * MPTCP's own TCP sockets: no program has a descriptor of them, so that they
 * are closed without inet_release().
 */
#ifndef PS_COMPAT_MPTCP_H
#define PS_COMPAT_MPTCP_H

#include <linux/tcp.h>
#include <net/sock.h>

static inline bool ps_is_mptcp(const struct sock *sk)
{
#if IS_ENABLED(CONFIG_MPTCP)
	return sk->sk_protocol == IPPROTO_TCP && tcp_sk(sk)->is_mptcp;
#else
	return false;
#endif
}

#endif /* PS_COMPAT_MPTCP_H */
