// SPDX-License-Identifier: GPL-2.0
/*
 * Policy quic: the member whose id a packet has: quic.t [seed]
 *
 * Packets are in memory of just their size, so that ASan sees a read beyond
 * their end.
 */
#include <stdlib.h>
#include <time.h>

#include <linux/udp.h>

#include "bed.h"
#include "stats.h"
#include "tap.h"

#define RANDOM_PACKETS 400000
#define NO_ID (-1)

/* Of @len bytes; NO_ID if it has none. */
static s64 id_of(const u8 *data, u32 len, u32 offset, u32 length)
{
	u32 id = 0x5a5a5a5a;
	u8 *copy = malloc(len ?: 1);
	bool has;

	memcpy(copy, data, len);
	/* Nothing at all may be read of an empty one. */
	has = ps_quic_id(copy + !len, len, PS_QUIC_PLACE(offset, length), &id);
	free(copy);
	return has ? (s64)id : NO_ID;
}

/* RFC 9000, 17.2 and 17.3, RFC 9369, 3.2, and our own rule, word by word. */
static s64 described(const u8 *data, u32 len, u32 offset, u32 length)
{
	char text[2 * PS_QUIC_LENGTH_MAX + 1] = "";
	u32 i, type, version, cid, cid_len;

	if (len < 1 || !length)
		return NO_ID;
	if (data[0] < 0x80) {
		/* Short header: the rest is the connection ID, and more. */
		cid = 1;
		cid_len = len - 1;
	} else {
		if (len < 7 && !(len == 6 && data[5] == 0))
			return NO_ID;
		memcpy(&version, &data[1], sizeof(version));
		version = ntohl(version);
		type = data[0] / 16 % 4;
		if (version == 1 ? type != 2 :
		    version == 0x6b3343cf ? type != 3 : true)
			return NO_ID;
		cid = 6;
		cid_len = data[5];
		if (cid_len > 20)
			return NO_ID;
		if (len - cid < cid_len && len - cid < offset + length)
			return NO_ID;
	}
	if (cid_len < offset + length)
		return NO_ID;
	for (i = 0; i < length; i++)
		sprintf(text + 2 * i, "%*phN", 1, &data[cid + offset + i]);
	return strtoull(text, NULL, 16) <= 65535 ? (s64)strtoull(text, NULL, 16) :
						   NO_ID;
}

