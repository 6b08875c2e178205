/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_DEVICE_H
#define SHIM_LINUX_DEVICE_H

#include <linux/kobject.h>

struct device {
	struct kobject kobj;
};

#endif /* SHIM_LINUX_DEVICE_H */
