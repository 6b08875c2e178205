/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The key of an exclusive group.
 */
#ifndef PS_SECRET_H
#define PS_SECRET_H

#include <linux/types.h>

#include <uapi/portsteer.h>

struct ps_secret {
	u8 len;		/* 0: none */
	u8 bytes[PORTSTEER_KEY_LEN];
};

/*
 * The same key, or none on both sides? Takes as long whatever they are, so that
 * trying doesn't tell how much of a guess was right. Context: any.
 */
static inline bool ps_secret_equal(const struct ps_secret *a,
				   const struct ps_secret *b)
{
	u8 differ = a->len ^ b->len;
	unsigned int i;

	for (i = 0; i < sizeof(a->bytes); i++)
		differ |= a->bytes[i] ^ b->bytes[i];
	return !differ;
}

#endif /* PS_SECRET_H */
