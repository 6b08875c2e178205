// SPDX-License-Identifier: GPL-2.0
/*
 * Where connections go whose listener goes: those that nobody has accepted yet
 * when it is closed, and half-open ones later, when their handshake ends or
 * their SYN-ACK is sent again.
 *
 * The kernel asks reuseport_migrate_sock() for another listener and does the
 * rest. And where a handshake ends on a listener that is about to be closed,
 * the connection is queued on another one at once: else the close would meet
 * one that isn't in its queue yet.
 *
 * Packets: softirq, in an RCU read section. close(), shutdown(): process.
 */
#include <linux/tcp.h>
#include <net/inet_connection_sock.h>
#include <net/sock_reuseport.h>

#include "hook.h"
#include "hooks.h"
#include "load.h"
#include "member_table.h"
#include "migrate.h"
#include "trace.h"

/* Members looked at for each connection. */
#define PS_MIGRATE_SCAN 64

/* A place for a connection; the lowest is taken. */
struct ps_berth {
	struct ps_member *m;
	u8 faults;	/* enum ps_fault */
	u64 load;
};

/* What speaks against a member, the worst first. */
enum ps_fault {
	PS_FAULT_FULL = BIT(4),		/* of two full ones, the less so */
	PS_FAULT_DRAINING = BIT(3),
	PS_FAULT_STANDBY = BIT(2),
	PS_FAULT_DIFFERS = BIT(1),	/* socket options of its own */
	PS_FAULT_MUCH = BIT(0),		/* has got twice its share */
};

/* Would a connection of @from find on @to what it was begun with? */
static bool ps_alike(const struct sock *from, const struct sock *to)
{
	const struct inet_connection_sock *a = inet_csk(from);
	const struct inet_connection_sock *b = inet_csk(to);

	return READ_ONCE(a->icsk_ca_ops) == READ_ONCE(b->icsk_ca_ops) &&
	       READ_ONCE(a->icsk_accept_queue.rskq_defer_accept) ==
	       READ_ONCE(b->icsk_accept_queue.rskq_defer_accept) &&
	       !a->icsk_accept_queue.fastopenq.max_qlen ==
	       !b->icsk_accept_queue.fastopenq.max_qlen &&
	       tcp_sk(from)->save_syn == tcp_sk(to)->save_syn &&
	       sock_flag(from, SOCK_KEEPOPEN) == sock_flag(to, SOCK_KEEPOPEN);
}

static bool ps_got_much(const struct ps_group *g, const struct ps_member *m,
			u32 members)
{
	u32 moved = m->epoch == g->epoch ? READ_ONCE(m->moved) : 0;

	return moved >= 2 * (READ_ONCE(g->moved) / members + 1);
}

static void ps_berth_try(struct ps_berth *best, const struct ps_group *g,
			 struct ps_member *m, const struct sock *from,
			 u32 members)
{
	struct ps_berth berth = { .m = m };

	/* One that is just being shut down still listens. */
	if (m->sk == from || !READ_ONCE(m->candidate) ||
	    !ps_member_usable(m, g))
		return;
	if (sk_acceptq_is_full(m->sk))
		berth.faults |= PS_FAULT_FULL;
	if (READ_ONCE(m->state) == PORTSTEER_DRAINING)
		berth.faults |= PS_FAULT_DRAINING;
	if (READ_ONCE(m->state) == PORTSTEER_STANDBY)
		berth.faults |= PS_FAULT_STANDBY;
	if (!ps_alike(from, m->sk))
		berth.faults |= PS_FAULT_DIFFERS;
	if (ps_got_much(g, m, members))
		berth.faults |= PS_FAULT_MUCH;
	/* As policy least does, in fixed point. */
	berth.load = ((u64)ps_member_load(m) << 32) / READ_ONCE(m->weight);
	if (!best->m || berth.faults < best->faults ||
	    (berth.faults == best->faults && berth.load < best->load))
		*best = berth;
}

/*
 * The best place for a connection of @from. Members that aren't in the set are
 * draining, or don't listen: they are asked last.
 */
static struct ps_member *ps_berth_find(struct ps_group *g,
				       const struct sock *from)
{
	const struct ps_set *set = rcu_dereference(g->set);
	u32 all = ps_set_all(set), members = ps_set_count(set) ?: 1;
	struct ps_berth best = {};
	struct ps_member *m;
	unsigned long id;
	u32 i, first, scanned = 0;

	/* Members of a large group are looked at in turn. */
	first = all > PS_MIGRATE_SCAN ? READ_ONCE(g->moved) % all : 0;
	for (i = 0; i < min_t(u32, all, PS_MIGRATE_SCAN); i++)
		ps_berth_try(&best, g, ps_set_member(set, (first + i) % all),
			     from, members);
	if (best.m && best.faults < PS_FAULT_DRAINING)
		return best.m;
	xa_for_each(&g->ids, id, m) {
		ps_berth_try(&best, g, m, from, members);
		if (++scanned == PS_MIGRATE_SCAN)
			break;
	}
	return best.m;
}

/*
 * Another listener for a connection of @from, or NULL: the kernel's own way.
 * Context: softirq or process, RCU.
 */
static struct sock *ps_migrate_target(struct ps_group *g, struct ps_member *m)
{
	struct ps_member *to;

