/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_STRING_H
#define SHIM_LINUX_STRING_H

#include <string.h>

#include <linux/types.h>

ssize_t strscpy(char *dst, const char *src, size_t size);
char *strim(char *s);
bool sysfs_streq(const char *s1, const char *s2);

#endif /* SHIM_LINUX_STRING_H */
