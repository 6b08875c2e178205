/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Members by a small number that each of them has, the CPU that it serves for
 * instance: by a table, or while there is none, by looking at each of them.
 *
 * The table: where each key's members begin, u32 first[keys + 1], in what comes
 * behind it, the members' places in the class by key and place, u16 [n].
 */
#ifndef PS_KEYED_H
#define PS_KEYED_H

#include <linux/kernel.h>

#include "../choose.h"
#include "../group.h"
#include "../policy.h"

/* Bytes of a table of @n members, a multiple of 4. */
static inline size_t ps_keyed_size(u32 keys, u32 n)
{
	return (keys + 1 + (size_t)(n + 1) / 2) * sizeof(u32);
}

/*
 * Fills a table, zeroed; a member whose @key_of isn't below @keys isn't in it.
 * Counting sort. Context: process.
 */
static inline void ps_keyed_build(u32 *first, u32 keys,
				  const struct ps_trait *traits, u32 n,
				  s32 (*key_of)(const struct ps_trait *trait))
{
	u16 *places = (u16 *)&first[keys + 1];
	u32 i, key;

	for (i = 0; i < n; i++) {
		key = key_of(&traits[i]);
		if (key < keys)
			first[key]++;
	}
	for (i = 1; i <= keys; i++)
		first[i] += first[i - 1];
	/* From where each key's members end, backwards to where they begin. */
	for (i = n; i--;) {
		key = key_of(&traits[i]);
		if (key < keys)
			places[--first[key]] = i;
	}
}

/**
 * ps_keyed_count() - how many members have a key
 * @first: the table, or NULL
 * @keys: it has
 * @set: the set, which does instead
 * @n: entries of it
 * @key_of: the key of a member
 * @key: which one, 0..@keys - 1
 *
 * Context: any, RCU.
 */
static __always_inline u32
ps_keyed_count(const u32 *first, u32 keys, const struct ps_set *set, u32 n,
	       s32 (*key_of)(const struct ps_member *m), u32 key)
{
	u32 i, count = 0;

	if (likely(first))
		return first[key + 1] - first[key];
	n = ps_scan_size(n);
	for (i = 0; i < n; i++)
		count += (u32)key_of(ps_set_member(set, i)) == key;
	return count;
}

/**
 * ps_keyed_at() - one of the members that have a key
 * @first: the table, or NULL
 * @keys: it has
 * @set: the set, which does instead
 * @n: entries of it
 * @key_of: the key of a member
 * @key: which one
 * @k: which of them, below ps_keyed_count()
 *
 * Context: any, RCU.
 * Return: below @n; another if keys have changed since they were counted.
 */
static __always_inline u32
ps_keyed_at(const u32 *first, u32 keys, const struct ps_set *set, u32 n,
	    s32 (*key_of)(const struct ps_member *m), u32 key, u32 k)
{
	u32 i;

	if (likely(first))
		return ((const u16 *)&first[keys + 1])[first[key] + k];
	n = ps_scan_size(n);
	for (i = 0; i < n - 1; i++)
		if ((u32)key_of(ps_set_member(set, i)) == key && !k--)
			break;
	return i;
}

#endif /* PS_KEYED_H */
