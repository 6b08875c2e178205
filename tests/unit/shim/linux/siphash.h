/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_SIPHASH_H
#define SHIM_LINUX_SIPHASH_H

/* By "SipHash: a fast short-input PRF", Aumasson and Bernstein, 2012. */
#include <linux/types.h>

#define siphash_key_t struct shim_siphash_key
#define hsiphash_key_t siphash_key_t

siphash_key_t {
	u64 key[2];
};

/* SipHash-c-d. */
u64 shim_siphash(unsigned int c, unsigned int d, const void *data, size_t len,
		 const siphash_key_t *key);

static inline u64 siphash(const void *data, size_t len,
			  const siphash_key_t *key)
{
	return shim_siphash(2, 4, data, len, key);
}

static inline u64 siphash_3u32(u32 a, u32 b, u32 c, const siphash_key_t *key)
{
	const u32 data[] = { a, b, c };

	return siphash(data, sizeof(data), key);
}

/* On 64 bit, the kernel's hsiphash() is the low half of SipHash-1-3. */
static inline u32 hsiphash(const void *data, size_t len,
			   const hsiphash_key_t *key)
{
	return shim_siphash(1, 3, data, len, key);
}

static inline u32 hsiphash_1u32(u32 a, const hsiphash_key_t *key)
{
	return hsiphash(&a, sizeof(a), key);
}

static inline u32 hsiphash_2u32(u32 a, u32 b, const hsiphash_key_t *key)
{
	const u32 data[] = { a, b };

	return hsiphash(data, sizeof(data), key);
}

static inline u32 hsiphash_3u32(u32 a, u32 b, u32 c, const hsiphash_key_t *key)
{
	const u32 data[] = { a, b, c };

	return hsiphash(data, sizeof(data), key);
}

#endif /* SHIM_LINUX_SIPHASH_H */
