/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_TYPES_H
#define SHIM_LINUX_TYPES_H

/*
 * glibc's own headers include <linux/types.h> too, and want the real one.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include_next <linux/types.h>
#include <linux/compiler.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s8 s8;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;

#define U16_MAX UINT16_MAX
#define U32_MAX UINT32_MAX
#define S32_MAX INT32_MAX

#define gfp_t unsigned int

struct rcu_head {
	struct rcu_head *next;
	void (*func)(struct rcu_head *head);
};

struct list_head {
	struct list_head *next, *prev;
};

struct hlist_node {
	struct hlist_node *next, **pprev;
};

#endif /* SHIM_LINUX_TYPES_H */
