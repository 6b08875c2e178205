// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/class/portsteer/<group>/members/<id>: whoever has the id in the group.
 */
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "compat/class.h"
#include "group.h"
#include "setting.h"
#include "state_name.h"
#include "sysfs.h"

struct ps_member_attr {
	struct attribute attr;
	int opt;	/* PORTSTEER_..., or 0 for what can't be set: */
	u64 (*read)(const struct ps_member *m);
};

static u64 ps_read_backlog(const struct ps_member *m)
{
	return ps_member_backlog(m);
}

static u64 ps_read_picked(const struct ps_member *m)
{
	return atomic64_read(&m->picked);
}

static u64 ps_read_migrated_in(const struct ps_member *m)
{
	return atomic64_read(&m->migrated_in);
}

static u64 ps_read_migrated_out(const struct ps_member *m)
{
	return atomic64_read(&m->migrated_out);
}

static u64 ps_read_inode(const struct ps_member *m)
{
	return sock_i_ino(m->sk);
}

#define PS_SETTING_ATTR(_name, _opt)					\
	static struct ps_member_attr ps_attr_##_name = {		\
		.attr = { .name = #_name, .mode = 0644 },		\
		.opt = _opt,						\
	}

#define PS_READ_ATTR(_name)						\
	static struct ps_member_attr ps_attr_##_name = {		\
		.attr = { .name = #_name, .mode = 0444 },		\
		.read = ps_read_##_name,				\
	}

PS_SETTING_ATTR(state, PORTSTEER_STATE);
PS_SETTING_ATTR(weight, PORTSTEER_WEIGHT);
PS_SETTING_ATTR(cpu, PORTSTEER_CPU);
PS_SETTING_ATTR(rx_queue, PORTSTEER_RX_QUEUE);
PS_SETTING_ATTR(generation, PORTSTEER_GENERATION);
PS_READ_ATTR(backlog);
PS_READ_ATTR(picked);
PS_READ_ATTR(migrated_in);
PS_READ_ATTR(migrated_out);
PS_READ_ATTR(inode);

static struct attribute *ps_member_attrs[] = {
	&ps_attr_state.attr,
	&ps_attr_weight.attr,
	&ps_attr_cpu.attr,
	&ps_attr_rx_queue.attr,
	&ps_attr_generation.attr,
	&ps_attr_backlog.attr,
	&ps_attr_picked.attr,
	&ps_attr_migrated_in.attr,
	&ps_attr_migrated_out.attr,
	&ps_attr_inode.attr,
	NULL,
};

static const struct attribute_group ps_member_attr_group = {
	.attrs = ps_member_attrs,
};

static const struct attribute_group *ps_member_attr_groups[] = {
	&ps_member_attr_group,
	NULL,
};

static struct ps_member_dir *ps_kobj_dir(const struct kobject *kobj)
{
	return container_of(kobj, struct ps_member_dir, kobj);
}

static ssize_t ps_setting_show(const struct ps_member_dir *dir, int opt,
			       char *buf)
{
	struct ps_member *m;
	int value = 0;

	spin_lock_bh(&ps_lock);
	m = xa_load(&dir->g->ids, dir->id);
	if (m)
		value = ps_member_setting(m, opt);
	spin_unlock_bh(&ps_lock);
	if (!m)
		return -ENODEV;
	if (opt == PORTSTEER_STATE)
		return sysfs_emit(buf, "%s\n", ps_state_name(value));
	return sysfs_emit(buf, "%d\n", value);
}

static ssize_t ps_member_show(struct kobject *kobj, struct attribute *attr,
			      char *buf)
{
	const struct ps_member_dir *dir = ps_kobj_dir(kobj);
	const struct ps_member_attr *ma;
	const struct ps_member *m;
	u64 value = 0;

	ma = container_of(attr, struct ps_member_attr, attr);
	if (ma->opt)
		return ps_setting_show(dir, ma->opt, buf);
	rcu_read_lock();
	m = xa_load(&dir->g->ids, dir->id);
	if (m)
		value = ma->read(m);
	rcu_read_unlock();
	return m ? sysfs_emit(buf, "%llu\n", value) : -ENODEV;
}

