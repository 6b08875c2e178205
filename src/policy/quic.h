/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where a QUIC packet has the id of the member that it is for. Pure: also built
 * in user space, by the unit tests.
 */
#ifndef PS_QUIC_H
#define PS_QUIC_H

#include <linux/types.h>

/* Bytes of a connection ID, at most (RFC 9000, 17.2). */
#define PS_QUIC_CID_MAX 20
/* Before it: form and version, then its length, in a long header. */
#define PS_QUIC_LONG 6
#define PS_QUIC_HEADER (PS_QUIC_LONG + PS_QUIC_CID_MAX)

/* Of the id in a connection ID, as PS_QUIC_PLACE() of both. */
#define PS_QUIC_LENGTH_MAX 8
#define PS_QUIC_PLACE(offset, length) ((offset) << 8 | (length))
#define PS_QUIC_OFFSET(place) ((place) >> 8)
#define PS_QUIC_LENGTH(place) ((place) & 0xff)
/* Behind the first octet, as in the QUIC-LB draft; room for any id. */
#define PS_QUIC_DEFAULT PS_QUIC_PLACE(1, 2)

bool ps_quic_id(const u8 *data, u32 len, u16 place, u32 *id);

#endif /* PS_QUIC_H */
