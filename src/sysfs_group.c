// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/class/portsteer/<group>: a device, for that is what classes are made of.
 */
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "flow.h"
#include "group.h"
#include "setting.h"
#include "sysfs.h"

/* Good while a handler runs: the directory goes after the last of them. */
static struct ps_group *ps_dev_group(struct device *dev)
{
	return container_of(dev, struct ps_group_dir, dev)->g;
}

static ssize_t policy_show(struct device *dev, struct device_attribute *attr,
			   char *buf)
{
	struct ps_group *g = ps_dev_group(dev);
	const struct ps_policy *current_one, *policy;
	unsigned int i;
	int len = 0;

	rcu_read_lock();
	current_one = rcu_dereference(g->policy);
	rcu_read_unlock();
	for (i = 0; (policy = ps_policy_nth(i)); i++)
		len += sysfs_emit_at(buf, len, policy == current_one ?
				     "%s[%s]" : "%s%s", i ? " " : "",
				     policy->name);
	return len + sysfs_emit_at(buf, len, "\n");
}

static const struct ps_policy *ps_policy_written(const char *buf, size_t count)
{
	const struct ps_policy *policy;
	unsigned int i;

	if (strlen(buf) != count)
		return NULL;
	for (i = 0; (policy = ps_policy_nth(i)); i++)
		if (sysfs_streq(buf, policy->name))
			return policy;
	return NULL;
}

static ssize_t policy_store(struct device *dev, struct device_attribute *attr,
			    const char *buf, size_t count)
{
	const struct ps_policy *policy = ps_policy_written(buf, count);
	struct ps_group *g = ps_dev_group(dev);
	int err = 0;

	if (!policy)
		return -EINVAL;
	spin_lock_bh(&ps_lock);
	if (g->members)
		ps_group_set_policy(g, policy);
	else
		err = -ENODEV;
	spin_unlock_bh(&ps_lock);
	return err ?: count;
}

static DEVICE_ATTR_RW(policy);

static ssize_t locked_show(struct device *dev, struct device_attribute *attr,
			   char *buf)
{
	return sysfs_emit(buf, "%d\n", READ_ONCE(ps_dev_group(dev)->locked));
}

static ssize_t locked_store(struct device *dev, struct device_attribute *attr,
			    const char *buf, size_t count)
{
	struct ps_group *g = ps_dev_group(dev);
	bool locked;
	int err;

	err = ps_value_flag(buf, count, &locked);
	if (err)
		return err;
	spin_lock_bh(&ps_lock);
	WRITE_ONCE(g->locked, locked);
	spin_unlock_bh(&ps_lock);
	return count;
}

static DEVICE_ATTR_RW(locked);

static ssize_t migrate_show(struct device *dev, struct device_attribute *attr,
			    char *buf)
{
	return sysfs_emit(buf, "%d\n",
			  !READ_ONCE(ps_dev_group(dev)->keep_queue));
}

static ssize_t migrate_store(struct device *dev, struct device_attribute *attr,
			     const char *buf, size_t count)
{
	struct ps_group *g = ps_dev_group(dev);
	bool migrate;
	int err;

	err = ps_value_flag(buf, count, &migrate);
	if (err)
		return err;
	spin_lock_bh(&ps_lock);
	WRITE_ONCE(g->keep_queue, !migrate);
	spin_unlock_bh(&ps_lock);
	return count;
}

static DEVICE_ATTR_RW(migrate);

struct ps_number_attr {
	struct device_attribute attr;
	int opt;	/* PORTSTEER_... */
};

static int ps_number_opt(struct device_attribute *attr)
{
	return container_of(attr, struct ps_number_attr, attr)->opt;
}

static ssize_t ps_number_show(struct device *dev, struct device_attribute *attr,
			      char *buf)
{
	return sysfs_emit(buf, "%d\n", ps_group_setting(ps_dev_group(dev),
							ps_number_opt(attr)));
}

static ssize_t ps_number_store(struct device *dev,
			       struct device_attribute *attr, const char *buf,
			       size_t count)
{
	struct ps_group *g = ps_dev_group(dev);
	int opt = ps_number_opt(attr);
	int value, err;

	err = ps_value_setting(opt, buf, count, &value);
	if (err)
		return err;
	err = ps_group_set(g, opt, value);
	if (err)
		return err == -ENOENT ? -ENODEV : err;
	if (ps_member_set_excludes(opt))
		ps_setting_await();
	return count;
}

#define PS_NUMBER_ATTR(_name, _opt)					\
	static struct ps_number_attr ps_attr_##_name = {		\
		.attr = __ATTR(_name, 0644, ps_number_show,		\
			       ps_number_store),			\
		.opt = _opt,						\
	}

PS_NUMBER_ATTR(working_generation, PORTSTEER_WORKING_GENERATION);
PS_NUMBER_ATTR(affinity, PORTSTEER_AFFINITY);
PS_NUMBER_ATTR(affinity_flows, PS_SETTING_FLOWS);
PS_NUMBER_ATTR(quic_offset, PS_SETTING_QUIC_OFFSET);
PS_NUMBER_ATTR(quic_length, PS_SETTING_QUIC_LENGTH);

