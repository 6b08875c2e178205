/* SPDX-License-Identifier: GPL-2.0 */
/*
 * In front of every file of the module: what is too small for a room of its
 * own, and the prefix of our lines in the log.
 */
#ifndef PS_COMPAT_H
#define PS_COMPAT_H

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

/* hex2bin() has moved out of linux/kernel.h. */
#ifdef PS_HAVE_HEX_H
#include <linux/hex.h>
#endif

#endif /* PS_COMPAT_H */
