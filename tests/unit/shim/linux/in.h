/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_IN_H
#define SHIM_LINUX_IN_H

#include <arpa/inet.h>
#include <netinet/in.h>

#endif /* SHIM_LINUX_IN_H */
