/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_LIST_H
#define SHIM_LINUX_LIST_H

#include <linux/types.h>

static inline bool hlist_unhashed_lockless(const struct hlist_node *h)
{
	return !READ_ONCE(h->pprev);
}

#endif /* SHIM_LINUX_LIST_H */
