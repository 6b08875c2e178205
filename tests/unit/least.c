// SPDX-License-Identifier: GPL-2.0
/* least and idle: by what members have to do, and who waits for work. */
#include "bed.h"
#include "load.h"
#include "stats.h"
#include "tap.h"

static const struct ps_policy *const least = &ps_policy_least;
static const struct ps_policy *const idle = &ps_policy_idle;
static struct bed_flow flow;

static void load(struct bed *bed, u32 i, u32 queued)
{
	bed->socks[i].sk_ack_backlog = queued;
}

static void test_load(void)
{
	struct bed bed;

	bed_init(&bed, 1);
	bed.socks[0].sk_ack_backlog = 3;
	atomic_set(&bed.socks[0].shim_icsk.icsk_accept_queue.qlen, 4);
	atomic_set(&bed.socks[0].sk_rmem_alloc, 5000);
	is(ps_member_load(&bed.members[0]), 7,
	   "TCP: connections to be accepted and half-open ones");
	bed.socks[0].sk_protocol = IPPROTO_UDP;
	is(ps_member_load(&bed.members[0]), 5000, "UDP: bytes");
	bed_free(&bed);
}

/* Is nobody usable loaded less for his weight than @i? */
static bool least_loaded(const struct bed *bed, u32 i)
{
	const struct ps_member *m = &bed->members[i], *other;
	u32 k;

	for (k = 0; k < bed->n; k++) {
		other = &bed->members[k];
		if (bed_usable(bed, k) &&
		    (u64)ps_member_load(other) * m->weight <
		    (u64)ps_member_load(m) * other->weight)
			return false;
	}
	return bed_usable(bed, i);
}

static void test_exact(void)
{
	u32 round, i, k, wrong = 0;

	for (round = 0; round < 3000; round++) {
		u32 n = 1 + rnd_below(64), most = 1 + rnd_below(5);
		struct bed bed;

		if (round & 1)
			most = U32_MAX / 2;
		bed_init(&bed, n);
		for (i = 0; i < n; i++) {
			load(&bed, i, rnd_below(most));
			bed.members[i].weight = round % 3 ? 1 :
						1 + rnd_below(65535);
			if (i && !rnd_below(4))
				bed_break(&bed, i);
		}
		bed_changed(&bed);
		for (k = 0; k < 5; k++)
			wrong += !least_loaded(&bed, bed_pick(&bed, least,
							      &flow.flow, k));
		bed_free(&bed);
	}
	is(wrong, 0, "up to 64 members: the least loaded usable one");
}

/* Each of equals in its turn. */
static void test_ties(u32 n, u32 queued)
{
	u32 k, i, count[64] = { 0 }, uneven = 0;
	struct bed bed;

	bed_init(&bed, n);
	for (i = 0; i < n; i++)
		load(&bed, i, queued);
	for (k = 0; k < 10 * n; k++)
		count[bed_pick(&bed, least, &flow.flow, 0)]++;
	for (i = 0; i < n; i++)
		uneven += count[i] != 10;
	is(uneven, 0, "%u equals with %u queued take turns", n, queued);
	bed_free(&bed);
}

static void test_weights(void)
{
	static const u32 weights[] = { 3, 1 };
	u32 k, count[2] = { 0 };
	struct bed bed;

	bed_init(&bed, 2);
	bed_weigh_all(&bed, weights);
	for (k = 0; k < 400; k++)
		count[bed_pick(&bed, least, &flow.flow, 0)]++;
	is(count[0], 300, "nothing queued: turns by weight");
	load(&bed, 0, 3);
	load(&bed, 1, 1);
	bed_pick(&bed, least, &flow.flow, 0);
	load(&bed, 0, 2);
	is(bed_pick(&bed, least, &flow.flow, 0), 0, "2 / 3 is less than 1 / 1");
	load(&bed, 0, 4);
	is(bed_pick(&bed, least, &flow.flow, 0), 1, "4 / 3 is more than 1 / 1");
	bed_free(&bed);
}

