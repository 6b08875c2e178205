// SPDX-License-Identifier: GPL-2.0
/*
 * A livepatch of a function that portsteer hooks: SOCK_DESTROY of UDP sockets
 * is refused.
 */
#include <linux/errno.h>
#include <linux/livepatch.h>
#include <linux/module.h>
#include <net/udp.h>

static int patched_udp_abort(struct sock *sk, int err)
{
	return -EOPNOTSUPP;
}

static struct klp_func patch_funcs[] = {
	{
		.old_name = "udp_abort",
		.new_func = patched_udp_abort,
	},
	{}
};

static struct klp_object patch_objs[] = {
	{
		.funcs = patch_funcs,	/* of the kernel itself */
	},
	{}
};

static struct klp_patch patch = {
	.mod = THIS_MODULE,
	.objs = patch_objs,
};

static int __init patch_init(void)
{
	return klp_enable_patch(&patch);
}

/* Livepatches go by sysfs, then they may be unloaded. */
static void __exit patch_exit(void)
{
}

module_init(patch_init);
module_exit(patch_exit);

MODULE_LICENSE("GPL");
MODULE_INFO(livepatch, "Y");
MODULE_DESCRIPTION("Patches a kernel function, for portsteer's tests");
