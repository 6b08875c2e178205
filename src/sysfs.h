/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The files below /sys/class/portsteer.
 *
 * A directory of ours lives as long as the kernel wants it to, which may be
 * longer than it can be seen: it holds a reference to its group, and is counted
 * until it is released, so that our code stays until then.
 */
#ifndef PS_SYSFS_H
#define PS_SYSFS_H

#include <linux/device.h>
#include <linux/kobject.h>
#include <linux/list.h>
#include <linux/types.h>

struct ps_group;
struct ps_member;

/* <group>/ */
struct ps_group_dir {
	struct device dev;
	struct ps_group *g;
	struct ps_member_dir *members;
	struct hlist_node node;	/* of the namespace's, under its dirs_mutex */
};

/* <group>/members/ and <group>/members/<id>/ */
struct ps_member_dir {
	struct kobject kobj;
	struct ps_group *g;
	u32 id;
	struct list_head node;	/* under ps_lock, once it is to go */
};

/* sysfs.c */
extern struct class ps_class;

void ps_sysfs_hold(void);
void ps_sysfs_release(void);

/* sysfs_value.c */
int ps_value_number(const char *buf, size_t count, s64 *value);
int ps_value_flag(const char *buf, size_t count, bool *value);
int ps_value_setting(int opt, const char *buf, size_t count, int *value);

/* sysfs_group.c */
struct ps_group_dir *ps_group_dir_add(struct ps_group *g, const char *name);
void ps_group_dir_remove(struct ps_group_dir *dir);

/* sysfs_member.c */
struct ps_member_dir *ps_members_dir_add(struct ps_group *g,
					 struct kobject *parent);
struct ps_member_dir *ps_member_dir_add(struct ps_group *g,
					struct ps_member_dir *parent, u32 id);
void ps_member_dir_remove(struct ps_member_dir *dir);

/* sysfs_sync.c */
void ps_sysfs_start(struct ps_group *g);
void ps_sysfs_enrolled(struct ps_group *g, const struct ps_member *m);
void ps_sysfs_left(struct ps_group *g, struct ps_member *m);
bool ps_sysfs_sync(struct ps_group *g);

#endif /* PS_SYSFS_H */
