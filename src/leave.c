// SPDX-License-Identifier: GPL-2.0
/*
 * Where a member stops: close(), shutdown(), process death, connect() of a UDP
 * socket.
 */
#include <net/sock.h>
#include <net/inet_common.h>
#include <net/sock_reuseport.h>

#include "compat/mptcp.h"
#include "group.h"
#include "hook.h"
#include "hooks.h"
#include "member_table.h"

/*
 * The socket leaves the kernel's group: it no longer listens, or its address
 * has changed, or it goes. All but the last may come back, so it stays a
 * member, with its id; its end is seen by inet_release().
 *
 * Context: any, often under the kernel's hash bucket locks.
 */
static void ps_stopped(struct sock *sk)
{
	struct ps_member *m;

	if (!ps_member_known(sk))
		return;
	if (ps_is_mptcp(sk)) {
		ps_member_drop(sk);
		return;
	}
	spin_lock_bh(&ps_lock);
	m = ps_member_find_locked(sk);
	if (m && ps_member_group(m))
		ps_group_unselect(m);
	spin_unlock_bh(&ps_lock);
}

PS_DECLARE_ORIGINAL(reuseport_detach_sock);

static void hook_reuseport_detach_sock(struct sock *sk)
{
	ps_hook_enter();
	ps_stopped(sk);
	ps_original(reuseport_detach_sock)(sk);
	ps_hook_exit();
}

PS_DEFINE_HOOK(reuseport_detach_sock);

#ifdef PS_HAVE_STOP_LISTEN
PS_DECLARE_ORIGINAL(reuseport_stop_listen_sock);

static void hook_reuseport_stop_listen_sock(struct sock *sk)
{
	ps_hook_enter();
	ps_stopped(sk);
	ps_original(reuseport_stop_listen_sock)(sk);
	ps_hook_exit();
}

PS_DEFINE_HOOK(reuseport_stop_listen_sock);
#endif /* PS_HAVE_STOP_LISTEN */

PS_DECLARE_ORIGINAL(inet_release);

/* Could a rule adopt it while it is being closed? Connections are the most. */
static bool ps_adoptable(const struct sock *sk)
{
	return sk->sk_reuseport && (sk->sk_protocol != IPPROTO_TCP ||
				    READ_ONCE(sk->sk_state) == TCP_LISTEN);
}

/* The last descriptor is closed. Context: process, may sleep (SO_LINGER). */
static int hook_inet_release(struct socket *sock)
{
	struct sock *sk = sock->sk;
	bool again = false;
	int err;

	ps_hook_enter();
	if (sk) {
		again = ps_adoptable(sk);
		/* Keeps the address from being used for another socket. */
		if (again)
			sock_hold(sk);
		ps_member_drop(sk);
	}
	err = ps_original(inet_release)(sock);
	if (again) {
		/*
		 * A rule may have adopted it meanwhile. Who adopts looks, after
		 * that, whether the socket is still hashed; pairs with smp_mb()
		 * in ps_adopt_sock(): one of the two sees the other.
		 */
		smp_mb();
		ps_member_drop(sk);
		sock_put(sk);
	}
	ps_hook_exit();
	return err;
}

PS_DEFINE_HOOK(inet_release);
