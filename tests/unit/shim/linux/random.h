/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_RANDOM_H
#define SHIM_LINUX_RANDOM_H

#include <linux/types.h>

/* Not random at all, so what is found is found again. */
static inline u32 get_random_u32(void)
{
	static u32 state = 0x5eed;

	return state = state * 1664525 + 1013904222;
}

static inline void get_random_bytes(void *buf, size_t len)
{
	u8 *bytes = buf;

	while (len--)
		*bytes++ = get_random_u32() >> 24;
}

#endif /* SHIM_LINUX_RANDOM_H */
