/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_SLAB_H
#define SHIM_LINUX_SLAB_H

/* ASan sees what is read beyond, or not given back. */
#include <stdlib.h>

#include <linux/types.h>

#define GFP_KERNEL 1
#define GFP_ATOMIC 0

static inline bool gfpflags_allow_blocking(gfp_t gfp)
{
	return gfp == GFP_KERNEL;
}

static inline void *kzalloc(size_t size, gfp_t gfp)
{
	return calloc(1, size);
}

static inline void *kvzalloc(size_t size, gfp_t gfp)
{
	return calloc(1, size);
}

static inline void kvfree(const void *p)
{
	free((void *)p);
}

#endif /* SHIM_LINUX_SLAB_H */
