// SPDX-License-Identifier: GPL-2.0
/*
 * Exclusive groups: nobody else may share the port, not even a socket of the
 * same user that the kernel would let in.
 */
#include "compat/walk.h"
#include "exclusive.h"
#include "group.h"
#include "member_table.h"

/**
 * ps_exclusive_refuses() - is a port kept from a socket by a group's key?
 * @sk: bound, or being bound, to its address; its lock is held
 * @port: host order
 * @secret: what the socket knows
 *
 * Context: any, without ps_lock.
 */
bool ps_exclusive_refuses(const struct sock *sk, u16 port,
			  const struct ps_secret *secret)
{
	struct ps_key key;
	bool refuses;

	/* Most ports have no group. */
	if (!test_bit(port, ps_ports(sk->sk_protocol)))
		return false;
	ps_key_of(&key, sk);
	key.port = port;
	spin_lock_bh(&ps_lock);
	refuses = ps_group_excludes(&key, secret);
	spin_unlock_bh(&ps_lock);
	return refuses;
}

struct ps_strangers {
	const struct sock *sk;
	const struct ps_secret *secret;
	struct ps_key key;
	bool found;
};

/*
 * Members of groups, whose keys have been compared. Also those that are just
 * now on their way between bind() and the group.
 */
static bool ps_is_partner(const struct sock *sk, const struct ps_secret *secret)
{
	const struct ps_member *m = ps_member_find(sk);

	if (!m)
		return false;
	return rcu_access_pointer(m->group) ||
	       (READ_ONCE(m->wish_join) && ps_secret_equal(&m->secret, secret));
}

static bool ps_strangers_look(struct sock *sk, void *arg)
{
	struct ps_strangers *strangers = arg;
	int state = READ_ONCE(sk->sk_state);
	struct ps_key key;

	if (sk == strangers->sk ||
	    !net_eq(sock_net(sk), strangers->key.net) ||
	    READ_ONCE(sk->sk_num) != strangers->key.port)
		return false;
	/*
	 * Connections that a server had accepted before share the port, too,
	 * and TIME_WAIT, which isn't a full socket.
	 */
	if (strangers->key.proto == IPPROTO_TCP && state != TCP_CLOSE &&
	    state != TCP_LISTEN)
		return false;
	ps_key_of(&key, sk);
	strangers->found = ps_key_overlaps(&key, &strangers->key) &&
			   !ps_is_partner(sk, strangers->secret);
	return strangers->found;
}

/**
 * ps_exclusive_strangers() - is a port shared by sockets that know no key?
 * @sk: bound to the port; its lock is held
 * @secret: what it knows
 *
 * To be asked when the group is in the table: who binds later is refused by
 * that, who did before is found here.
 *
 * Context: process, doesn't sleep.
 */
bool ps_exclusive_strangers(struct sock *sk, const struct ps_secret *secret)
{
	struct ps_strangers strangers = { .sk = sk, .secret = secret };

	ps_key_of(&strangers.key, sk);
	ps_walk_bound(sock_net(sk), sk->sk_protocol, strangers.key.port,
		      ps_strangers_look, &strangers);
	return strangers.found;
}
