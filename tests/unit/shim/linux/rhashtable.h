/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_RHASHTABLE_H
#define SHIM_LINUX_RHASHTABLE_H

#include <linux/types.h>

struct rhash_head {
	struct rhash_head *next;
};

#endif /* SHIM_LINUX_RHASHTABLE_H */
