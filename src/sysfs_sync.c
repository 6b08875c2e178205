// SPDX-License-Identifier: GPL-2.0
/*
 * Makes /sys/class/portsteer say what groups and members there are.
 *
 * Members come and go where nothing may sleep. So whoever has got an id is only
 * marked in the group's array of ids, and a directory whose member has left is
 * put on a list; neither takes memory. ps_sysfs_sync() does the rest, a little
 * later, and looks at nothing else: a group may be large.
 *
 * One at a time in a namespace: of two groups of the same name, one after the
 * other, the second may be settled first, and makes room for itself then.
 */
#include <linux/hashtable.h>
#include <linux/stringhash.h>

#include "compat/memcg.h"
#include "group.h"
#include "name.h"
#include "net.h"
#include "sysfs.h"

/* Of an id: its member has no directory yet. Mark 0 is of free ids. */
#define PS_ID_NEW XA_MARK_1

/* The group's name, and "~" and a number where a device was renamed. */
#define PS_DIR_NAME_LEN (PS_NAME_LEN + 11)

/* Of a new group. Context: any. */
void ps_sysfs_start(struct ps_group *g)
{
	INIT_LIST_HEAD(&g->dirs_gone);
}

/**
 * ps_sysfs_enrolled() - a member has got its id
 * @g: its group
 * @m: the member
 *
 * Context: any, under ps_lock. ps_group_changed() has to follow.
 */
void ps_sysfs_enrolled(struct ps_group *g, const struct ps_member *m)
{
	lockdep_assert_held(&ps_lock);
	xa_set_mark(&g->ids, m->id, PS_ID_NEW);
}

/**
 * ps_sysfs_left() - a member has its id no more
 * @g: its group
 * @m: the member
 *
 * Context: any, under ps_lock. ps_group_changed() has to follow.
 */
void ps_sysfs_left(struct ps_group *g, struct ps_member *m)
{
	lockdep_assert_held(&ps_lock);
	if (!m->dir)
		return;
	list_add_tail(&m->dir->node, &g->dirs_gone);
	m->dir = NULL;
}

static u32 ps_dir_hash(const char *name)
{
	return full_name_hash(NULL, name, strlen(name));
}

static struct ps_group_dir *ps_dir_find(struct ps_net *pn, const char *name)
{
	struct ps_group_dir *dir;

	hash_for_each_possible(pn->dirs, dir, node, ps_dir_hash(name))
		if (!strcmp(dev_name(&dir->dev), name))
			return dir;
	return NULL;
}

/* Removes what has gone; true if there was anything. */
static bool ps_sync_gone(struct ps_group *g)
{
	struct ps_member_dir *dir, *tmp;
	LIST_HEAD(gone);

	spin_lock_bh(&ps_lock);
	list_splice_init(&g->dirs_gone, &gone);
	spin_unlock_bh(&ps_lock);
	if (list_empty(&gone))
		return false;
	list_for_each_entry_safe(dir, tmp, &gone, node)
		ps_member_dir_remove(dir);
	return true;
}

/* An id without a directory, also none that is still to be removed. */
static u32 ps_sync_new_id(struct ps_group *g)
{
	unsigned long id = 0;
	bool found = false;

	spin_lock_bh(&ps_lock);
	if (list_empty(&g->dirs_gone))
		found = xa_find(&g->ids, &id, PORTSTEER_MAX_ID, PS_ID_NEW);
	spin_unlock_bh(&ps_lock);
	return found ? id : PS_NO_ID;
}

/* The member may have left meanwhile, and another may have got its id. */
static void ps_sync_attach(struct ps_group *g, struct ps_member_dir *dir)
{
	struct ps_member *m;

	spin_lock_bh(&ps_lock);
	m = xa_load(&g->ids, dir->id);
	if (m) {
		m->dir = dir;
		xa_clear_mark(&g->ids, dir->id, PS_ID_NEW);
	} else {
		list_add_tail(&dir->node, &g->dirs_gone);
	}
	spin_unlock_bh(&ps_lock);
}

static void ps_sync_members(struct ps_group *g)
{
	struct ps_member_dir *dir;
	u32 id;

	for (;;) {
		if (ps_sync_gone(g))
			continue;
		id = ps_sync_new_id(g);
		if (id == PS_NO_ID)
			break;
		dir = ps_member_dir_add(g, g->dir->members, id);
		/* Without memory it comes later: ps_sysfs_sync() says so. */
		if (!dir)
			break;
		ps_sync_attach(g, dir);
	}
}

/* Readers that don't hold the mutex only ask whether there is a directory. */
static void ps_sync_set_dir(struct ps_group *g, struct ps_group_dir *dir)
{
	spin_lock_bh(&ps_lock);
	g->dir = dir;
	spin_unlock_bh(&ps_lock);
}

/*
 * Of a group that has disbanded. Who waits for that sees that it's done by
 * there being none, whoever does it.
 */
static void ps_sync_remove(struct ps_group *g)
{
	ps_sync_gone(g);
	hash_del(&g->dir->node);
	ps_group_dir_remove(g->dir);
	ps_sync_set_dir(g, NULL);
}

/*
 * No two groups that stand have the same name, but a directory's is from when
 * it was made, and the device in it may have been renamed.
 */
static void ps_sync_name(struct ps_net *pn, const struct ps_group *g,
			 char *name)
{
	struct ps_group_dir *other;
	unsigned int n;
	size_t len;

	ps_group_name(g, name, PS_NAME_LEN);
	len = strlen(name);
	for (n = 2; (other = ps_dir_find(pn, name)); n++) {
		if (READ_ONCE(other->g->members))
			snprintf(name + len, PS_DIR_NAME_LEN - len, "~%u", n);
		else
			ps_sync_remove(other->g);
	}
}

static void ps_sync_create(struct ps_net *pn, struct ps_group *g)
{
	char name[PS_DIR_NAME_LEN];
	struct ps_group_dir *dir;

	ps_sync_name(pn, g, name);
	dir = ps_group_dir_add(g, name);
	if (!dir)
		return;
	hash_add(pn->dirs, &dir->node, ps_dir_hash(name));
	ps_sync_set_dir(g, dir);
}

/* Is there anything to do? Where not, the namespace may be gone. */
static bool ps_sync_due(struct ps_group *g)
{
	bool due;

	spin_lock_bh(&ps_lock);
	if (g->members)
		due = !g->dir || !list_empty(&g->dirs_gone) ||
		      xa_marked(&g->ids, PS_ID_NEW);
	else
		due = g->dir;
	spin_unlock_bh(&ps_lock);
	return due;
}

/**
 * ps_sysfs_sync() - make a group's directory what the group is
 * @g: the caller holds a reference
 *
 * Context: process, may sleep; not twice at a time for a group.
 * Return: true if there wasn't the memory for all of it.
 */
bool ps_sysfs_sync(struct ps_group *g)
{
	struct ps_memcg_scope scope;
	struct ps_net *pn;

	if (!ps_sync_due(g))
		return false;
	/* Its end waits for us: see ps_net_stop(). */
	pn = ps_net(g->key.net);
	mutex_lock(&pn->dirs_mutex);
	ps_memcg_enter(&scope, g->memcg);
	if (!g->dir && READ_ONCE(g->members))
		ps_sync_create(pn, g);
	if (g->dir && READ_ONCE(g->members))
		ps_sync_members(g);
	if (g->dir && !READ_ONCE(g->members))
		ps_sync_remove(g);
	ps_memcg_exit(&scope);
	mutex_unlock(&pn->dirs_mutex);
	return ps_sync_due(g);
}
