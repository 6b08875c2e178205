// SPDX-License-Identifier: GPL-2.0
/*
 * Where a socket gets its port: at bind(), and once more in listen(). A socket
 * that wished to join, or that a rule is for, becomes a member here.
 */
#include <net/inet_connection_sock.h>
#include <net/udp.h>

#include "adopt.h"
#include "compat/mptcp.h"
#include "group.h"
#include "hook.h"
#include "hooks.h"
#include "member_table.h"
#include "rules.h"

static bool ps_wants_join(const struct sock *sk)
{
	struct ps_member *m;
	bool wants;

	rcu_read_lock();
	m = ps_member_find(sk);
	wants = m && READ_ONCE(m->wish_join);
	rcu_read_unlock();
	return wants;
}

static bool ps_steerable(const struct sock *sk)
{
	return sk->sk_protocol == IPPROTO_TCP || sk->sk_protocol == IPPROTO_UDP;
}

/*
 * JOIN takes the place of SO_REUSEPORT, also if the program has switched that
 * off since. Returns true if it had to be set.
 */
static bool ps_before_bind(struct sock *sk)
{
	if (!ps_steerable(sk) || sk->sk_reuseport || !ps_wants_join(sk))
		return false;
	sk->sk_reuseport = 1;
	return true;
}

/* @err is what bind came to, @gave what ps_before_bind() said. */
static void ps_after_bind(struct sock *sk, int err, bool gave)
{
	gfp_t gfp = GFP_ATOMIC | __GFP_ACCOUNT | __GFP_NOWARN;
	struct ps_join how = {};
	struct ps_member *m;
	bool wants;

	if (err) {
		if (gave)
			sk->sk_reuseport = 0;
		return;
	}
	if (!ps_steerable(sk) || !sk->sk_reuseport)
		return;
	wants = ps_wants_join(sk);
	how.by_rule = ps_rule_policy(sock_net(sk), sk->sk_protocol,
				     READ_ONCE(sk->sk_num), &how.policy);
	if (!wants && !how.by_rule)
		return;
	/* Closing one that doesn't listen yet would go unseen. */
	if (ps_is_mptcp(sk) && sk->sk_state != TCP_LISTEN)
		return;

	/*
	 * Not in a context that may sleep for certain: BPF programs can bind.
	 * What fails for lack of memory is tried again where it may.
	 */
	m = ps_member_get(sk, gfp);
	err = IS_ERR(m) ? PTR_ERR(m) : ps_group_join(sk, &how, gfp);
	if (err == -ENOMEM)
		ps_adopt_later(sock_net(sk));
}

PS_DECLARE_ORIGINAL(inet_csk_get_port);

/* Context: process, socket lock held, may sleep. */
static int hook_inet_csk_get_port(struct sock *sk, unsigned short snum)
{
	bool gave;
	int err;

	ps_hook_enter();
	gave = ps_before_bind(sk);
	err = ps_original(inet_csk_get_port)(sk, snum);
	ps_after_bind(sk, err, gave);
	ps_hook_exit();
	return err;
}

PS_DECLARE_ORIGINAL(udp_lib_get_port);

/* Context: process, socket lock held, may sleep. */
static int hook_udp_lib_get_port(struct sock *sk, unsigned short snum,
				 unsigned int hash2_nulladdr)
{
	bool gave;
	int err;

	ps_hook_enter();
	gave = ps_before_bind(sk);
	err = ps_original(udp_lib_get_port)(sk, snum, hash2_nulladdr);
	ps_after_bind(sk, err, gave);
	ps_hook_exit();
	return err;
}

PS_DEFINE_HOOK(inet_csk_get_port);
PS_DEFINE_HOOK(udp_lib_get_port);