	if (READ_ONCE(g->keep_queue))
		return NULL;
	to = ps_berth_find(g, m->sk);
	if (!to) {
		atomic64_inc(&g->migrate_failed);
		return NULL;
	}
	if (to->epoch != g->epoch) {
		WRITE_ONCE(to->moved, 0);
		WRITE_ONCE(to->epoch, g->epoch);
	}
	WRITE_ONCE(to->moved, to->moved + 1);
	WRITE_ONCE(g->moved, g->moved + 1);
	atomic64_inc(&to->migrated_in);
	atomic64_inc(&m->migrated_out);
	atomic64_inc(&g->migrated);
	trace_migrate(g, m, to);
	return to->sk;
}

/* The group whose members take what @m has. RCU. */
static struct ps_group *ps_migrate_group(const struct ps_member *m)
{
	struct ps_group *g;

	/* Pairs with smp_store_release() in ps_gone_keep(). */
	if (!smp_load_acquire(&m->gone))
		return rcu_dereference(m->group);
	g = m->home;
	/* Its server may have been started anew since. */
	return READ_ONCE(g->members) ? g : ps_group_find_rcu(&g->key);
}

/* Its owner may set another callback at any time. */
static void ps_wake(struct sock *sk)
{
	void (*ready)(struct sock *sk) = READ_ONCE(sk->sk_data_ready);

	ready(sk);
}

/**
 * ps_migrate_begin() - a listener of a group begins to leave
 * @g: the group
 *
 * What moves from here on is shared out anew.
 * Context: any, under ps_lock.
 */
void ps_migrate_begin(struct ps_group *g)
{
	WRITE_ONCE(g->moved, 0);
	WRITE_ONCE(g->epoch, g->epoch + 1);
}

/**
 * ps_migrate_wake() - tell the members that were given something
 * @g: the group
 *
 * Some kernels don't, after a close. Once more does no harm.
 * Context: process, no locks.
 */
void ps_migrate_wake(struct ps_group *g)
{
	struct ps_member *m;
	unsigned long id;

	rcu_read_lock();
	if (READ_ONCE(g->moved))
		xa_for_each(&g->ids, id, m)
			if (READ_ONCE(m->epoch) == READ_ONCE(g->epoch) &&
			    READ_ONCE(m->moved))
				ps_wake(m->sk);
	rcu_read_unlock();
}

PS_DECLARE_ORIGINAL(reuseport_migrate_sock);

/* @sk doesn't listen any more. Returns a socket with a reference, or NULL. */
static struct sock *hook_reuseport_migrate_sock(struct sock *sk,
						struct sock *migrating_sk,
						struct sk_buff *skb)
{
	struct ps_member *m;
	struct ps_group *g;
	struct sock *to = NULL;

	ps_hook_enter();
	rcu_read_lock();
	m = ps_member_find(sk);
	g = m ? ps_migrate_group(m) : NULL;
	if (g)
		to = ps_migrate_target(g, m);
	/* The member's own reference keeps the socket's from being zero. */
	if (to && !refcount_inc_not_zero(&to->sk_refcnt))
		to = NULL;
	rcu_read_unlock();
	if (!to)
		to = ps_original(reuseport_migrate_sock)(sk, migrating_sk, skb);
	ps_hook_exit();
	return to;
}

PS_DEFINE_HOOK(reuseport_migrate_sock);

PS_DECLARE_ORIGINAL(inet_csk_complete_hashdance);

/*
 * A handshake has ended; @sk is the listener that @child is to be queued on.
 * Context: softirq, RCU.
 */
static struct sock *
hook_inet_csk_complete_hashdance(struct sock *sk, struct sock *child,
				 struct request_sock *req, bool own_req)
{
	struct sock *to = NULL;
	struct ps_member *m;
	struct ps_group *g;

	/* Pairs with ps_gone_keep() and ps_group_unselect(): see leave.c. */
	m = own_req ? ps_member_find(sk) : NULL;
	if (m && (READ_ONCE(m->gone) || !READ_ONCE(m->candidate))) {
		g = ps_migrate_group(m);
		to = g ? ps_migrate_target(g, m) : NULL;
	}
	if (!to)
		return ps_original(inet_csk_complete_hashdance)(sk, child, req,
								own_req);
	child = ps_original(inet_csk_complete_hashdance)(to, child, req,
							 own_req);
	/* Our caller wakes the other one. */
	if (child)
		ps_wake(to);
	return child;
}

PS_DEFINE_HOOK(inet_csk_complete_hashdance);

static struct ps_hook *const ps_migrate_hooks[] = {
	&ps_hook_inet_csk_complete_hashdance,
};

/* The price that a connection of every other port pays. */
static void notrace ps_filter_hashdance(unsigned long ip,
					unsigned long parent_ip,
					struct ftrace_ops *ops,
					struct ps_fregs *fregs)
{
	const struct sock *child = (const struct sock *)ps_fregs_arg(fregs, 1);

	if (test_bit(READ_ONCE(child->sk_num), ps_ports_tcp))
		ps_fregs_redirect(fregs, hook_inet_csk_complete_hashdance);
}

struct ps_hook_set ps_hook_set_migrate = {
	.filter = ps_filter_hashdance,
	.hooks = ps_migrate_hooks,
	.n = ARRAY_SIZE(ps_migrate_hooks),
};
