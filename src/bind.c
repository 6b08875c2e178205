// SPDX-License-Identifier: GPL-2.0
/*
 * Where a socket gets its port: at bind(), and once more in listen(). A socket
 * that wished to join, or that a rule is for, becomes a member here.
 */
#include <linux/string.h>
#include <net/inet_connection_sock.h>
#include <net/inet_hashtables.h>
#include <net/udp.h>

#include "adopt.h"
#include "compat/mptcp.h"
#include "exclusive.h"
#include "group.h"
#include "hook.h"
#include "hooks.h"
#include "member_table.h"
#include "rules.h"

/* Not in a context that may sleep for certain: BPF programs can bind. */
#define PS_BIND_GFP (GFP_ATOMIC | __GFP_ACCOUNT | __GFP_NOWARN)

/* A bind() or listen() on its way. */
struct ps_binding {
	struct ps_secret secret;	/* of a socket that is to join */
	bool joins;			/* by its own wish */
	bool gave_reuseport;
	bool was_bound;
	bool expected;			/* ps_expect() */
};

static bool ps_steerable(const struct sock *sk)
{
	return sk->sk_protocol == IPPROTO_TCP || sk->sk_protocol == IPPROTO_UDP;
}

static void ps_binding_begin(const struct sock *sk, struct ps_binding *b)
{
	struct ps_member *m;

	memset(b, 0, sizeof(*b));
	b->was_bound = READ_ONCE(sk->sk_num);
	rcu_read_lock();
	m = ps_member_find(sk);
	b->joins = m && READ_ONCE(m->wish_join);
	/* Changes under the socket lock only, which we hold. */
	if (b->joins)
		b->secret = m->secret;
	rcu_read_unlock();
}

/* Does an operator's rule make it share the port without being asked? */
static bool ps_forced(const struct sock *sk, u16 port)
{
	struct ps_rule rule;

	return port && ps_rule_find(sock_net(sk), sk->sk_protocol, port,
				    &rule) && rule.force;
}

/*
 * A UDP socket gets datagrams from within the kernel's bind() on, before it is a
 * member: say that it is going to be, so that they go by the group's policy. If
 * there is no memory for that, it is a stranger in that moment.
 */
static void ps_expect(struct sock *sk, u16 port, struct ps_binding *b)
{
	struct ps_member *m;
	struct ps_rule rule;

	if (sk->sk_protocol != IPPROTO_UDP || !sk->sk_reuseport ||
	    !(b->joins || (port && ps_rule_find(sock_net(sk), IPPROTO_UDP, port,
						&rule))))
		return;
	m = ps_member_get(sk, PS_BIND_GFP);
	if (IS_ERR(m))
		return;
	WRITE_ONCE(m->joining, true);
	b->expected = true;
}

/* It has joined, or it won't. */
static void ps_expect_end(struct sock *sk)
{
	struct ps_member *m;

	spin_lock_bh(&ps_lock);
	m = ps_member_find_locked(sk);
	if (m) {
		/* Pairs with smp_load_acquire() in ps_group_chosen(). */
		smp_store_release(&m->joining, false);
		ps_member_drop_if_idle(m);
	}
	spin_unlock_bh(&ps_lock);
}

/*
 * JOIN takes the place of SO_REUSEPORT, also if the program has switched that
 * off since. Returns 0, or -EADDRINUSE if a group's key keeps the socket out.
 */
static int ps_before_bind(struct sock *sk, u16 port, struct ps_binding *b)
{
	if (!ps_steerable(sk))
		return 0;
	ps_binding_begin(sk, b);
	if (port && ps_exclusive_refuses(sk, port, &b->secret))
		return -EADDRINUSE;
	if (!sk->sk_reuseport && (b->joins || ps_forced(sk, port))) {
		sk->sk_reuseport = 1;
		b->gave_reuseport = true;
	}
	ps_expect(sk, port, b);
	return 0;
}