/* A burst of SYNs, none of which has been answered yet. */
static void test_burst(void)
{
	struct bed bed;
	u32 k, i, uneven = 0;

	bed_init(&bed, 8);
	load(&bed, 3, 5);
	for (k = 0; k < 75; k++) {
		i = bed_pick(&bed, least, &flow.flow, 0);
		atomic_inc_return(&bed.socks[i].shim_icsk.icsk_accept_queue.qlen);
	}
	for (i = 0; i < 8; i++)
		uneven += ps_member_load(&bed.members[i]) != 10;
	is(uneven, 0, "75 SYNs over 8 members fill them all to 10");
	bed_free(&bed);
}

/*
 * Workers as fast as their weights say, at 90% load: who gets how much, and how
 * much is queued at most?
 */
static void simulate(u32 n, u32 most, const char *what)
{
	u32 weights[200], count[200] = { 0 }, i, k, total = 0, worst = 0;
	u32 starved = 0;
	struct bed bed;

	bed_init(&bed, n);
	for (i = 0; i < n; i++) {
		weights[i] = 1 + rnd_below(most);
		total += weights[i];
	}
	bed_weigh_all(&bed, weights);
	for (k = 0; k < 2000 * n; k++) {
		u32 point = rnd_below(total), served = 0;

		if (rnd_below(10)) {
			i = bed_pick(&bed, least, &flow.flow, 0);
			count[i]++;
			load(&bed, i, bed.socks[i].sk_ack_backlog + 1);
		}
		while (point >= weights[served])
			point -= weights[served++];
		if (bed.socks[served].sk_ack_backlog)
			load(&bed, served, bed.socks[served].sk_ack_backlog - 1);
		for (i = 0; i < n; i++)
			if (bed.socks[i].sk_ack_backlog / weights[i] > worst)
				worst = bed.socks[i].sk_ack_backlog / weights[i];
	}
	for (i = 0; i < n; i++)
		starved += (double)count[i] * total / weights[i] < 0.5 * 1800 * n;
	is(starved, 0, "%s: nobody gets less than half of his share", what);
	ok(worst < 20, "%s: %u queued at most, by weight", what, worst);
	bed_free(&bed);
}

/* More than 64: the best of 8. */
static void test_samples(void)
{
	u32 i, k, busy = 0, n = 1000, picked[1000] = { 0 }, starved = 0;
	struct bed bed;

	bed_init(&bed, n);
	for (i = 0; i < n; i++)
		load(&bed, i, i % 2 ? 100 : 0);
	for (k = 0; k < 20000; k++)
		busy += bed_pick(&bed, least, &flow.flow, 0) % 2;
	/* 1 in 256 */
	ok(busy > 20 && busy < 200, "1000 members, one half busy: %u of %u",
	   busy, k);
	for (i = 0; i < n; i++)
		load(&bed, i, 0);
	for (k = 0; k < 20 * n; k++)
		picked[bed_pick(&bed, least, &flow.flow, 0)]++;
	for (i = 0; i < n; i++)
		starved += !picked[i];
	is(starved, 0, "1000 equals: nobody starves");
	bed_free(&bed);
}

static void awake(struct bed *bed, u32 i, u64 when, bool waits)
{
	bed->members[i].worker = i + 1;
	bed->members[i].awake = when;
	machine.waits[i + 1] = waits;
}

static u32 pick_idle(struct bed *bed)
{
	return bed_pick(bed, idle, &flow.flow, 0);
}

