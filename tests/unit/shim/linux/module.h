/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_MODULE_H
#define SHIM_LINUX_MODULE_H

#include <linux/types.h>

struct kernel_param;

struct kernel_param_ops {
	int (*set)(const char *val, const struct kernel_param *kp);
	int (*get)(char *buffer, const struct kernel_param *kp);
};

struct shim_param {
	const struct kernel_param_ops *ops;
	unsigned int perm;
};

/* A test reaches parameter NAME as shim_param_NAME. */
#define module_param_cb(name, _ops, arg, _perm)				\
	extern const struct shim_param shim_param_##name;		\
	const struct shim_param shim_param_##name = {			\
		.ops = (_ops),						\
		.perm = (_perm),					\
	}
#define MODULE_PARM_DESC(name, text) struct kernel_param

#endif /* SHIM_LINUX_MODULE_H */