static int ps_bind_join(struct sock *sk, const struct ps_binding *b)
{
	struct ps_join how = {};
	struct ps_member *m;
	struct ps_rule rule;
	int err;

	if (!sk->sk_reuseport)
		return 0;
	if (ps_rule_find(sock_net(sk), sk->sk_protocol, READ_ONCE(sk->sk_num),
			 &rule))
		ps_rule_join(&rule, &how);
	if (!b->joins && !how.by_rule)
		return 0;
	/* Closing one that doesn't listen yet would go unseen. */
	if (ps_is_mptcp(sk) && sk->sk_state != TCP_LISTEN)
		return 0;

	m = ps_member_get(sk, PS_BIND_GFP);
	err = IS_ERR(m) ? PTR_ERR(m) : ps_group_join(sk, &how, PS_BIND_GFP);
	/* A port must not stand open that was to be closed by a key. */
	if (err == -EADDRINUSE || (err == -ENOMEM && b->secret.len))
		return err;
	/* What fails for lack of memory is tried again where it may sleep. */
	if (err == -ENOMEM)
		ps_adopt_later(sock_net(sk));
	return 0;
}

PS_DECLARE_ORIGINAL(inet_put_port);

/* Undoes what the kernel, and we, have done in a bind that is to fail. */
static void ps_unbind(struct sock *sk, const struct ps_binding *b)
{
	struct ps_member *m;

	spin_lock_bh(&ps_lock);
	m = ps_member_find_locked(sk);
	if (m)
		ps_group_leave(m);
	spin_unlock_bh(&ps_lock);
	/* In listen() it stays bound, as it would if the kernel refused. */
	if (b->was_bound)
		return;
	if (sk->sk_protocol == IPPROTO_TCP)
		ps_call(inet_put_port)(sk);
	else
		sk->sk_prot->unhash(sk);
}

/*
 * @err is what bind has come to. Who founds a group with a key, and who binds
 * without, both look at what the other has left behind, each after it has left
 * its own: one of them sees the other.
 */
static int ps_bound_with(struct sock *sk, int err, const struct ps_binding *b)
{
	if (!err && ps_exclusive_refuses(sk, READ_ONCE(sk->sk_num), &b->secret))
		err = -EADDRINUSE;
	else if (!err)
		err = ps_bind_join(sk, b);
	else
		goto failed;
	if (!err && b->secret.len && ps_exclusive_strangers(sk, &b->secret))
		err = -EADDRINUSE;
	if (!err)
		return 0;
	ps_unbind(sk, b);
failed:
	if (b->gave_reuseport)
		sk->sk_reuseport = 0;
	return err;
}

static int ps_after_bind(struct sock *sk, int err, const struct ps_binding *b)
{
	if (!ps_steerable(sk))
		return err;
	err = ps_bound_with(sk, err, b);
	if (b->expected)
		ps_expect_end(sk);
	return err;
}

PS_DEFINE_CALL(inet_put_port);

PS_DECLARE_ORIGINAL(inet_csk_get_port);

/* Context: process, socket lock held, may sleep. */
static int hook_inet_csk_get_port(struct sock *sk, unsigned short snum)
{
	struct ps_binding b;
	int err;

	ps_hook_enter();
	err = ps_before_bind(sk, snum, &b);
	if (!err) {
		err = ps_original(inet_csk_get_port)(sk, snum);
		err = ps_after_bind(sk, err, &b);
	}
	ps_hook_exit();
	return err;
}

PS_DECLARE_ORIGINAL(udp_lib_get_port);

/* Context: process, socket lock held, may sleep. */
static int hook_udp_lib_get_port(struct sock *sk, unsigned short snum,
				 unsigned int hash2_nulladdr)
{
	struct ps_binding b;
	int err;

	ps_hook_enter();
	err = ps_before_bind(sk, snum, &b);
	if (!err) {
		err = ps_original(udp_lib_get_port)(sk, snum, hash2_nulladdr);
		err = ps_after_bind(sk, err, &b);
	}
	ps_hook_exit();
	return err;
}

PS_DEFINE_HOOK(inet_csk_get_port);
PS_DEFINE_HOOK(udp_lib_get_port);
