// SPDX-License-Identifier: GPL-2.0
/* The set against a plain model: who is in it, in what order, with what sums. */
#include "bed.h"
#include "set_check.h"
#include "stats.h"
#include "tap.h"

#define MEMBERS 40

/* Active, standby, draining, each of the working generation or another. */
static void test_rank(void)
{
	static const struct {
		u8 state;
		u32 generation;
		s32 working;
		u8 want;
	} cases[] = {
		{ PORTSTEER_ACTIVE, 0, -1, PS_RANK_ACTIVE },
		{ PORTSTEER_ACTIVE, 7, -1, PS_RANK_ACTIVE },
		{ PORTSTEER_ACTIVE, 0, 0, PS_RANK_ACTIVE },
		{ PORTSTEER_ACTIVE, 7, 7, PS_RANK_ACTIVE },
		{ PORTSTEER_ACTIVE, 7, 0, PS_RANK_ACTIVE_OTHER },
		{ PORTSTEER_ACTIVE, 0, 7, PS_RANK_ACTIVE_OTHER },
		{ PORTSTEER_ACTIVE, INT32_MAX, INT32_MAX, PS_RANK_ACTIVE },
		{ PORTSTEER_STANDBY, 0, -1, PS_RANK_STANDBY },
		{ PORTSTEER_STANDBY, 7, 7, PS_RANK_STANDBY },
		{ PORTSTEER_STANDBY, 7, 8, PS_RANK_STANDBY_OTHER },
		{ PORTSTEER_DRAINING, 0, -1, PS_RANK_NONE },
		{ PORTSTEER_DRAINING, 7, 7, PS_RANK_NONE },
		{ PORTSTEER_DRAINING, 7, 8, PS_RANK_NONE },
	};
	static const u8 order[] = {
		PS_RANK_ACTIVE, PS_RANK_ACTIVE_OTHER, PS_RANK_STANDBY,
		PS_RANK_STANDBY_OTHER, PS_RANK_NONE,
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++)
		is(ps_rank(cases[i].state, cases[i].generation,
			   cases[i].working), cases[i].want,
		   "state %u, generation %u, working %d", cases[i].state,
		   cases[i].generation, cases[i].working);
	/* No standby while a member is active, of whatever generation. */
	for (i = 0; i < ARRAY_SIZE(order); i++)
		is(order[i], i, "rank %u", i);
}

/* A packet that had counted before: all it may read is a member. */
static const char *check_late(const struct bed *bed, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++) {
		const struct ps_member *m = ps_set_member(bed->set, i);

		if (m < bed->members || m >= bed->members + bed->n)
			return "an entry below an old count";
	}
	return NULL;
}

static void put(struct bed *bed, struct ps_member *m, u8 rank)
{
	if (m->rank != PS_RANK_NONE)
		ps_set_remove(bed->set, m);
	if (rank != PS_RANK_NONE)
		ps_set_insert(bed->set, m, rank);
}

static void renumber(struct bed *bed, struct ps_member *m)
{
	u8 rank = m->rank;
	u32 i, id = rnd_below(65536);

	for (i = 0; i < bed->n; i++)
		if (bed->members[i].id == id)
			return;
	put(bed, m, PS_RANK_NONE);
	m->id = id;
	put(bed, m, rank);
}

static void change(struct bed *bed)
{
	struct ps_member *m = &bed->members[rnd_below(bed->n)];

	switch (rnd_below(6)) {
	case 0:
		put(bed, m, PS_RANK_NONE);
		break;
	case 1:
		renumber(bed, m);
		break;
	case 2:
		m->weight = rnd_below(3) ? 1 : 1 + rnd_below(65535);
		ps_set_publish(bed->set);
		break;
	default:
		put(bed, m, rnd_below(PS_RANKS + 1));
	}
}

