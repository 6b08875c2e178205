// SPDX-License-Identifier: GPL-2.0
/* From a group to a socket: which members are usable, attempts, counters. */
#include "bed.h"
#include "tap.h"

static void test_delivers(void)
{
	struct bed_flow f;

	bed_flow(&f, 0, false);
	ok(!ps_delivers(NULL), "a lookup without a packet delivers nothing");
	ok(ps_delivers(&f.skb), "one with its data at the transport header does");
	f.skb.data = f.skb.head + f.skb.network_header;
	ok(!ps_delivers(&f.skb), "at the network header: not");
	f.skb.data = f.skb.head + f.skb.transport_header + 8;
	ok(!ps_delivers(&f.skb), "behind the transport header: not");
}

static void test_usable(void)
{
	static const struct {
		const char *what;
		u8 proto;
		int state, dev;
		u16 port;
		bool unhashed, want;
	} members[] = {
#define TCP(what, ...) { "(TCP) " what, IPPROTO_TCP, __VA_ARGS__ }
#define UDP(what, ...) { "(UDP) " what, IPPROTO_UDP, __VA_ARGS__ }
		TCP("listens", TCP_LISTEN, 2, 443, false, true),
		TCP("is closed", TCP_CLOSE, 2, 443, false, false),
		TCP("is connected", TCP_ESTABLISHED, 2, 443, false, false),
		TCP("connects", TCP_SYN_SENT, 2, 443, false, false),
		TCP("is not hashed", TCP_LISTEN, 2, 443, true, false),
		TCP("has no device", TCP_LISTEN, 0, 443, false, false),
		TCP("has another device", TCP_LISTEN, 3, 443, false, false),
		TCP("has no port", TCP_LISTEN, 2, 0, false, false),
		TCP("has another port", TCP_LISTEN, 2, 80, false, false),
		UDP("is bound", TCP_CLOSE, 2, 443, false, true),
		UDP("is connected", TCP_ESTABLISHED, 2, 443, false, false),
		UDP("is not hashed", TCP_CLOSE, 2, 443, true, false),
		UDP("has another device", TCP_CLOSE, 3, 443, false, false),
		UDP("has another port", TCP_CLOSE, 2, 80, false, false),
	};
	struct sock *sk;
	unsigned int i;
	struct bed bed;

	bed_init(&bed, 1);
	sk = &bed.socks[0];
	bed.group.key.dev = 2;
	for (i = 0; i < ARRAY_SIZE(members); i++) {
		bed.group.key.proto = members[i].proto;
		sk->sk_state = members[i].state;
		sk->sk_bound_dev_if = members[i].dev;
		sk->sk_num = members[i].port;
		sk->sk_node.pprev = members[i].unhashed ? NULL : &bed.hashed;
		is(bed_usable(&bed, 0), members[i].want, "member %s", members[i].what);
	}
	bed_free(&bed);
}

/* Takes one after the other, and sees how it is asked. */
static struct ps_flow asked_for;
static u32 asked, asked_wrongly;

static u32 pick_attempt(struct ps_group *group, const struct ps_set *set, u32 n,
			const struct ps_flow *flow, u32 attempt)
{
	asked_wrongly += attempt != asked || group->set != set ||
			 flow != &asked_for;
	asked++;
	return attempt % n;
}

static const struct ps_policy by_attempt = {
	.name = "attempt",
	.pick = pick_attempt,
};

/* The first @broken of @members are, the first @n are in use; -1: no member. */
static void test_pick(u32 members, u32 broken, u32 n, u32 want_asked, int want)
{
	struct sock *sk;
	struct bed bed;
	int counts;
	u32 i;

	bed_init(&bed, members);
	for (i = 0; i < broken; i++)
		bed_break(&bed, i);
	for (counts = 0; counts < 2; counts++) {
		u64 picked = 0;

		asked = 0;
		sk = ps_pick(&bed.group, bed.set, n, &by_attempt, &asked_for,
			     counts);
		ok(sk == (want < 0 ? NULL : &bed.socks[want]),
		   "%u members, %u in use, %u broken: picks %d", members, n,
		   broken, want);
		is(asked, want_asked, "asks as often as it has to");
		is(bed_fallbacks(&bed), want < 0 ? counts : 0, "counts fallbacks");
		for (i = 0; i < members; i++)
			picked += bed_picked(&bed, i);
		is(picked, want < 0 ? 0 : counts, "counts picks");
		if (want >= 0)
			is(bed_picked(&bed, want), counts, "of that member");
	}
	bed_free(&bed);
}

int main(void)
{
	test_delivers();
	test_usable();
	test_pick(3, 0, 3, 1, 0);
	test_pick(3, 2, 3, 3, 2);
	test_pick(3, 3, 3, PS_PICK_ATTEMPTS, -1);
	test_pick(3, 0, 0, 0, -1);
	test_pick(3, 1, 1, PS_PICK_ATTEMPTS, -1);
	test_pick(9, 7, 9, 8, 7);
	test_pick(9, 8, 9, PS_PICK_ATTEMPTS, -1);
	is(asked_wrongly, 0, "each attempt has its number, the set and the flow");
	return done();
}
