/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_SLAB_H
#define SHIM_LINUX_SLAB_H

/* ASan sees what is read beyond, or not given back. */
#include <stdlib.h>
#include <string.h>

#include <linux/types.h>

#include <machine.h>

#define GFP_KERNEL 1
#define GFP_ATOMIC 0
#define __GFP_NOWARN 2
#define __GFP_RETRY_MAYFAIL 0
#define __GFP_ACCOUNT 4
#define GFP_KERNEL_ACCOUNT (GFP_KERNEL | __GFP_ACCOUNT)

static inline bool gfpflags_allow_blocking(gfp_t gfp)
{
	return gfp & GFP_KERNEL;
}

static inline void *kzalloc(size_t size, gfp_t gfp)
{
	return calloc(1, size);
}

/* Of large sizes, the kernel's is aligned to pages. */
static inline void *kvzalloc(size_t size, gfp_t gfp)
{
	void *p;

	if (machine.no_memory || posix_memalign(&p, 64, size))
		return NULL;
	return memset(p, 0, size);
}

static inline void kvfree(const void *p)
{
	free((void *)p);
}

#endif /* SHIM_LINUX_SLAB_H */
