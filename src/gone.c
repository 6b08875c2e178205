// SPDX-License-Identifier: GPL-2.0
/*
 * Listeners that are closed, but not forgotten: half-open connections outlive
 * them, and ask for another listener when their handshake ends or their SYN-ACK
 * is sent again. What links the closed socket to its group has to live until
 * the last of them has gone, and not longer.
 */
#include <linux/sched.h>
#include <linux/workqueue.h>
#include <net/inet_connection_sock.h>

#include "compat/mptcp.h"
#include "group.h"
#include "member_table.h"
#include "migrate.h"

/* How often to see whether the last one has gone. */
#define PS_GONE_INTERVAL HZ

/* So many in one go: packets wait meanwhile. */
#define PS_GONE_BATCH 64

static void ps_gone_look(struct work_struct *work);
static DECLARE_DELAYED_WORK(ps_gone_work, ps_gone_look);
static LIST_HEAD(ps_gone);	/* under ps_lock */

/* Has the last half-open connection of what was a listener gone? */
static bool ps_gone_done(const struct ps_member *m)
{
	return !reqsk_queue_len(&inet_csk(m->sk)->icsk_accept_queue);
}

/**
 * ps_gone_keep() - a listener is about to be closed
 * @m: perhaps a member
 *
 * It leaves its group, and stays known if what it has queued is to move.
 *
 * Context: any, under ps_lock.
 * Return: true if it stays known.
 */
bool ps_gone_keep(struct ps_member *m)
{
	struct ps_group *g = ps_member_group(m);
	u32 id;

	lockdep_assert_held(&ps_lock);
	if (!g || g->key.proto != IPPROTO_TCP || g->keep_queue ||
	    ps_is_mptcp(m->sk))
		return false;
	/* One that was shut down before may have half-open ones yet. */
	if (m->sk->sk_state != TCP_LISTEN && ps_gone_done(m))
		return false;
	if (!ps_group_get(g))
		return false;
	ps_migrate_begin(g);
	WRITE_ONCE(m->home, g);
	/* Pairs with smp_load_acquire() in ps_migrate_group(). */
	smp_store_release(&m->gone, true);
	WRITE_ONCE(m->wish_join, false);
	id = m->id;
	/* Pairs with smp_rmb() in ps_group_of(). */
	smp_wmb();
	ps_group_leave(m);
	/* What the tracepoint goes on to call it. */
	WRITE_ONCE(m->id, id);
	return true;
}

/**
 * ps_gone_closed() - a listener that ps_gone_keep() kept is closed now
 * @m: closed, in the table; not to be used any more
 *
 * Context: any, under ps_lock.
 */
void ps_gone_closed(struct ps_member *m)
{
	lockdep_assert_held(&ps_lock);
	if (ps_gone_done(m)) {
		ps_member_unlink(m);
		return;
	}
	list_add_tail(&m->gone_node, &ps_gone);
	schedule_delayed_work(&ps_gone_work, PS_GONE_INTERVAL);
}

static void ps_gone_look(struct work_struct *work)
{
	unsigned int looked = 0;
	struct ps_member *m;
	LIST_HEAD(left);

	spin_lock_bh(&ps_lock);
	list_splice_init(&ps_gone, &left);
	while (!list_empty(&left)) {
		m = list_first_entry(&left, struct ps_member, gone_node);
		if (ps_gone_done(m))
			ps_member_unlink(m);
		else
			list_move_tail(&m->gone_node, &ps_gone);
		if (++looked % PS_GONE_BATCH)
			continue;
		/* Whoever unlinks a member takes it from either list. */
		spin_unlock_bh(&ps_lock);
		cond_resched();
		spin_lock_bh(&ps_lock);
	}
	if (!list_empty(&ps_gone))
		schedule_delayed_work(&ps_gone_work, PS_GONE_INTERVAL);
	spin_unlock_bh(&ps_lock);
}

/* When nothing closes any more. Context: process, may sleep. */
void ps_gone_exit(void)
{
	cancel_delayed_work_sync(&ps_gone_work);
}
