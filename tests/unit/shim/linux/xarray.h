/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_XARRAY_H
#define SHIM_LINUX_XARRAY_H

#include <linux/slab.h>
#include <linux/types.h>

/*
 * A tree of 64-way nodes for indexes of 32 bit. One writer at a time; what it
 * takes out, readers may still see. Nodes go with the whole.
 */
struct xarray {
	void *xa_head;
};

#define XA_FLAGS_ALLOC 0
#define XA_FLAGS_ALLOC1 0
#define XA_FLAGS_ACCOUNT 0

static inline void xa_init_flags(struct xarray *xa, gfp_t flags)
{
	xa->xa_head = NULL;
}

void *xa_load(struct xarray *xa, unsigned long index);
void *xa_store(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp);
int xa_insert(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp);
void *xa_erase(struct xarray *xa, unsigned long index);
void xa_destroy(struct xarray *xa);

#endif /* SHIM_LINUX_XARRAY_H */
