// SPDX-License-Identifier: GPL-2.0
/* A group's flows: how they are told apart, for how long, with what memory. */
#include "bed.h"
#include "flow.h"
#include "flow_table.h"
#include "stats.h"
#include "tap.h"

static struct bed bed;

static void start(u32 n, u32 affinity)
{
	bed_init(&bed, n);
	atomic_set(&bed.group.turn, -1);
	ps_flows_start(&bed.group);
	bed_udp(&bed);
	machine.seconds = 1000;
	bed.group.affinity = affinity;
	if (ps_flows_update(&bed.group))
		abort();
}

static void stop(void)
{
	bed.group.affinity = 0;
	bed.group.working_generation = -1;
	ps_flows_update(&bed.group);
	bed_free(&bed);
}

/* The member that a datagram gets to, or -1. */
static int steer(const struct ps_policy *policy, const struct ps_flow *flow)
{
	int got;

	rcu_read_lock();
	got = bed_steer(&bed, policy, flow);
	rcu_read_unlock();
	return got;
}

static int steer_k(u32 k)
{
	struct bed_flow f;

	return steer(&ps_policy_rr, bed_flow(&f, k, k & 1));
}

/* rr would deal them out. */
static void test_affinity(void)
{
	u32 i, k, moved = 0;
	int with[100];

	start(4, 10);
	for (k = 0; k < 100; k++)
		with[k] = steer_k(k);
	for (i = 0; i < 10; i++) {
		machine.seconds += 10;
		for (k = 0; k < 100; k++)
			moved += steer_k(k) != with[k];
	}
	is(moved, 0, "flows stay under rr");
	is(ps_flows_live(&bed.group), 100, "all are live");
	for (k = 0; k < 4; k++)
		is(bed_picked(&bed, k), 275, "new ones are dealt out, all count");
	machine.seconds += 11;
	is(ps_flows_live(&bed.group), 0, "after a pause none is");
	is(steer_k(1), 0, "and the next datagram is a new flow's");
	is(ps_flows_live(&bed.group), 1, "which is a live one");
	stop();
}

/* A flow is its addresses and ports, all of them. */
static void test_tuple(bool v6)
{
	struct bed_flow f;
	u8 *addrs, *ports;
	u32 i, n = 0, len = v6 ? 32 : 8;

	start(2, 10);
	bed_flow(&f, 1, v6);
	addrs = v6 ? f.packet.v6.saddr.s6_addr : (u8 *)&f.packet.v4.saddr;
	ports = (u8 *)&f.packet.sport;
	steer(&ps_policy_rr, &f.flow);
	for (i = 0; i < len * 8; i++) {
		addrs[i / 8] ^= 1 << i % 8;
		steer(&ps_policy_rr, &f.flow);
		is(ps_flows_live(&bed.group), 2 + n++, "IPv%d: bit %u of the addresses",
		   v6 ? 6 : 4, i);
		addrs[i / 8] ^= 1 << i % 8;
	}
	for (i = 0; i < 32; i++) {
		ports[i / 8] ^= 1 << i % 8;
		steer(&ps_policy_rr, &f.flow);
		is(ps_flows_live(&bed.group), 2 + n++, "bit %u of the ports", i);
		ports[i / 8] ^= 1 << i % 8;
	}
	f.packet.rest[0] ^= 0xff;
	f.packet.link[0] ^= 0xff;
	f.flow.hash ^= 1;
	if (v6) {
		f.packet.v6.hop_limit ^= 0xff;
		f.packet.v6.flow_lbl[1] ^= 0xff;
		f.packet.v6.payload_len ^= 0xffff;
	} else {
		f.packet.v4.ttl ^= 0xff;
		f.packet.v4.tos ^= 0xff;
		f.packet.v4.id ^= 0xffff;
	}
	steer(&ps_policy_rr, &f.flow);
	is(ps_flows_live(&bed.group), 1 + n, "nothing else makes it another one");
	stop();
}

/* When a live flow leaves its member, and when not. */
static void test_members(void)
{
	int other, gone, want;

	start(3, 10);
	is(steer_k(1), 0, "a flow of the first member");
	ps_set_remove(bed.set, &bed.members[0]);
	ps_set_publish(bed.set);
	is(steer_k(1), 0, "stays when that drains");
	other = steer_k(2);
	ok(other == 1 || other == 2, "new ones don't come to it");
	bed.members[0].candidate = false;
	other = steer_k(1);
	ok(other == 1 || other == 2, "it is leaving: the policy's choice");
	bed.members[0].candidate = true;
	is(steer_k(1), other, "for good");
	bed.socks[other].sk_state = TCP_ESTABLISHED;
	is(steer_k(1), 3 - other, "that one is connected: the policy's choice");
	bed.socks[other].sk_state = TCP_CLOSE;
	is(steer_k(1), 3 - other, "for good");
	/* It leaves, as ps_group_leave() does it. */
	gone = 3 - other;
	want = steer_k(2) == gone ? 0 : 1;
	bed.members[gone].candidate = false;
	ps_set_remove(bed.set, &bed.members[gone]);
	ps_set_publish(bed.set);
	xa_erase(&bed.group.handles, 1 + gone);
	bed.members[gone].handle = 0;
	is(ps_flows_live(&bed.group), want, "it has left: its flows aren't live");
	is(steer_k(1), other, "but the policy's");
	is(steer_k(1), other, "for good");
	is(ps_flows_live(&bed.group), want + 1, "and live again");
	stop();
}

