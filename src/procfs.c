// SPDX-License-Identifier: GPL-2.0
/*
 * /proc/net/portsteer: a line a group, and an indented one a member.
 */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/seq_file_net.h>

#include "group.h"
#include "member_table.h"
#include "name.h"
#include "net.h"

/*
 * Where a read is. A line is a group's own when @m is NULL, else a member's.
 * Only good within one read(): RCU is let go between two.
 */
struct ps_proc_iter {
	struct seq_net_private p;
	struct ps_group *g;
	struct ps_member *m;
	unsigned long id;
};

static bool ps_proc_step(struct ps_proc_iter *it, struct ps_net *pn)
{
	struct list_head *next;

	if (it->g) {
		it->m = it->m ? xa_find_after(&it->g->ids, &it->id, ULONG_MAX,
					      XA_PRESENT) :
				xa_find(&it->g->ids, &it->id, ULONG_MAX,
					XA_PRESENT);
		if (it->m)
			return true;
	}
	next = rcu_dereference(list_next_rcu(it->g ? &it->g->net_node :
						     &pn->groups));
	if (next == &pn->groups)
		return false;
	it->g = list_entry(next, struct ps_group, net_node);
	it->m = NULL;
	it->id = 0;
	return true;
}

static void *ps_proc_start(struct seq_file *seq, loff_t *pos)
	__acquires(RCU)
{
	struct ps_proc_iter *it = seq->private;
	loff_t n;

	rcu_read_lock();
	it->g = NULL;
	it->m = NULL;
	for (n = 0; n <= *pos; n++)
		if (!ps_proc_step(it, ps_net(seq_file_net(seq))))
			return NULL;
	return it;
}

static void *ps_proc_next(struct seq_file *seq, void *v, loff_t *pos)
{
	++*pos;
	return ps_proc_step(v, ps_net(seq_file_net(seq))) ? v : NULL;
}

static void ps_proc_stop(struct seq_file *seq, void *v)
	__releases(RCU)
{
	rcu_read_unlock();
}

static void ps_proc_show_group(struct seq_file *seq, struct ps_group *g)
{
	char name[PS_NAME_LEN];

	ps_group_name(g, name, sizeof(name));
	seq_printf(seq, "%s policy=%s members=%u selectable=%u picked=%llu fallbacks=%lld\n",
		   name, rcu_dereference(g->policy)->name,
		   READ_ONCE(g->members), ps_group_selectable(g),
		   ps_group_picked(g), atomic64_read(&g->fallbacks));
}

static void ps_proc_show_member(struct seq_file *seq, struct ps_member *m,
				u32 id)
{
	seq_printf(seq, "  id=%u state=active weight=1 cpu=-1 rx_queue=-1 generation=0 backlog=%u picked=%lld migrated_in=0 migrated_out=0 inode=%llu\n",
		   id, ps_member_backlog(m), atomic64_read(&m->picked),
		   (u64)sock_i_ino(m->sk));
}

static int ps_proc_show(struct seq_file *seq, void *v)
{
	struct ps_proc_iter *it = v;

	if (it->m)
		ps_proc_show_member(seq, it->m, it->id);
	else
		ps_proc_show_group(seq, it->g);
	return 0;
}

static const struct seq_operations ps_proc_ops = {
	.start = ps_proc_start,
	.next = ps_proc_next,
	.stop = ps_proc_stop,
	.show = ps_proc_show,
};

int ps_procfs_add(struct net *net)
{
	if (!proc_create_net("portsteer", 0444, net->proc_net, &ps_proc_ops,
			     sizeof(struct ps_proc_iter)))
		return -ENOMEM;
	return 0;
}

void ps_procfs_remove(struct net *net)
{
	remove_proc_entry("portsteer", net->proc_net);
}
