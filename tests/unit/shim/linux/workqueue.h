/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_WORKQUEUE_H
#define SHIM_LINUX_WORKQUEUE_H

struct delayed_work {
	int pending;
};

#endif /* SHIM_LINUX_WORKQUEUE_H */