static void test_changes(void)
{
	u32 round, k, changes = 0, wrong = 0;
	const char *why;

	for (round = 0; round < 300; round++) {
		struct bed bed;

		bed_init_empty(&bed, 1 + rnd_below(MEMBERS));
		for (k = 0; k < 200; k++) {
			u32 before = ps_set_count(bed.set);

			change(&bed);
			changes++;
			why = set_check(&bed) ?: check_late(&bed, before);
			if (why && wrong++ < 5)
				diag("round %u, change %u: %s", round, k, why);
		}
		bed_free(&bed);
	}
	is(wrong, 0, "%u random changes", changes);
}

/* What reaches a standby when the last active member goes. */
static void test_takeover(void)
{
	struct bed bed;

	bed_init_empty(&bed, 4);
	put(&bed, &bed.members[0], PS_RANK_STANDBY_OTHER);
	put(&bed, &bed.members[1], PS_RANK_STANDBY);
	put(&bed, &bed.members[2], PS_RANK_ACTIVE_OTHER);
	is(ps_set_count(bed.set), 1, "one class at a time");
	put(&bed, &bed.members[3], PS_RANK_ACTIVE);
	ok(ps_set_member(bed.set, 0) == &bed.members[3], "the active one first");
	put(&bed, &bed.members[3], PS_RANK_NONE);
	ok(ps_set_member(bed.set, 0) == &bed.members[2],
	   "then one of another generation");
	put(&bed, &bed.members[2], PS_RANK_NONE);
	ok(ps_set_member(bed.set, 0) == &bed.members[1], "then the standby");
	put(&bed, &bed.members[1], PS_RANK_NONE);
	ok(ps_set_member(bed.set, 0) == &bed.members[0],
	   "then the standby of another generation");
	put(&bed, &bed.members[0], PS_RANK_NONE);
	is(ps_set_count(bed.set), 0, "then nobody");
	bed_free(&bed);
}

/* A larger one takes the place of a full one. */
static void test_move(void)
{
	struct ps_set *small;
	struct bed bed;
	u32 i;

	bed_init_empty(&bed, MEMBERS);
	kvfree(bed.set);
	small = ps_set_alloc(MEMBERS / 2, GFP_ATOMIC);
	bed.set = small;
	for (i = 0; i < MEMBERS / 2; i++) {
		bed.members[i].weight = i + 1;
		put(&bed, &bed.members[i], i % PS_RANKS);
	}
	bed.set = ps_set_alloc(MEMBERS, GFP_KERNEL);
	ps_set_move(bed.set, small);
	kvfree(small);
	ok(!set_check(&bed), "moved to a larger one: the same");
	for (; i < MEMBERS; i++)
		put(&bed, &bed.members[i], i % PS_RANKS);
	ok(!set_check(&bed), "which has room for more");
	bed_free(&bed);
}

static void test_at(void)
{
	u32 round, i, wrong = 0;

	for (round = 0; round < 300; round++) {
		u32 n = 2 + rnd_below(50), most = 1 + rnd_below(65535);
		struct bed bed;

		bed_init(&bed, n);
		for (i = 0; i < n; i++)
			bed.members[i].weight = 1 + rnd_below(most);
		bed.members[0].weight = most + 1;
		bed_changed(&bed);
		for (i = 0; i < n; i++) {
			u32 start = i ? bed.set->upto[i - 1] : 0;

			wrong += ps_set_at(bed.set, n, start) != i;
			wrong += ps_set_at(bed.set, n, bed.set->upto[i] - 1) != i;
		}
		wrong += ps_set_at(bed.set, n, U32_MAX) != n - 1;
		bed_free(&bed);
	}
	is(wrong, 0, "each point is the member's whose weight it is");
}

/* The most there can be. */
static void test_largest(void)
{
	struct bed bed;
	u32 i;

	bed_init(&bed, 65536);
	for (i = 1; i < 65536; i++)
		bed.members[i].weight = 65535;
	bed_changed(&bed);
	is(ps_set_total(bed.set, 65536), 65535ll * 65535 + 1,
	   "65536 members of weight 65535: the sum fits");
	is(ps_set_at(bed.set, 65536, 65535u * 65535u), 65535, "and is found");
	bed_free(&bed);
}

int main(void)
{
	test_rank();
	test_changes();
	test_takeover();
	test_move();
	test_at();
	test_largest();
	return done();
}
