// SPDX-License-Identifier: GPL-2.0
/* consistent: who moves when members come and go. */
#include "bed.h"
#include "stats.h"
#include "tap.h"

#define FLOWS 400
#define SLOTS 16384

static const struct ps_policy *const policy = &ps_policy_consistent;

/* Ids of the owners of all slots; a hash is a slot where nothing scatters it. */
static void owners(struct bed *bed, u32 *owner)
{
	struct ps_flow flow = { 0 };
	u32 slot;

	for (slot = 0; slot < SLOTS; slot++) {
		flow.hash = slot << 18;
		owner[slot] = bed->members[bed_pick(bed, policy, &flow, 0)].id;
	}
}

static u32 before[SLOTS], after[SLOTS];

/* Members with ids 0..@n-1, all in the set but for those with @out set. */
static void init(struct bed *bed, u32 n, u32 most)
{
	u32 i;

	bed_init(bed, n);
	for (i = 0; i < n; i++)
		bed->members[i].weight = 1 + rnd_below(most);
	bed_changed(bed);
}

static void leave(struct bed *bed, u32 i)
{
	ps_set_remove(bed->set, &bed->members[i]);
	bed_changed(bed);
}

static void join(struct bed *bed, u32 i)
{
	ps_set_insert(bed->set, &bed->members[i], PS_RANK_ACTIVE);
	bed_changed(bed);
}

/* How many slots moved that may not: not from @from, nor to @to. -1: any. */
static u32 moved_wrongly(s64 from, s64 to)
{
	u32 slot, wrong = 0;

	for (slot = 0; slot < SLOTS; slot++)
		wrong += before[slot] != after[slot] && before[slot] != from &&
			 after[slot] != to;
	return wrong;
}

static u32 share(const u32 *owner, u32 id)
{
	u32 slot, n = 0;

	for (slot = 0; slot < SLOTS; slot++)
		n += owner[slot] == id;
	return n;
}

/* Joining, leaving and weights: only what has to move does. */
static void test_movement(u32 n, u32 most)
{
	u32 round, wrong = 0, idle = 0, i;
	struct bed bed;

	for (round = 0; round < 20; round++) {
		i = rnd_below(n);
		init(&bed, n, most);
		bed_index(&bed, policy);
		owners(&bed, before);
		leave(&bed, i);
		bed_index(&bed, policy);
		owners(&bed, after);
		wrong += moved_wrongly(i, -1) || share(after, i);
		join(&bed, i);
		bed_index(&bed, policy);
		owners(&bed, after);
		wrong += memcmp(before, after, sizeof(before)) != 0;
		/* More weight only takes, less only gives. */
		bed_weigh(&bed, i, 10 * most + bed.members[i].weight);
		bed_index(&bed, policy);
		owners(&bed, after);
		wrong += moved_wrongly(-1, i);
		idle += share(after, i) <= share(before, i);
		memcpy(before, after, sizeof(before));
		bed_weigh(&bed, i, 1);
		bed_index(&bed, policy);
		owners(&bed, after);
		wrong += moved_wrongly(i, -1);
		idle += share(after, i) >= share(before, i);
		bed_free(&bed);
	}
	is(wrong, 0, "%u members, weights up to %u: nothing else moves", n, most);
	is(idle, 0, "but something does");
}

/* Made step by step, made at once, and worked out for each packet. */
static void test_incremental(u32 most)
{
	u32 step, changes, i, fresh_differs = 0, scan_differs = 0;
	struct ps_index *fresh;
	struct bed bed;
	bool in[30];

	init(&bed, ARRAY_SIZE(in), most);
	memset(in, true, sizeof(in));
	bed_index(&bed, policy);
	for (step = 0; step < 60; step++) {
		for (changes = rnd_below(6); changes < 6; changes++) {
			i = rnd_below(ARRAY_SIZE(in));
			if (rnd_below(3) == 0)
				bed_weigh(&bed, i, 1 + rnd_below(most));
			else if (!in[i])
				join(&bed, i);
			else if (ps_set_count(bed.set) > 1)
				leave(&bed, i);
			in[i] = bed.members[i].rank != PS_RANK_NONE;
		}
		bed_index(&bed, policy);
		fresh = bed_build(&bed, policy, NULL);
		owners(&bed, before);
		bed.group.index = fresh;
		owners(&bed, after);
		fresh_differs += memcmp(before, after, sizeof(before)) != 0;
		free(fresh);
		bed.group.index = NULL;
		if (step % 10 == 0) {
			owners(&bed, after);
			scan_differs += memcmp(before, after,
					       sizeof(before)) != 0;
		}
		bed.group.index = bed.index;
	}
	bed_free(&bed);
	is(fresh_differs, 0, "weights up to %u: step by step as at once", most);
	is(scan_differs, 0, "and as without an index");
}

/* The same ids and weights in another order, or other places. */
static void test_order(void)
{
	u32 i, k, n = 50;
	struct bed a, b;

	init(&a, n, 9);
	owners(&a, before);
	bed_init_empty(&b, n);
	for (i = 0, k = 0; i < n; i++, k = (k + 37) % n) {
		b.members[i].id = k;
		b.members[i].weight = a.members[k].weight;
		join(&b, i);
	}
	owners(&b, after);
	ok(!memcmp(before, after, sizeof(before)), "the order of joining doesn't matter");
	bed_index(&b, policy);
	owners(&b, after);
	ok(!memcmp(before, after, sizeof(before)), "nor with an index");
	bed_free(&a);
	bed_free(&b);
}

