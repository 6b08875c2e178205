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

#include "compat/class.h"
#include "net.h"
#include "rules.h"

static const PS_NS_TAG_TYPE *ps_class_namespace(PS_CLASS_DEVICE *dev)
{
	return dev_get_drvdata(dev);
}

static struct class ps_class = {
	.name = "portsteer",
	PS_CLASS_OWNER
	.ns_type = &net_ns_type_operations,
	.namespace = ps_class_namespace,
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
	return class_register(&ps_class);
}

void ps_sysfs_exit(void)
{
	class_unregister(&ps_class);
}
