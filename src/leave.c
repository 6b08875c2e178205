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
#include "migrate.h"
#include "peer.h"
#include "setting.h"

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
	if (m && ps_member_group(m)) {
		/*
		 * Bound to a device, it has left but keeps its address and its
		 * peer: the kernel has to look for it behind the group.
		 */
		if (READ_ONCE(sk->sk_bound_dev_if) != ps_member_group(m)->key.dev)
			ps_peer_release(m);
		else
			ps_peer_drop(m);
		ps_group_unselect(m);
	}
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

/*
 * The socket is about to be closed. A listener stops being chosen before, and
 * nothing goes on before the packets that had chosen it have got there: what
 * they have brought is in its queue when the kernel empties that, and a
 * handshake that ends from then on ends on another listener.
 */
static void ps_close_begin(struct sock *sk)
{
	struct ps_member *m;
	bool kept = false;

	spin_lock_bh(&ps_lock);
	m = ps_member_find_locked(sk);
	if (m) {
		kept = ps_gone_keep(m);
		/*
		 * A stranger would get the kernel's share of what is new until
		 * it is unhashed: it stays a member until then, of no choice.
		 */
		if (!kept && ps_member_group(m) && !ps_is_mptcp(sk))
			ps_group_unselect(m);
		else if (!kept)
			ps_member_unlink(m);
	}
	spin_unlock_bh(&ps_lock);
	if (kept)
		ps_setting_await();
}

/* It is closed; a rule may have adopted it meanwhile. */
static void ps_close_end(struct sock *sk)
{
	struct ps_group *g = NULL;
	struct ps_member *m;

	if (!ps_member_known(sk))
		return;
	spin_lock_bh(&ps_lock);
	m = ps_member_find_locked(sk);
	if (m && m->gone && list_empty(&m->gone_node)) {
		if (ps_group_get(m->home))
			g = m->home;
		ps_gone_closed(m);
	} else if (m) {
		ps_member_unlink(m);
	}
	spin_unlock_bh(&ps_lock);
	if (g) {
		ps_migrate_wake(g);
		ps_group_put(g);
	}
}

/* The last descriptor is closed. Context: process, may sleep (SO_LINGER). */
static int hook_inet_release(struct socket *sock)
{
	struct sock *sk = sock->sk;
	bool known = false, again = false;
	int err;

	ps_hook_enter();
	if (sk) {
		/* Every close() on the machine comes here: most are strangers. */
		known = ps_member_known(sk);
		again = known || ps_adoptable(sk);
		/* Keeps the address from being used for another socket. */
		if (again)
			sock_hold(sk);
		if (known)
			ps_close_begin(sk);
	}
	err = ps_original(inet_release)(sock);
	if (again) {
		/*
		 * Who adopts looks, after that, whether the socket is still
		 * hashed; pairs with smp_mb() in ps_adopt_sock(): one of the
		 * two sees the other.
		 */
		smp_mb();
		ps_close_end(sk);
		sock_put(sk);
	}
	ps_hook_exit();
	return err;
}

PS_DEFINE_HOOK(inet_release);

/*
 * A listener is about to be shut down: as before a close, but it may listen
 * again, so it stays a member. Returns its group, with a reference.
 */
static struct ps_group *ps_shutdown_begin(struct sock *sk)
{
	struct ps_group *g = NULL;
	struct ps_member *m;

	if (!ps_member_known(sk))
		return NULL;
	spin_lock_bh(&ps_lock);
	m = ps_member_find_locked(sk);
	if (m && m->candidate && !ps_is_mptcp(sk)) {
		g = ps_member_group(m);
		if (g->key.proto == IPPROTO_TCP && ps_group_get(g)) {
			ps_migrate_begin(g);
			ps_group_unselect(m);
		} else {
			g = NULL;
		}
	}
	spin_unlock_bh(&ps_lock);
	if (g)
		ps_setting_await();
	return g;
}

static void ps_shutdown_end(struct sock *sk, struct ps_group *g)
{
	struct ps_member *m;

	/* It didn't come to that, or another thread listens again. */
	lock_sock(sk);
	spin_lock_bh(&ps_lock);
	m = ps_member_find_locked(sk);
	if (m && ps_member_group(m) == g && sk->sk_state == TCP_LISTEN)
		ps_group_select(m);
	spin_unlock_bh(&ps_lock);
	release_sock(sk);
	ps_migrate_wake(g);
	ps_group_put(g);
}

PS_DECLARE_ORIGINAL(inet_shutdown);

/* Context: process, may sleep. */
static int hook_inet_shutdown(struct socket *sock, int how)
{
	struct sock *sk = sock->sk;
	struct ps_group *g = NULL;
	int err;

	ps_hook_enter();
	if (how == SHUT_RD || how == SHUT_RDWR)
		g = ps_shutdown_begin(sk);
	err = ps_original(inet_shutdown)(sock, how);
	if (g)
		ps_shutdown_end(sk, g);
	ps_hook_exit();
	return err;
}

PS_DEFINE_HOOK(inet_shutdown);
