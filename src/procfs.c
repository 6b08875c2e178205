// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/net/portsteer: a line a group, and an indented one a member.
 */
#include <linux/proc_fs.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/seq_file_net.h>

#include "group.h"
#include "name.h"
#include "net.h"
#include "setting.h"
#include "state_name.h"

/* A line is of one moment, or it would count who isn't there any more. */
static bool ps_proc_show_group(struct seq_file *seq, struct ps_group *g)
{
	char name[PS_NAME_LEN];
	bool there;

	spin_lock_bh(&ps_lock);
	there = g->members;
	if (there) {
		ps_group_name(g, name, sizeof(name));
		seq_printf(seq, "%s policy=%s members=%u selectable=%u working_generation=%d affinity=%d locked=%d migrate=%d picked=%llu fallbacks=%lld migrated=%lld migrate_failed=%lld\n",
			   name,
			   rcu_dereference_protected(g->policy,
						     lockdep_is_held(&ps_lock))->name,
			   g->members, ps_group_selectable(g),
			   ps_group_setting(g, PORTSTEER_WORKING_GENERATION),
			   ps_group_setting(g, PORTSTEER_AFFINITY),
			   g->locked, !g->keep_queue,
			   ps_group_picked(g), atomic64_read(&g->fallbacks),
			   atomic64_read(&g->migrated),
			   atomic64_read(&g->migrate_failed));
	}
	spin_unlock_bh(&ps_lock);
	return there;
}

static void ps_proc_show_member(struct seq_file *seq, struct ps_member *m,
				u32 id)
{
	seq_printf(seq, "  id=%u state=%s weight=%u cpu=%d rx_queue=%d generation=%u backlog=%u picked=%lld migrated_in=%lld migrated_out=%lld inode=%llu\n",
		   id, ps_state_name(READ_ONCE(m->state)),
		   READ_ONCE(m->weight), ps_member_cpu(m),
		   READ_ONCE(m->rx_queue), READ_ONCE(m->generation),
		   ps_member_backlog(m), atomic64_read(&m->picked),
		   atomic64_read(&m->migrated_in),
		   atomic64_read(&m->migrated_out),
		   (u64)sock_i_ino(m->sk));
}

/* Members in one go; between them others get their turn. */
#define PS_PROC_BATCH 64

static void ps_proc_show_members(struct seq_file *seq, struct ps_group *g)
{
	struct ps_member *m;
	unsigned long id = 0;
	unsigned int left;

	do {
		left = PS_PROC_BATCH;
		rcu_read_lock();
		xa_for_each_start(&g->ids, id, m, id) {
			ps_proc_show_member(seq, m, id);
			if (!--left)
				break;
		}
		rcu_read_unlock();
		id++;
		cond_resched();
		/* Full: all of it is done again, with a larger buffer. */
	} while (!left && !seq_has_overflowed(seq));
}

/*
 * All in one go: a table that changes between two reads of a part each would
 * show some members twice and others never. Groups are in the order in which
 * they were founded.
 */
static int ps_proc_show(struct seq_file *seq, void *v)
{
	struct ps_net *pn = ps_net(seq_file_single_net(seq));
	struct ps_group *g;
	u64 shown = 0;
	bool stands;

	rcu_read_lock();
again:
	list_for_each_entry_rcu(g, &pn->groups, net_node) {
		if (g->serial <= shown || !ps_group_get(g))
			continue;
		shown = g->serial;
		rcu_read_unlock();
		if (ps_proc_show_group(seq, g))
			ps_proc_show_members(seq, g);
		cond_resched();
		rcu_read_lock();
		stands = READ_ONCE(g->members);
		ps_group_put(g);
		if (seq_has_overflowed(seq))
			break;
		/* Its next one may have gone by now. */
		if (!stands)
			goto again;
	}
	rcu_read_unlock();
	return 0;
}

int ps_procfs_add(struct net *net)
{
	if (!proc_create_net_single("portsteer", 0444, net->proc_net,
				    ps_proc_show, NULL))
		return -ENOMEM;
	return 0;
}

void ps_procfs_remove(struct net *net)
{
	remove_proc_entry("portsteer", net->proc_net);
}