struct ps_stat_attr {
	struct device_attribute attr;
	u64 (*read)(struct ps_group *g);
};

static ssize_t ps_stat_show(struct device *dev, struct device_attribute *attr,
			    char *buf)
{
	const struct ps_stat_attr *stat;
	u64 value;

	stat = container_of(attr, struct ps_stat_attr, attr);
	value = stat->read(ps_dev_group(dev));
	return sysfs_emit(buf, "%llu\n", value);
}

static u64 ps_stat_picked(struct ps_group *g)
{
	u64 picked;

	rcu_read_lock();
	picked = ps_group_picked(g);
	rcu_read_unlock();
	return picked;
}

static u64 ps_stat_fallbacks(struct ps_group *g)
{
	return atomic64_read(&g->fallbacks);
}

static u64 ps_stat_migrated(struct ps_group *g)
{
	return atomic64_read(&g->migrated);
}

static u64 ps_stat_migrate_failed(struct ps_group *g)
{
	return atomic64_read(&g->migrate_failed);
}

static u64 ps_stat_flows(struct ps_group *g)
{
	return ps_flows_live(g);
}

static u64 ps_stat_flows_full(struct ps_group *g)
{
	return atomic64_read(&g->flows_full);
}

#define PS_STAT_ATTR(_name, _read)					\
	static struct ps_stat_attr ps_attr_##_name = {			\
		.attr = __ATTR(_name, 0444, ps_stat_show, NULL),	\
		.read = _read,						\
	}

PS_STAT_ATTR(picked, ps_stat_picked);
PS_STAT_ATTR(fallbacks, ps_stat_fallbacks);
PS_STAT_ATTR(migrated, ps_stat_migrated);
PS_STAT_ATTR(migrate_failed, ps_stat_migrate_failed);
PS_STAT_ATTR(flows, ps_stat_flows);
PS_STAT_ATTR(flows_full, ps_stat_flows_full);

static struct attribute *ps_group_attrs[] = {
	&dev_attr_policy.attr,
	&dev_attr_locked.attr,
	&dev_attr_migrate.attr,
	&ps_attr_working_generation.attr.attr,
	&ps_attr_affinity.attr.attr,
	&ps_attr_affinity_flows.attr.attr,
	&ps_attr_quic_offset.attr.attr,
	&ps_attr_quic_length.attr.attr,
	NULL,
};

static const struct attribute_group ps_group_attr_group = {
	.attrs = ps_group_attrs,
};

static struct attribute *ps_stat_attrs[] = {
	&ps_attr_picked.attr.attr,
	&ps_attr_fallbacks.attr.attr,
	&ps_attr_migrated.attr.attr,
	&ps_attr_migrate_failed.attr.attr,
	&ps_attr_flows.attr.attr,
	&ps_attr_flows_full.attr.attr,
	NULL,
};

static const struct attribute_group ps_stat_attr_group = {
	.name = "stats",
	.attrs = ps_stat_attrs,
};

static const struct attribute_group *ps_group_attr_groups[] = {
	&ps_group_attr_group,
	&ps_stat_attr_group,
	NULL,
};

static void ps_group_dir_release(struct device *dev)
{
	struct ps_group_dir *dir = container_of(dev, struct ps_group_dir, dev);

	ps_group_put(dir->g);
	kfree(dir);
	ps_sysfs_release();
}

/**
 * ps_group_dir_add() - make a group's directory
 * @g: the group; the caller holds a reference, the directory takes its own
 * @name: of the directory; free
 *
 * Context: process, may sleep, no locks that a handler takes.
 * Return: the directory, to be undone by ps_group_dir_remove(), or NULL.
 */
struct ps_group_dir *ps_group_dir_add(struct ps_group *g, const char *name)
{
	struct ps_group_dir *dir = kzalloc(sizeof(*dir), GFP_KERNEL_ACCOUNT);

	if (!dir)
		return NULL;
	ps_sysfs_hold();
	ps_group_get(g);
	dir->g = g;
	device_initialize(&dir->dev);
	dir->dev.class = &ps_class;
	dir->dev.release = ps_group_dir_release;
	dir->dev.groups = ps_group_attr_groups;
	dev_set_drvdata(&dir->dev, g->key.net);
	/* Nobody waits for it, and udev would ask about each. */
	dev_set_uevent_suppress(&dir->dev, true);
	device_set_pm_not_required(&dir->dev);
	if (dev_set_name(&dir->dev, "%s", name) || device_add(&dir->dev))
		goto put;
	dir->members = ps_members_dir_add(g, &dir->dev.kobj);
	if (!dir->members)
		goto del;
	return dir;

del:
	device_del(&dir->dev);
put:
	put_device(&dir->dev);
	return NULL;
}

/**
 * ps_group_dir_remove() - remove a group's directory
 * @dir: has no member's any more
 *
 * Context: process, may sleep, no locks that a handler takes.
 */
void ps_group_dir_remove(struct ps_group_dir *dir)
{
	ps_member_dir_remove(dir->members);
	device_unregister(&dir->dev);
}
