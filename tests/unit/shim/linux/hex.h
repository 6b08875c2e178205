/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_HEX_H
#define SHIM_LINUX_HEX_H

#include <linux/types.h>

int hex2bin(u8 *dst, const char *src, size_t count);

#endif /* SHIM_LINUX_HEX_H */
