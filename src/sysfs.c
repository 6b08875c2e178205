// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/class/portsteer, as each network namespace sees it.
 */
#include <linux/capability.h>
#include <linux/device.h>
#include <linux/netdevice.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include <linux/wait_bit.h>

#include "compat/class.h"
#include "net.h"
#include "rules.h"
#include "sysfs.h"

/* What the kernel may still call our code for, though nobody sees it. */
static atomic_t ps_sysfs_held = ATOMIC_INIT(0);

/* Something that has a release() of ours is made. */
void ps_sysfs_hold(void)
{
	atomic_inc(&ps_sysfs_held);
}

/* The last thing that such a release() does. */
void ps_sysfs_release(void)
{
	if (atomic_dec_and_test(&ps_sysfs_held))
		wake_up_var(&ps_sysfs_held);
}

/* A device's data is its namespace. */
static const PS_NS_TAG_TYPE *ps_class_namespace(PS_CLASS_DEVICE *dev)
{
	const struct net *net = dev_get_drvdata(dev);

	return PS_NS_TAG(net);
}

static void ps_class_owner(PS_CLASS_DEVICE *dev, kuid_t *uid, kgid_t *gid)
{
	net_ns_get_ownership(dev_get_drvdata(dev), uid, gid);
}

static void ps_class_released(PS_CLASS_RELEASED *class)
{
	ps_sysfs_release();
}

struct class ps_class = {
	.name = "portsteer",
	PS_CLASS_OWNER
	.ns_type = &net_ns_type_operations,
	.namespace = ps_class_namespace,
	.get_ownership = ps_class_owner,
	.class_release = ps_class_released,
};

static ssize_t ps_rules_attr_show(PS_CLASS_ATTR_ARGS, char *buf)
{
	struct ps_net *pn = container_of(attr, struct ps_net, rules_attr);

	return ps_rules_show(pn, buf);
}

/*
 * Everybody may open the file, because its owner is the global root, whom the
 * owner of a user namespace isn't. Who may write is decided here.
 */
static ssize_t ps_rules_attr_store(PS_CLASS_ATTR_ARGS, const char *buf,
				   size_t count)
{
	struct ps_net *pn = container_of(attr, struct ps_net, rules_attr);
	char *text;
	int err;

	if (!ns_capable(pn->net->user_ns, CAP_NET_ADMIN))
		return -EPERM;
	/*
	 * sysfs ends what was written with a NUL, any other is the writer's;
	 * and it cuts what is longer than a page.
	 */
	if (strlen(buf) != count || count >= PAGE_SIZE)
		return -EINVAL;
	text = kstrndup(buf, count, GFP_KERNEL);
	if (!text)
		return -ENOMEM;
	err = ps_rules_command(pn, text);
	kfree(text);
	return err ? err : count;
}

int ps_sysfs_add(struct ps_net *pn)
{
	struct class_attribute *attr = &pn->rules_attr;

	mutex_init(&pn->dirs_mutex);
	hash_init(pn->dirs);
	sysfs_attr_init(&attr->attr);
	attr->attr.name = "rules";
	attr->attr.mode = 0666;
	attr->show = ps_rules_attr_show;
	attr->store = ps_rules_attr_store;
	return class_create_file_ns(&ps_class, attr, PS_NS_TAG(pn->net));
}

void ps_sysfs_remove(struct ps_net *pn)
{
	class_remove_file_ns(&ps_class, &pn->rules_attr, PS_NS_TAG(pn->net));
}

int ps_sysfs_init(void)
{
	int err;

	ps_sysfs_hold();
	err = class_register(&ps_class);
	if (err)
		atomic_dec(&ps_sysfs_held);
	return err;
}

/*
 * After the last namespace. Who has just called ps_sysfs_release() may not have
 * returned: ps_hooks_done() waits for such tasks.
 *
 * Context: process, may sleep.
 */
void ps_sysfs_exit(void)
{
	class_unregister(&ps_class);
	wait_var_event(&ps_sysfs_held, !atomic_read(&ps_sysfs_held));
}
