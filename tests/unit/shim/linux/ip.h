/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_IP_H
#define SHIM_LINUX_IP_H

#include_next <linux/ip.h>
#include <linux/skbuff.h>

static inline struct iphdr *ip_hdr(const struct sk_buff *skb)
{
	return (struct iphdr *)skb_network_header(skb);
}

#endif /* SHIM_LINUX_IP_H */
