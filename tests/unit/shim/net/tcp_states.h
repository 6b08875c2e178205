/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_NET_TCP_STATES_H
#define SHIM_NET_TCP_STATES_H

#include <netinet/tcp.h>

#endif /* SHIM_NET_TCP_STATES_H */