static void test_cases(void)
{
	static const struct {
		const char *what;
		u8 len, offset, length;
		u8 data[32];
		int want;
	} cases[] = {
#define PACKET(what, offset, length, want, ...) { what, \
	sizeof((u8[]){ __VA_ARGS__ }), offset, length, { __VA_ARGS__ }, want }
		{ "nothing", 0, 1, 2, { 0 }, NO_ID },
		PACKET("one byte, short", 1, 2, NO_ID, 0x40),
		PACKET("one byte, long", 1, 2, NO_ID, 0xe0),
		PACKET("a short header", 1, 2, 0x1234, 0x40, 0xff, 0x12, 0x34, 0x56),
		PACKET("that ends with the id", 1, 2, 0x1234, 0x40, 0xff, 0x12, 0x34),
		PACKET("that ends a byte before", 1, 2, NO_ID, 0x40, 0xff, 0x12),
		PACKET("the fixed bit is not set", 1, 2, 0x1234,
		       0x00, 0xff, 0x12, 0x34),
		PACKET("all other bits are", 1, 2, 0x1234, 0x7f, 0xff, 0x12, 0x34),
		PACKET("offset 0", 0, 2, 0xff12, 0x40, 0xff, 0x12, 0x34),
		PACKET("length 1", 1, 1, 0x12, 0x40, 0xff, 0x12, 0x34),
		PACKET("length 1 at the end", 2, 1, 0x34, 0x40, 0xff, 0x12, 0x34),
		PACKET("length 1 behind the end", 3, 1, NO_ID, 0x40, 0xff, 0x12, 0x34),
		PACKET("length 3, too large", 1, 3, NO_ID,
		       0x40, 0xff, 0x12, 0x34, 0x56),
		PACKET("length 3, small", 1, 3, 0x3456, 0x40, 0xff, 0x00, 0x34, 0x56),
		PACKET("length 4, the highest id", 0, 4, 65535, 0x40, 0, 0, 0xff, 0xff),
		PACKET("length 4, one more", 0, 4, NO_ID, 0x40, 0, 1, 0, 0),
		PACKET("length 8", 0, 8, 7, 0x40, 0, 0, 0, 0, 0, 0, 0, 7),
		PACKET("length 8, its highest byte", 0, 8, NO_ID,
		       0x40, 1, 0, 0, 0, 0, 0, 0, 7),
		PACKET("length 8, over 32 bits", 0, 8, NO_ID,
		       0x40, 0, 0, 0, 1, 0, 0, 0, 7),
		PACKET("length 8, a byte short", 0, 8, NO_ID,
		       0x40, 0, 0, 0, 0, 0, 0, 0),
		PACKET("the last byte of 20", 19, 1, 20, 0x40, 1, 2, 3, 4, 5, 6, 7, 8,
		       9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20),
		PACKET("the last 8 of 20", 12, 8, 3, 0x40, 1, 2, 3, 4, 5, 6, 7, 8,
		       9, 10, 11, 12, 0, 0, 0, 0, 0, 0, 0, 3),
		PACKET("length 0", 1, 0, NO_ID, 0x40, 0xff, 0x12, 0x34),
		PACKET("v1, Handshake", 1, 2, 0x1234,
		       0xe0, 0, 0, 0, 1, 8, 0xff, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde),
		PACKET("v1, Handshake, other bits", 1, 2, 0x1234,
		       0xaf, 0, 0, 0, 1, 8, 0xff, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde),
		PACKET("v1, Initial", 1, 2, NO_ID,
		       0xc0, 0, 0, 0, 1, 8, 0xff, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde),
		PACKET("v1, 0-RTT", 1, 2, NO_ID,
		       0xd0, 0, 0, 0, 1, 8, 0xff, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde),
		PACKET("v1, Retry", 1, 2, NO_ID,
		       0xf0, 0, 0, 0, 1, 8, 0xff, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde),
		PACKET("v2, Handshake", 1, 2, 0x1234,
		       0xf0, 0x6b, 0x33, 0x43, 0xcf, 8, 0xff, 0x12,
		       0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde),
		PACKET("v2, Initial", 1, 2, NO_ID,
		       0xd0, 0x6b, 0x33, 0x43, 0xcf, 8, 0xff, 0x12,
		       0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde),
		PACKET("v2, 0-RTT", 1, 2, NO_ID,
		       0xe0, 0x6b, 0x33, 0x43, 0xcf, 8, 0xff, 0x12,
		       0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde),
		PACKET("v2, Retry", 1, 2, NO_ID,
		       0xc0, 0x6b, 0x33, 0x43, 0xcf, 8, 0xff, 0x12,
		       0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde),
		PACKET("version negotiation", 1, 2, NO_ID,
		       0xe0, 0, 0, 0, 0, 8, 0xff, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde),
		PACKET("version 2 by number", 1, 2, NO_ID,
		       0xf0, 0, 0, 0, 2, 8, 0xff, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde),
		PACKET("v1 in the other byte order", 1, 2, NO_ID,
		       0xe0, 1, 0, 0, 0, 8, 0xff, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde),
		PACKET("a draft", 1, 2, NO_ID,
		       0xe0, 0xff, 0, 0, 0x1d, 8, 0xff, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde),
		PACKET("a greased version", 1, 2, NO_ID,
		       0xe0, 0x0a, 0x1a, 0x2a, 0x3a, 8, 0xff, 0x12,
		       0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde),
		PACKET("long, ends before the version", 1, 2, NO_ID, 0xe0, 0, 0, 0),
		PACKET("long, ends before the length", 1, 2, NO_ID, 0xe0, 0, 0, 0, 1),
		PACKET("long, ends before the ID", 1, 2, NO_ID, 0xe0, 0, 0, 0, 1, 8),
		PACKET("long, ends in the id", 1, 2, NO_ID,
		       0xe0, 0, 0, 0, 1, 8, 0xff, 0x12),
		PACKET("long, ends behind the id", 1, 2, 0x1234,
		       0xe0, 0, 0, 0, 1, 8, 0xff, 0x12, 0x34),
		PACKET("long, an ID of no bytes", 1, 2, NO_ID,
		       0xe0, 0, 0, 0, 1, 0, 0xff, 0x12, 0x34),
		PACKET("long, an ID of 2", 1, 2, NO_ID,
		       0xe0, 0, 0, 0, 1, 2, 0xff, 0x12, 0x34),
		PACKET("long, an ID of 3", 1, 2, 0x1234,
		       0xe0, 0, 0, 0, 1, 3, 0xff, 0x12, 0x34),
		PACKET("long, an ID of 20", 1, 2, 0x1234,
		       0xe0, 0, 0, 0, 1, 20, 0xff, 0x12, 0x34),
		PACKET("long, an ID of 21", 1, 2, NO_ID,
		       0xe0, 0, 0, 0, 1, 21, 0xff, 0x12, 0x34),
		PACKET("long, an ID of 255", 1, 2, NO_ID,
		       0xe0, 0, 0, 0, 1, 255, 0xff, 0x12, 0x34),
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		is(id_of(cases[i].data, cases[i].len, cases[i].offset,
			 cases[i].length), cases[i].want, "%s", cases[i].what);
		is(described(cases[i].data, cases[i].len, cases[i].offset,
			     cases[i].length), cases[i].want,
		   "as the description has it");
	}
}