/* A policy that chooses a member that leaves in the same moment. */
static void test_leaving(void)
{
	start(1, 10);
	xa_erase(&bed.group.handles, 1);
	bed.members[0].handle = 0;
	is(steer_k(1), 0, "who leaves gets the datagram");
	is(ps_flows_live(&bed.group), 0, "but not the flow");
	is(atomic64_read(&bed.group.flows_full), 0, "which isn't for want of room");
	stop();
}

/* For how long a flow lives, by what the group has set. */
static void test_ttl(void)
{
	static const struct {
		u8 proto;
		u32 affinity;
		s32 working;
		u32 want;	/* seconds, 0: no table */
	} cases[] = {
		{ IPPROTO_UDP, 0, -1, 0 }, { IPPROTO_UDP, 7, -1, 7 },
		{ IPPROTO_UDP, 0, 0, 120 }, { IPPROTO_UDP, 0, 5, 120 },
		{ IPPROTO_UDP, 7, 5, 7 }, { IPPROTO_UDP, 500, 5, 500 },
		{ IPPROTO_TCP, 7, 5, 0 },
	};
	unsigned int i;
	int with;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		start(2, 0);
		bed.group.key.proto = cases[i].proto;
		bed.group.affinity = cases[i].affinity;
		bed.group.working_generation = cases[i].working;
		is(ps_flows_update(&bed.group), 0, "case %u", i);
		is(!!bed.group.flows, !!cases[i].want, "a table, or none");
		if (cases[i].want) {
			with = steer_k(1);
			steer_k(2);
			machine.seconds += cases[i].want;
			is(ps_flows_live(&bed.group), 2, "live for that time");
			is(steer_k(1), with, "and with its member");
			machine.seconds++;
			is(ps_flows_live(&bed.group), 1, "and no longer");
		}
		bed.group.members = 0;
		is(ps_flows_update(&bed.group), 0, "all members leave");
		ok(!bed.group.flows, "no table");
		stop();
	}
}

static void test_room(void)
{
	static const struct {
		u32 room, want;
	} cases[] = {
		{ 0, 64 }, { 1, 64 }, { 64, 64 }, { 65, 128 }, { 128, 128 },
		{ 1000, 1024 }, { 65535, 65536 }, { PS_FLOWS_MAX, PS_FLOWS_MAX },
		{ 64, 64 },
	};
	u32 slots, k, moved = 0;
	struct ps_flow_table *t;
	unsigned int i;
	int with[50];

	start(4, 10);
	is(bed.group.flow_room, PS_FLOWS_DEFAULT, "what it is at first");
	for (k = 0; k < 50; k++)
		with[k] = steer_k(k);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		is(ps_flows_set_room(&bed.group, cases[i].room), 0, "room for %u",
		   cases[i].room);
		is(bed.group.flow_room, cases[i].want, "made a power of two");
		is(bed.group.flows->slots, 2 * cases[i].want,
		   "with two slots for each");
		for (k = 0; k < 50; k++)
			moved += steer_k(k) != with[k];
		is(moved, 0, "all flows stay");
		is(ps_flows_live(&bed.group), 50, "and are there");
	}
	slots = bed.group.flows->slots;
	t = bed.group.flows;
	machine.no_memory = true;
	is(ps_flows_set_room(&bed.group, 4096), -ENOMEM, "no memory");
	is(bed.group.flow_room, 64, "changes nothing");
	ok(bed.group.flows == t && t->slots == slots, "nor the table");
	is(ps_flows_set_room(&bed.group, 60), 0, "the same again needs none");
	machine.no_memory = false;
	bed.group.affinity = 0;
	ps_flows_update(&bed.group);
	machine.no_memory = true;
	is(ps_flows_set_room(&bed.group, 4096), 0, "nor does it without a table");
	is(bed.group.flow_room, 4096, "as it is for the next one");
	is(ps_flows_reserve(&bed.group), -ENOMEM, "that has no memory");
	bed.group.affinity = 5;
	is(ps_flows_update(&bed.group), -ENOMEM, "either way");
	ok(!bed.group.flows, "so there is none");
	ok(steer_k(1) >= 0, "and datagrams get to somebody");
	machine.no_memory = false;
	is(ps_flows_reserve(&bed.group), 0, "now there is");
	is(bed.group.flows->slots, 8192, "of that size");
	bed.group.key.proto = IPPROTO_TCP;
	is(ps_flows_update(&bed.group), 0, "a TCP group");
	is(ps_flows_reserve(&bed.group), 0, "needs none");
	ok(!bed.group.flows, "and has none");
	stop();
}

/* A flood of flows never puts out those that live; the table stays what it is. */
static void test_full(void)
{
	u32 k, moved = 0, nowhere = 0, full;
	int with[40];

	start(4, 10);
	ps_flows_set_room(&bed.group, 64);
	for (k = 0; k < 40; k++)
		with[k] = steer_k(k);
	is(atomic64_read(&bed.group.flows_full), 0, "there is room for 40");
	for (k = 0; k < 20000; k++) {
		nowhere += steer_k(1000 + k) < 0;
		if (k % 1000 == 0)
			machine.seconds++;
		moved += steer_k(k % 40) != with[k % 40];
	}
	is(nowhere, 0, "a flood: every datagram gets to somebody");
	is(moved, 0, "live flows stay");
	ok(ps_flows_live(&bed.group) <= 128, "no more flows than slots");
	full = atomic64_read(&bed.group.flows_full);
	ok(full > 18000, "%u weren't remembered, and are counted", full);
	for (k = 0; k < 4; k++)
		nowhere += bed_picked(&bed, k);
	is(nowhere, 40040, "every datagram counts as picked");
	stop();
}

int main(void)
{
	ps_flow_init();
	test_affinity();
	test_tuple(false);
	test_tuple(true);
	test_members();
	test_leaving();
	test_ttl();
	test_room();
	test_full();
	return done();
}