static void test_idle_order(void)
{
	struct bed bed;
	u32 i;

	machine = (struct machine){ .cpu = 2, .nr_cpus = 4, .nr_nodes = 1 };
	bed_init(&bed, 4);
	for (i = 0; i < 4; i++) {
		awake(&bed, i, 100 + i, true);
		bed.members[i].ran_on = 0;
	}
	is(pick_idle(&bed), 3, "the one last awake");
	bed.members[1].awake = 500;
	is(pick_idle(&bed), 1, "wherever it is");
	is(pick_idle(&bed), 1, "again and again");
	bed.members[0].ran_on = 2;
	is(pick_idle(&bed), 0, "but first one that ran on this CPU");
	bed.members[0].cpu = 3;
	is(pick_idle(&bed), 1, "unless it is to serve another");
	bed.members[2].cpu = 2;
	is(pick_idle(&bed), 2, "or one that is to serve this one");
	bed.members[3].cpu = 2;
	is(pick_idle(&bed), 3, "of two, the one last awake");
	load(&bed, 3, 1);
	is(pick_idle(&bed), 2, "not with something queued");
	machine.waits[3] = false;
	is(pick_idle(&bed), 1, "not while it works");
	bed_break(&bed, 1);
	is(pick_idle(&bed), 0, "not if it is unusable");
	bed.members[0].worker = 0;
	load(&bed, 0, 4);
	load(&bed, 2, 3);
	load(&bed, 3, 2);
	is(pick_idle(&bed), 3, "nobody idle: the least loaded");
	load(&bed, 3, 0);
	awake(&bed, 3, 0, true);
	is(pick_idle(&bed), 3, "one never seen awake may be idle too");
	bed_free(&bed);
}

/* Nobody is known to wait: as least. */
static void test_idle_unknown(void)
{
	u32 k, i, count[8] = { 0 }, uneven = 0;
	struct bed bed;

	bed_init(&bed, 8);
	for (k = 0; k < 80; k++)
		count[pick_idle(&bed)]++;
	for (i = 0; i < 8; i++)
		uneven += count[i] != 10;
	is(uneven, 0, "idle: workers not known: members take turns");
	bed_free(&bed);
}

/* The best by the rules, over and over. */
static void test_idle_random(void)
{
	u32 round, i, wrong = 0;

	for (round = 0; round < 3000; round++) {
		u32 n = 1 + rnd_below(64), got;
		s64 best = -1, key, key_got = -1;
		struct bed bed;

		machine.nr_cpus = 4;
		machine.cpu = rnd_below(4);
		bed_init(&bed, n);
		for (i = 0; i < n; i++) {
			awake(&bed, i, rnd_below(100), rnd_below(4) == 0);
			bed.members[i].ran_on = rnd_below(5) - 1;
			load(&bed, i, rnd_below(2));
			if (!rnd_below(5))
				bed_break(&bed, i);
		}
		got = pick_idle(&bed);
		for (i = 0; i < n; i++) {
			key = bed.members[i].awake +
			      (ps_member_cpu(&bed.members[i]) == machine.cpu) *
			      1000;
			if (ps_member_load(&bed.members[i]) ||
			    !bed_usable(&bed, i) || !machine.waits[i + 1])
				continue;
			if (key > best)
				best = key;
			if (i == got)
				key_got = key;
		}
		wrong += key_got != best;
		if (best < 0)
			for (i = 0; i < n; i++)
				wrong += bed_usable(&bed, i) &&
					 !least_loaded(&bed, got);
		bed_free(&bed);
	}
	is(wrong, 0, "idle: as the rules say");
}

static void test_idle_many(void)
{
	u32 i, k, working = 0;
	struct bed bed;

	bed_init(&bed, 1000);
	for (i = 0; i < 1000; i++)
		awake(&bed, i, i, i % 2);
	machine.asked = 0;
	for (k = 0; k < 20000; k++)
		working += pick_idle(&bed) % 2 == 0;
	ok(working < 200, "idle: 1000 members, one half at work: %u of %u",
	   working, k);
	ok(machine.asked <= 8 * k, "looks at 8 threads at most");
	bed_free(&bed);
}

int main(void)
{
	bed_flow(&flow, 0, false);
	test_load();
	test_exact();
	test_ties(1, 0);
	test_ties(2, 1);
	test_ties(7, 0);
	test_ties(64, 9);
	test_weights();
	test_burst();
	simulate(8, 1, "8 members");
	simulate(8, 5, "8 members, weights");
	simulate(64, 1, "64 members");
	simulate(200, 1, "200 members");
	simulate(200, 5, "200 members, weights");
	test_samples();
	test_idle_order();
	test_idle_unknown();
	test_idle_random();
	test_idle_many();
	return done();
}
