// SPDX-License-Identifier: GPL-2.0
/*
 * Takes kernel functions as a livepatch does, for as long as it is loaded:
 * nobody else may redirect them. Their calls go on as ever.
 */
#include <linux/ftrace.h>
#include <linux/module.h>
#include <linux/string.h>

#include "compat/ftrace.h"

static char *function;
module_param(function, charp, 0444);
MODULE_PARM_DESC(function, "Name of the function, or a pattern");

static void notrace taker_called(unsigned long ip, unsigned long parent_ip,
				 struct ftrace_ops *ops,
				 struct ps_fregs *fregs)
{
}

static struct ftrace_ops taker_ops = {
	.func = taker_called,
	.flags = PS_FTRACE_FLAGS,
};

static int __init taker_init(void)
{
	int err;

	if (!function)
		return -EINVAL;
	err = ftrace_set_filter(&taker_ops, (unsigned char *)function,
				strlen(function), 1);
	if (!err)
		err = register_ftrace_function(&taker_ops);
	if (err)
		ftrace_set_filter(&taker_ops, NULL, 0, 1);
	return err;
}

static void __exit taker_exit(void)
{
	unregister_ftrace_function(&taker_ops);
	ftrace_set_filter(&taker_ops, NULL, 0, 1);
}

module_init(taker_init);
module_exit(taker_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Takes a kernel function, for portsteer's tests");
