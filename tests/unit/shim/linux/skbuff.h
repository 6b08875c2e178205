/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_SKBUFF_H
#define SHIM_LINUX_SKBUFF_H

#include <linux/types.h>

/* The headers are offsets from the head, as in the kernel. */
struct sk_buff {
	u16 network_header;
	u16 transport_header;
	u16 queue_mapping;	/* queue + 1, 0: not recorded */
	u8 *head;
	u8 *data;
	/* Behind data, @data_len of them in @frag and the others at @data. */
	u32 len;
	u32 data_len;
	const u8 *frag;
};

static inline u32 skb_headlen(const struct sk_buff *skb)
{
	return skb->len - skb->data_len;
}

int skb_copy_bits(const struct sk_buff *skb, int offset, void *to, int len);

/* Where the bytes are, @buffer if they had to be copied there, or NULL. */
static inline void *skb_header_pointer(const struct sk_buff *skb, int offset,
				       int len, void *buffer)
{
	if ((int)skb_headlen(skb) - offset >= len)
		return skb->data + offset;
	return skb_copy_bits(skb, offset, buffer, len) < 0 ? NULL : buffer;
}

static inline u8 *skb_network_header(const struct sk_buff *skb)
{
	return skb->head + skb->network_header;
}

static inline int skb_transport_offset(const struct sk_buff *skb)
{
	return skb->head + skb->transport_header - skb->data;
}

static inline bool skb_rx_queue_recorded(const struct sk_buff *skb)
{
	return skb->queue_mapping;
}

static inline u16 skb_get_rx_queue(const struct sk_buff *skb)
{
	return skb->queue_mapping - 1;
}

#endif /* SHIM_LINUX_SKBUFF_H */
