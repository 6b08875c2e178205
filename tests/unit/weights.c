// SPDX-License-Identifier: GPL-2.0
/* hash, rr and random where weights differ. */
#include "bed.h"
#include "stats.h"
#include "tap.h"

#define MOST 64

static u32 count[MOST], weights[MOST];

/* @n members of random weights up to @most, not all the same. */
static void init(struct bed *bed, u32 n, u32 most)
{
	u32 i;

	bed_init(bed, n);
	for (i = 0; i < n; i++)
		weights[i] = 1 + rnd_below(most);
	if (weights[0] == weights[1])
		weights[0] = weights[1] % most + 1;
	bed_weigh_all(bed, weights);
	memset(count, 0, sizeof(count));
}

/* Shares by weight, all members picked. */
static void test_shares(const struct ps_policy *policy)
{
	double z, worst = 0;
	struct bed_flow f;
	u32 round, k;

	for (round = 0; round < 200; round++) {
		u32 n = 2 + rnd_below(30);
		struct bed bed;

		/* Chi-square wants 5 or so for each at least. */
		init(&bed, n, 2 + round % 20);
		for (k = 0; k < 200 * n; k++)
			count[bed_pick(&bed, policy, bed_flow(&f, k, 0), 0)]++;
		z = chi_square_by(count, weights, n);
		if (z > worst)
			worst = z;
		bed_free(&bed);
	}
	ok(worst < 4.5, "%s: shares by weight, worst %.1f sigma",
	   policy->name, worst);
}

static void test_heavy(const struct ps_policy *policy)
{
	struct bed_flow f;
	struct bed bed;
	u32 k;

	init(&bed, 3, 2);
	bed_weigh(&bed, 0, 1);
	bed_weigh(&bed, 1, 65535);
	bed_weigh(&bed, 2, 13107);
	for (k = 0; k < 500000; k++)
		count[bed_pick(&bed, policy, bed_flow(&f, k, 0), 0)]++;
	ok(count[0] >= 1 && count[0] < 25, "%s: weight 1 of 78643 gets %u",
	   policy->name, count[0]);
	ok(count[1] > 5 * count[2] * 0.97 && count[1] < 5 * count[2] * 1.03,
	   "5 to 1: %u to %u", count[1], count[2]);
	bed_free(&bed);
}

/* The flows of an unusable member go to the others, by their weights. */
static void test_others(const struct ps_policy *policy, u32 broken)
{
	static const u32 by[] = { 4, 1, 3, 2, 10 };
	struct bed_flow f;
	struct bed bed;
	u32 k, i, n = 0, got[5], want[5];

	init(&bed, 5, 2);
	bed_weigh_all(&bed, by);
	bed_break(&bed, broken);
	for (k = 0; k < 50000; k++)
		bed_steer(&bed, policy, bed_flow(&f, k, k & 1));
	is(bed_fallbacks(&bed), 0, "%s, member %u unusable: no fallback",
	   policy->name, broken);
	for (i = 0; i < 5; i++) {
		if (i == broken)
			continue;
		got[n] = bed_picked(&bed, i);
		want[n++] = by[i];
	}
	ok(chi_square_by(got, want, n) < 4.5, "the others' shares are by weight");
	bed_free(&bed);
}

/* How far members ever are from their share, in a round of all turns. */
static double deviation(struct bed *bed, u32 turns, u32 total)
{
	double dev, worst = 0;
	struct bed_flow f;
	u32 i, t;

	bed_flow(&f, 0, false);
	memset(count, 0, sizeof(count));
	for (t = 1; t <= turns; t++) {
		count[bed_pick(bed, &ps_policy_rr, &f.flow, 0)]++;
		/* Each near the start and the end, then some. */
		if (t > 2000 && t + 2000 < turns && t % 97)
			continue;
		for (i = 0; i < bed->n; i++) {
			dev = fabs(count[i] - (double)t * weights[i] / total);
			if (dev > worst)
				worst = dev;
		}
	}
	return worst;
}

