// SPDX-License-Identifier: GPL-2.0
/*
 * Counts the calls of a kernel function, also of one that isn't traceable and
 * so out of tracefs' reach. For functions that are called rarely: two calls at
 * once may count as one.
 */
#include <linux/kprobes.h>
#include <linux/module.h>

static char *function;
module_param(function, charp, 0444);
MODULE_PARM_DESC(function, "Name of the function");

static unsigned int calls;
module_param(calls, uint, 0444);
MODULE_PARM_DESC(calls, "How often it was called");

static int counter_hit(struct kprobe *kp, struct pt_regs *regs)
{
	WRITE_ONCE(calls, calls + 1);
	return 0;
}

static struct kprobe counter_probe = {
	.pre_handler = counter_hit,
};

static int __init counter_init(void)
{
	if (!function)
		return -EINVAL;
	counter_probe.symbol_name = function;
	return register_kprobe(&counter_probe);
}

static void __exit counter_exit(void)
{
	unregister_kprobe(&counter_probe);
}

module_init(counter_init);
module_exit(counter_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Counts calls of a kernel function, for portsteer's tests");
