/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_KOBJECT_H
#define SHIM_LINUX_KOBJECT_H

struct kobject {
	const char *name;
};

#endif /* SHIM_LINUX_KOBJECT_H */
