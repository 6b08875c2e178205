/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_INET_H
#define SHIM_LINUX_INET_H

#include <linux/in.h>

/* The kernel's, which is more than glibc's. */
#undef INET6_ADDRSTRLEN
#define INET6_ADDRSTRLEN 48

#endif /* SHIM_LINUX_INET_H */