static void test_rounds(u32 most, u32 rounds, double bound)
{
	double dev, worst = 0;
	u32 round, i, inexact = 0, starved = 0;

	for (round = 0; round < rounds; round++) {
		u32 n = 2 + rnd_below(most > 1000 ? 8 : 40), total;
		struct bed bed;

		init(&bed, n, most);
		total = ps_set_total(bed.set, n);
		bed_index(&bed, &ps_policy_rr);
		/* A round may begin anywhere, but where turns wrap around. */
		atomic_set(&bed.group.turn, rnd() >> 2);
		dev = deviation(&bed, total, total);
		if (dev > worst)
			worst = dev;
		for (i = 0; i < n; i++) {
			inexact += count[i] != weights[i];
			starved += !count[i];
		}
		bed_free(&bed);
	}
	is(inexact, 0, "rr: weights up to %u exact in a round", most);
	is(starved, 0, "nobody starves");
	ok(worst <= bound, "never off by more than %.1f turns", worst);
}

/* At most so many turns until a member is picked again, to its fair distance. */
static void test_gaps(void)
{
	u32 round, i, t;
	double worst = 0;

	for (round = 0; round < 200; round++) {
		u32 n = 2 + rnd_below(20), total, last[MOST] = { 0 };
		struct bed_flow f;
		struct bed bed;

		init(&bed, n, 30);
		total = ps_set_total(bed.set, n);
		bed_index(&bed, &ps_policy_rr);
		bed_flow(&f, 0, false);
		for (t = 1; t <= 3 * total; t++) {
			i = bed_pick(&bed, &ps_policy_rr, &f.flow, 0);
			if (last[i]) {
				double gap = (double)(t - last[i]) *
					     weights[i] / total;

				if (gap > worst)
					worst = gap;
			}
			last[i] = t;
		}
		bed_free(&bed);
	}
	ok(worst < 3.5, "rr: a member waits %.1f times its fair distance at most",
	   worst);
}

static void test_small(void)
{
	static const u32 three_one[] = { 3, 1 };
	struct bed_flow f;
	struct bed bed;
	char text[9] = "";
	u32 k;

	init(&bed, 2, 2);
	bed_weigh_all(&bed, three_one);
	bed_flow(&f, 0, false);
	for (k = 0; k < 8; k++)
		text[k] = 'A' + bed_pick(&bed, &ps_policy_rr, &f.flow, 0);
	ok(strstr("AAABAAABAAAB", text), "rr: 3 to 1 is %s", text);
	bed_free(&bed);
}

static void test_index(void)
{
	struct bed_flow f;
	u32 round, k, differ = 0;

	bed_flow(&f, 0, false);
	for (round = 0; round < 500; round++) {
		u32 n = 2 + rnd_below(30), start = rnd(), with[50];
		struct bed bed;

		init(&bed, n, 2 + rnd_below(65534));
		bed_index(&bed, &ps_policy_rr);
		atomic_set(&bed.group.turn, start);
		for (k = 0; k < 50; k++)
			with[k] = bed_pick(&bed, &ps_policy_rr, &f.flow, 0);
		bed_unindex(&bed);
		atomic_set(&bed.group.turn, start);
		for (k = 0; k < 50; k++)
			differ += with[k] !=
				  bed_pick(&bed, &ps_policy_rr, &f.flow, 0);
		bed_free(&bed);
	}
	is(differ, 0, "rr: the same with an index and without");
}

/* Totals near what fits. */
static void test_largest(void)
{
	struct bed_flow f;
	struct bed bed;
	u32 i, k;

	bed_init(&bed, 65536);
	for (i = 1; i < 65536; i++)
		bed.members[i].weight = 65535;
	bed_changed(&bed);
	bed_flow(&f, 0, false);
	atomic_set(&bed.group.turn, -100);
	for (k = 0; k < 200; k++) {
		bed_pick(&bed, &ps_policy_rr, &f.flow, k & 1);
		bed_pick(&bed, &ps_policy_hash, &f.flow, k & 1);
		bed_pick(&bed, &ps_policy_random, &f.flow, k & 1);
	}
	ok(true, "65536 members of weight 65535");
	bed_free(&bed);
}

int main(void)
{
	static const struct ps_policy *const by_chance[] = {
		&ps_policy_hash, &ps_policy_random, &ps_policy_rr,
	};
	u32 i, broken;

	ps_random_init();
	for (i = 0; i < ARRAY_SIZE(by_chance); i++) {
		test_shares(by_chance[i]);
		test_heavy(by_chance[i]);
		for (broken = 0; broken < 5; broken++)
			test_others(by_chance[i], broken);
	}
	test_small();
	test_rounds(3, 200, 4);
	test_rounds(10, 200, 5);
	test_rounds(1000, 60, 8);
	test_rounds(65535, 30, 8);
	test_gaps();
	test_index();
	test_largest();
	return done();
}
