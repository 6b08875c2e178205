/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_MM_H
#define SHIM_LINUX_MM_H

#include <linux/slab.h>

#define PAGE_SHIFT 12

static inline unsigned long totalram_pages(void)
{
	return 1UL << (30 - PAGE_SHIFT);
}

#endif /* SHIM_LINUX_MM_H */
