// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <stdlib.h>

#include <linux/types.h>
#include <linux/xarray.h>

#include <machine.h>

#define XA_BITS 6
#define XA_LEVELS 6	/* 36 bits */

struct node {
	void *slot[1 << XA_BITS];
};

static void **slot_of(struct node *node, unsigned long index, int level)
{
	return &node->slot[index >> level * XA_BITS & ((1 << XA_BITS) - 1)];
}

void *xa_load(struct xarray *xa, unsigned long index)
{
	/* Pairs with the store in xa_store(). */
	void *at = smp_load_acquire(&xa->xa_head);
	int level;

	if (index > U32_MAX)
		return NULL;
	for (level = XA_LEVELS - 1; at && level >= 0; level--)
		/* the same */
		at = smp_load_acquire(slot_of(at, index, level));
	return at;
}

void *xa_store(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp)
{
	void **slot = &xa->xa_head, *old;
	int level;

	if (index > U32_MAX)
		abort();
	for (level = XA_LEVELS - 1; level >= 0; level--) {
		if (!*slot)
			/* Pairs with the loads in xa_load(). */
			smp_store_release(slot, calloc(1, sizeof(struct node)));
		slot = slot_of(*slot, index, level);
	}
	old = *slot;
	/* the same */
	smp_store_release(slot, entry);
	return old;
}

/* One that needs no memory is refused as well where there is none. */
int xa_insert(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp)
{
	if (xa_load(xa, index))
		return -EBUSY;
	if (machine.no_memory)
		return -ENOMEM;
	xa_store(xa, index, entry, gfp);
	return 0;
}

void *xa_erase(struct xarray *xa, unsigned long index)
{
	return xa_load(xa, index) ? xa_store(xa, index, NULL, 0) : NULL;
}

static void free_node(struct node *node, int level)
{
	unsigned int i;

	if (!node)
		return;
	for (i = 0; level && i < 1 << XA_BITS; i++)
		free_node(node->slot[i], level - 1);
	free(node);
}

void xa_destroy(struct xarray *xa)
{
	free_node(xa->xa_head, XA_LEVELS - 1);
	xa->xa_head = NULL;
}
