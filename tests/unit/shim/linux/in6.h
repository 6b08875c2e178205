/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_IN6_H
#define SHIM_LINUX_IN6_H

#include <linux/in.h>

#endif /* SHIM_LINUX_IN6_H */