static void test_shares(u32 n, u32 most)
{
	u32 i, count[1000] = { 0 }, weights[1000], slot;
	double z;
	struct bed bed;

	init(&bed, n, most);
	bed_index(&bed, policy);
	owners(&bed, before);
	for (slot = 0; slot < SLOTS; slot++)
		count[before[slot]]++;
	for (i = 0; i < n; i++)
		weights[i] = bed.members[i].weight;
	z = chi_square_by(count, weights, n);
	ok(z < 4, "%u members, weights up to %u: shares by weight (%.1f sigma)",
	   n, most, z);
	bed_free(&bed);
}

/* Where one has most of the weight, and where logarithms are near 0. */
static void test_heavy(void)
{
	static const u32 weights[] = { 65535, 1, 655, 65535 };
	struct bed bed;
	u32 heavy, light;

	bed_init(&bed, 4);
	bed_weigh_all(&bed, weights);
	bed_index(&bed, policy);
	owners(&bed, before);
	heavy = share(before, 0);
	light = share(before, 2);
	ok(heavy > 7900 && heavy < 8450, "65535 of 131726: %u of %u slots", heavy,
	   SLOTS);
	ok(light > 50 && light < 115, "655: %u", light);
	ok(share(before, 1) < 5, "1: %u", share(before, 1));
	bed_free(&bed);
}

/* The flows' sockets, for acceptance case 6. */
static void flows(struct bed *bed, u32 *got)
{
	struct bed_flow f;
	u32 k;

	bed_index(bed, policy);
	for (k = 0; k < FLOWS; k++)
		got[k] = bed_pick(bed, policy, bed_flow(&f, k, k & 1), 0);
}

static void test_acceptance(const char *when)
{
	u32 with[FLOWS], without[FLOWS], again[FLOWS], i, k;
	u32 others = 0, moved = 0, most = 0;
	struct bed bed;

	init(&bed, 8, 1);
	flows(&bed, with);
	for (i = 0; i < 8; i++) {
		u32 went = 0;

		leave(&bed, i);
		flows(&bed, without);
		for (k = 0; k < FLOWS; k++)
			others += with[k] != i && with[k] != without[k];
		join(&bed, i);
		flows(&bed, again);
		for (k = 0; k < FLOWS; k++) {
			went += without[k] != again[k];
			moved += without[k] != again[k] && again[k] != i;
		}
		if (went > most)
			most = went;
	}
	is(others, 0, "%s: one of 8 closes: no other's flow moves", when);
	is(moved, 0, "one comes: flows move to it only");
	ok(most <= 75, "%u of %u at most", most, FLOWS);
	bed_free(&bed);
}

static void test_seed(void)
{
	u32 slot, same = 0;
	struct bed bed;

	init(&bed, 8, 5);
	ps_hash_set_seed("00112233445566778899aabbccddeeff");
	bed_index(&bed, policy);
	owners(&bed, before);
	ps_hash_set_seed("00112233445566778899aabbccddeefe");
	owners(&bed, after);
	for (slot = 0; slot < SLOTS; slot++)
		same += before[slot] == after[slot];
	ok(same < SLOTS / 2, "another seed: at once another mapping (%u stay)",
	   same);
	bed_index(&bed, policy);
	owners(&bed, before);
	ok(!memcmp(before, after, sizeof(before)), "an old index isn't built upon");
	ps_hash_set_seed("random");
	bed_free(&bed);
}

/* Other attempts: another member each, spread over all of them. */
static void test_attempts(u32 n, u32 indexed)
{
	u32 k, attempt, same = 0, count[64] = { 0 };
	struct bed_flow f;
	struct bed bed;

	init(&bed, n, 1);
	if (indexed)
		bed_index(&bed, policy);
	for (k = 0; k < 2000 * n; k++) {
		bed_flow(&f, k, false);
		if (bed_pick(&bed, policy, &f.flow, 0))
			continue;
		attempt = 1 + k % 7;
		count[bed_pick(&bed, policy, &f.flow, attempt)]++;
	}
	same = count[0];
	is(same, 0, "%u members: another attempt is another member", n);
	for (k = 1; k < n; k++)
		same += count[k] < 2000 / (n - 1) / 2;
	is(same, 0, "and they are spread");
	bed_free(&bed);
}

int main(void)
{
	test_movement(2, 1);
	test_movement(8, 1);
	test_movement(8, 20);
	test_movement(30, 65535);
	test_incremental(1);
	test_incremental(3);
	test_incremental(65535);
	test_order();
	test_shares(2, 1);
	test_shares(8, 1);
	test_shares(8, 5);
	test_shares(50, 20);
	test_shares(1000, 1);
	test_shares(1000, 4);
	test_heavy();
	test_seed();
	ps_hash_init();
	test_acceptance("random");
	ps_hash_set_seed("00112233445566778899aabbccddeeff");
	test_acceptance("seeded");
	test_attempts(2, 1);
	test_attempts(3, 0);
	test_attempts(8, 1);
	return done();
}
