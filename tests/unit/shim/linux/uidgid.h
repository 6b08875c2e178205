/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_UIDGID_H
#define SHIM_LINUX_UIDGID_H

#include <linux/types.h>

#define kuid_t struct shim_kuid

kuid_t {
	uid_t val;
};

#endif /* SHIM_LINUX_UIDGID_H */
