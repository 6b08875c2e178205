/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_NET_NET_NAMESPACE_H
#define SHIM_NET_NET_NAMESPACE_H

struct net_device;

/* Only what a test gives it. */
struct net {
	struct net_device *devices;
	unsigned int n_devices;
};

#endif /* SHIM_NET_NET_NAMESPACE_H */
