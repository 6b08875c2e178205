/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_KERNEL_H
#define SHIM_LINUX_KERNEL_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include <linux/bits.h>
#include <linux/hex.h>
#include <linux/log2.h>
#include <linux/overflow.h>
#include <linux/types.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define min_t(type, a, b) ({						\
	type _a = (a), _b = (b);					\
									\
	_a < _b ? _a : _b;						\
})
#define max_t(type, a, b) ({						\
	type _a = (a), _b = (b);					\
									\
	_a > _b ? _a : _b;						\
})

static inline u32 reciprocal_scale(u32 val, u32 ep_ro)
{
	return (u64)val * ep_ro >> 32;
}

int kstrtoull(const char *s, unsigned int base, unsigned long long *res);
int kstrtou16(const char *s, unsigned int base, u16 *res);
int kstrtou32(const char *s, unsigned int base, u32 *res);

/* Know %pI4, %pI6c and %*phN. */
int shim_vscnprintf(char *buf, size_t size, const char *fmt, va_list args);
int scnprintf(char *buf, size_t size, const char *fmt, ...);
#define sprintf(buf, ...) scnprintf((buf), INT32_MAX, __VA_ARGS__)

#endif /* SHIM_LINUX_KERNEL_H */