static ssize_t ps_member_store(struct kobject *kobj, struct attribute *attr,
			       const char *buf, size_t count)
{
	const struct ps_member_dir *dir = ps_kobj_dir(kobj);
	const struct ps_member_attr *ma;
	struct ps_member *m;
	int err, value;
	u32 wishes;

	ma = container_of(attr, struct ps_member_attr, attr);
	err = ps_value_setting(ma->opt, buf, count, &value);
	if (err)
		return err;
	spin_lock_bh(&ps_lock);
	m = xa_load(&dir->g->ids, dir->id);
	if (m) {
		/* It's the operator's will: no wish that outlives a rule. */
		wishes = m->wishes;
		err = ps_member_set(m, ma->opt, value);
		m->wishes = wishes;
	} else {
		err = -ENODEV;
	}
	spin_unlock_bh(&ps_lock);
	if (err)
		return err;
	if (ps_member_set_excludes(ma->opt))
		ps_setting_await();
	return count;
}

static const struct sysfs_ops ps_member_sysfs_ops = {
	.show = ps_member_show,
	.store = ps_member_store,
};

static void ps_member_dir_release(struct kobject *kobj)
{
	struct ps_member_dir *dir = ps_kobj_dir(kobj);

	ps_group_put(dir->g);
	kfree(dir);
	ps_sysfs_release();
}

static void ps_member_dir_owner(PS_KOBJECT *kobj, kuid_t *uid, kgid_t *gid)
{
	net_ns_get_ownership(ps_kobj_dir(kobj)->g->key.net, uid, gid);
}

static struct kobj_type ps_member_type = {
	.release = ps_member_dir_release,
	.sysfs_ops = &ps_member_sysfs_ops,
	.default_groups = ps_member_attr_groups,
	.get_ownership = ps_member_dir_owner,
};

static struct kobj_type ps_members_type = {
	.release = ps_member_dir_release,
	.sysfs_ops = &ps_member_sysfs_ops,
	.get_ownership = ps_member_dir_owner,
};

static struct ps_member_dir *ps_member_dir_alloc(struct ps_group *g)
{
	struct ps_member_dir *dir = kzalloc(sizeof(*dir), GFP_KERNEL_ACCOUNT);

	if (!dir)
		return NULL;
	ps_sysfs_hold();
	ps_group_get(g);
	dir->g = g;
	return dir;
}

/**
 * ps_members_dir_add() - make the directory that members' are in
 * @g: the group; the caller holds a reference, the directory takes its own
 * @parent: the group's directory
 *
 * Context: process, may sleep, no locks that a handler takes.
 * Return: the directory, to be undone by ps_member_dir_remove(), or NULL.
 */
struct ps_member_dir *ps_members_dir_add(struct ps_group *g,
					 struct kobject *parent)
{
	struct ps_member_dir *dir = ps_member_dir_alloc(g);

	if (!dir)
		return NULL;
	if (!kobject_init_and_add(&dir->kobj, &ps_members_type, parent,
				  "members"))
		return dir;
	kobject_put(&dir->kobj);
	return NULL;
}

/**
 * ps_member_dir_add() - make the directory of an id
 * @g: the group; the caller holds a reference, the directory takes its own
 * @parent: from ps_members_dir_add()
 * @id: has none
 *
 * Context: process, may sleep, no locks that a handler takes.
 * Return: the directory, to be undone by ps_member_dir_remove(), or NULL.
 */
struct ps_member_dir *ps_member_dir_add(struct ps_group *g,
					struct ps_member_dir *parent, u32 id)
{
	struct ps_member_dir *dir = ps_member_dir_alloc(g);

	if (!dir)
		return NULL;
	dir->id = id;
	if (!kobject_init_and_add(&dir->kobj, &ps_member_type, &parent->kobj,
				  "%u", id))
		return dir;
	kobject_put(&dir->kobj);
	return NULL;
}

/**
 * ps_member_dir_remove() - remove a directory, when no handler runs any more
 * @dir: an id's, or the members' when it is empty
 *
 * Context: process, may sleep, no locks that a handler takes.
 */
void ps_member_dir_remove(struct ps_member_dir *dir)
{
	kobject_del(&dir->kobj);
	kobject_put(&dir->kobj);
}