/* Now and then a header that isn't refused at once. */
static u32 make_packet(u8 *data, u32 size)
{
	static const u8 starts[][5] = {
		{ 0xe0, 0, 0, 0, 1 }, { 0xf0, 0x6b, 0x33, 0x43, 0xcf },
		{ 0xc0, 0, 0, 0, 1 }, { 0xd0, 0x6b, 0x33, 0x43, 0xcf },
	};
	u32 i, len = rnd_below(size + 1);

	for (i = 0; i < len; i++)
		data[i] = rnd_below(3) ? rnd() : 0;
	if (len > 5 && rnd_below(2)) {
		memcpy(data, starts[rnd_below(ARRAY_SIZE(starts))], 5);
		data[0] |= rnd_below(16);
		data[5] = rnd_below(4) ? rnd_below(22) : rnd();
	}
	return len;
}

static void test_random(u32 skip)
{
	u32 i, len, offset, length, wrong = 0, has = 0;
	u8 data[40];

	printf("# seed %u\n", skip);
	for (i = 0; i < skip % 100000; i++)
		rnd();
	for (i = 0; i < RANDOM_PACKETS; i++) {
		s64 got, want;

		length = 1 + rnd_below(PS_QUIC_LENGTH_MAX);
		offset = rnd_below(PS_QUIC_CID_MAX - length + 1);
		len = make_packet(data, sizeof(data));
		got = id_of(data, len, offset, length);
		want = described(data, len, offset, length);
		has += want != NO_ID;
		if (got == want || wrong++ > 4)
			continue;
		diag("%u bytes %02x %02x%02x%02x%02x %02x, %u at %u: got %lld, want %lld",
		     len, data[0], data[1], data[2], data[3], data[4], data[5],
		     length, offset, (long long)got, (long long)want);
	}
	is(wrong, 0, "%u random packets, seed %u", i, skip);
	ok(has > i / 20 && has < i / 2, "%u have an id", has);
	/* The bytes that the policy asks for are all that are needed. */
	for (i = 0, wrong = 0; i < RANDOM_PACKETS / 4; i++) {
		length = 1 + rnd_below(PS_QUIC_LENGTH_MAX);
		offset = rnd_below(PS_QUIC_CID_MAX - length + 1);
		len = make_packet(data, sizeof(data));
		wrong += id_of(data, len, offset, length) !=
			 id_of(data, min_t(u32, len, PS_QUIC_HEADER), offset,
			       length);
	}
	is(wrong, 0, "%u bytes are enough", PS_QUIC_HEADER);
}

/* A datagram in memory of its size, a part of it in a fragment. */
struct datagram {
	struct bed_flow f;
	u8 *head, *frag;
};

static const struct ps_flow *datagram(struct datagram *d, u32 k, const u8 *data,
				      u32 len, u32 linear)
{
	const struct ps_flow *flow = bed_flow(&d->f, k, k & 1);
	u32 before = d->f.skb.transport_header, total = sizeof(struct udphdr) + len;
	u8 *all = malloc(total);

	linear = min_t(u32, linear, total);
	memcpy(all, d->f.skb.data, 4);
	memset(all + 4, 0xee, 4);
	memcpy(all + 8, data, len);
	d->head = malloc(before + linear);
	memcpy(d->head, d->f.skb.head, before);
	memcpy(d->head + before, all, linear);
	d->frag = malloc(total - linear ?: 1);
	memcpy(d->frag, all + linear, total - linear);
	free(all);
	d->f.skb.head = d->head;
	d->f.skb.data = d->head + before;
	d->f.skb.len = total;
	d->f.skb.data_len = total - linear;
	d->f.skb.frag = d->frag;
	return flow;
}

static void datagram_free(struct datagram *d)
{
	free(d->head);
	free(d->frag);
}

static int named(struct bed *bed, const struct ps_flow *flow)
{
	const struct ps_member *m = ps_policy_quic.named(&bed->group, flow);

	return m ? m - bed->members : NO_ID;
}

/* Wherever the packet is cut in two. */
static void test_skb(void)
{
	static const u8 packet[] = { 0xe0, 0, 0, 0, 1, 8, 0xff, 0, 5, 1, 2, 3, 4, 5 };
	u32 linear, len, wrong = 0;
	struct datagram d;
	struct bed bed;

	bed_init(&bed, 8);
	bed_udp(&bed);
	for (len = 0; len <= sizeof(packet); len++)
		for (linear = 8; linear <= 8 + len; linear++) {
			datagram(&d, len, packet, len, linear);
			wrong += named(&bed, &d.f.flow) != (len >= 9 ? 5 : NO_ID);
			datagram_free(&d);
		}
	is(wrong, 0, "packets of any length, in one piece or in two");
	bed.group.quic = PS_QUIC_PLACE(5, 1);
	datagram(&d, 0, packet, sizeof(packet), 8);
	is(named(&bed, &d.f.flow), 3, "the place is the group's");
	bed.group.key.proto = IPPROTO_TCP;
	ok(!ps_named(&bed.group, &ps_policy_quic, &d.f.flow),
	   "a TCP packet names nobody");
	datagram_free(&d);
	bed_free(&bed);
}

