// SPDX-License-Identifier: GPL-2.0
/*
 * quic: the member whose id the server has put into the connection ID, so that
 * a client stays with it when its address or port changes.
 *
 * The id is in plain sight, big endian, at a place of the connection ID that is
 * set for the group: by default the two octets behind the first, where the
 * unencrypted form of the QUIC-LB draft (draft-ietf-quic-load-balancers) has a
 * server id of two octets. Its member gets the packet whatever its state and
 * generation: the connection is there, and nowhere else.
 *
 * By `hash` goes what has no such id: Initial and 0-RTT packets, whose
 * connection ID may be of the client's choice, versions that we don't know, what
 * is too short or no QUIC at all, and ids that no member has.
 *
 * Costs some bytes of the packet and a step or two in an array, whatever the
 * size of the group.
 */
#include <linux/kernel.h>
#include <linux/skbuff.h>
#include <linux/udp.h>

#include "../group.h"
#include "quic.h"

#define PS_QUIC_FORM_LONG 0x80

#define PS_QUIC_V1 0x00000001	/* RFC 9000 */
#define PS_QUIC_V2 0x6b3343cf	/* RFC 9369 */

/* Two bits of the first octet; numbered in another way in each version. */
#define PS_QUIC_TYPE(first) ((first) >> 4 & 3)
#define PS_QUIC_V1_HANDSHAKE 2
#define PS_QUIC_V2_HANDSHAKE 3

/* A client's Handshake packet has the connection ID that the server chose. */
static bool ps_quic_handshake(const u8 *data)
{
	u32 version = (u32)data[1] << 24 | data[2] << 16 | data[3] << 8 |
		      data[4];

	switch (version) {
	case PS_QUIC_V1:
		return PS_QUIC_TYPE(data[0]) == PS_QUIC_V1_HANDSHAKE;
	case PS_QUIC_V2:
		return PS_QUIC_TYPE(data[0]) == PS_QUIC_V2_HANDSHAKE;
	default:
		return false;
	}
}

/**
 * ps_quic_id() - the id in a packet's connection ID
 * @data: the datagram's payload, from its beginning
 * @len: bytes of it that are there; PS_QUIC_HEADER are enough
 * @place: PS_QUIC_PLACE() of the id in the connection ID
 * @id: filled
 *
 * The "fixed" bit isn't looked at: clients may send it as they like (RFC 9287).
 *
 * Context: any.
 * Return: false if the packet has none.
 */
bool ps_quic_id(const u8 *data, u32 len, u16 place, u32 *id)
{
	u32 offset = PS_QUIC_OFFSET(place), length = PS_QUIC_LENGTH(place);
	u64 value = 0;
	u32 i;

	if (!len)
		return false;
	if (data[0] & PS_QUIC_FORM_LONG) {
		if (len < PS_QUIC_LONG || !ps_quic_handshake(data) ||
		    data[PS_QUIC_LONG - 1] > PS_QUIC_CID_MAX ||
		    data[PS_QUIC_LONG - 1] < offset + length)
			return false;
		data += PS_QUIC_LONG;
		len -= PS_QUIC_LONG;
	} else {
		data++;
		len--;
	}
	if (len < offset + length)
		return false;
	for (i = 0; i < length; i++)
		value = value << 8 | data[offset + i];
	*id = value;
	return length && value <= PORTSTEER_MAX_ID;
}

static struct ps_member *ps_quic_named(struct ps_group *g,
				       const struct ps_flow *flow)
{
	u8 header[PS_QUIC_HEADER];
	const u8 *data;
	u32 len, id;

	if (flow->skb->len <= sizeof(struct udphdr))
		return NULL;
	len = min_t(u32, flow->skb->len - sizeof(struct udphdr),
		    sizeof(header));
	data = skb_header_pointer(flow->skb, sizeof(struct udphdr), len,
				  header);
	if (!data || !ps_quic_id(data, len, READ_ONCE(g->quic), &id))
		return NULL;
	/* Members are freed a grace period after they have gone from there. */
	return xa_load(&g->ids, id);
}

const struct ps_policy ps_policy_quic = {
	.name = "quic",
	.follows_flow = true,
	.named = ps_quic_named,
	.pick = ps_hash_pick,
};
