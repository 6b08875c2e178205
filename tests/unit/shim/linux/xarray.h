/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_XARRAY_H
#define SHIM_LINUX_XARRAY_H

#include <linux/types.h>

struct xarray {
	void *xa_head;
};

#endif /* SHIM_LINUX_XARRAY_H */