/* Who gets it in the end. */
static void test_steer(void)
{
	u8 packet[] = { 0x40, 0xff, 0, 5, 1, 2, 3 };
	u32 k, wrong = 0, by_hash = 0;
	struct datagram d;
	struct bed bed;

	bed_init(&bed, 8);
	bed_udp(&bed);
	for (k = 0; k < 1000; k++) {
		const struct ps_flow *flow;

		packet[3] = k % 8;
		flow = datagram(&d, rnd(), packet, sizeof(packet), 100);
		wrong += bed_steer(&bed, &ps_policy_quic, flow) != (int)(k % 8);
		datagram_free(&d);
	}
	is(wrong, 0, "the member with the id, whatever the flow");
	for (k = 0; k < 8; k++)
		wrong += bed_picked(&bed, k) != 125;
	is(wrong, 0, "each datagram counts, once, as picked");

	/* Draining: in no set. */
	ps_set_remove(bed.set, &bed.members[5]);
	ps_set_publish(bed.set);
	packet[3] = 5;
	datagram(&d, 1, packet, sizeof(packet), 100);
	is(bed_steer(&bed, &ps_policy_quic, &d.f.flow), 5, "also while it drains");
	is(ps_pick(&bed.group, bed.set, 7, &ps_policy_quic, &d.f.flow, false) -
	   bed.socks, 5, "also for a lookup that counts nothing");
	is(bed_picked(&bed, 5), 126, "and that isn't counted");
	is(ps_pick(&bed.group, bed.set, 0, &ps_policy_quic, &d.f.flow, true) -
	   bed.socks, 5, "also while all members drain");

	/* Those who can't take it. */
	bed.members[5].candidate = false;
	is(bed_steer(&bed, &ps_policy_quic, &d.f.flow),
	   bed_steer(&bed, &ps_policy_hash, &d.f.flow),
	   "a member that leaves: as hash does");
	bed.members[5].candidate = true;
	bed.socks[5].sk_state = TCP_ESTABLISHED;
	is(bed_steer(&bed, &ps_policy_quic, &d.f.flow),
	   bed_steer(&bed, &ps_policy_hash, &d.f.flow),
	   "a connected member: as hash does");
	bed.socks[5].sk_state = TCP_CLOSE;
	datagram_free(&d);

	/* All that names nobody. */
	for (wrong = 0, k = 0; k < 20000; k++) {
		u8 data[40];
		u32 len = make_packet(data, sizeof(data));
		const struct ps_flow *flow = datagram(&d, rnd(), data, len,
						      8 + rnd_below(40));
		s64 want = described(data, len, 1, 2);
		int got = bed_steer(&bed, &ps_policy_quic, flow);

		if (want >= 8 || want == NO_ID) {
			by_hash++;
			wrong += got != bed_steer(&bed, &ps_policy_hash, flow);
		} else {
			wrong += got != want;
		}
		datagram_free(&d);
	}
	is(wrong, 0, "random packets: the member with the id, or as hash does");
	ok(by_hash > k / 2 && by_hash < k - 100, "%u of %u as hash does", by_hash, k);
	is(bed_fallbacks(&bed), 0, "never the kernel's own choice");
	bed_free(&bed);
}

/* Ids are any numbers, and where a member has been there may be no other. */
static void test_ids(void)
{
	u8 packet[] = { 0x40, 0xff, 0xff, 0xff };
	struct datagram d;
	struct bed bed;

	bed_init(&bed, 3);
	bed_udp(&bed);
	datagram(&d, 1, packet, sizeof(packet), 100);
	is(named(&bed, &d.f.flow), NO_ID, "nobody has the highest id");
	xa_store(&bed.group.ids, 65535, &bed.members[2], GFP_KERNEL);
	is(named(&bed, &d.f.flow), 2, "now somebody has");
	xa_erase(&bed.group.ids, 65535);
	is(named(&bed, &d.f.flow), NO_ID, "and has gone");
	datagram_free(&d);
	bed_free(&bed);
}

int main(int argc, char **argv)
{
	test_cases();
	test_random(argc > 1 ? strtoul(argv[1], NULL, 0) : (u32)time(NULL));
	test_skb();
	test_steer();
	test_ids();
	return done();
}
