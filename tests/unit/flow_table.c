// SPDX-License-Identifier: GPL-2.0
/* Which member each live flow is with: what one CPU sees of the table. */
#include "flow_bed.h"
#include "tap.h"

static void test_alloc(void)
{
	static const u32 sizes[] = { 8, 64, 1024, 1 << 16 };
	struct flow_bed bed;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		flow_bed_init(&bed, sizes[i], 0, 10);
		is(bed.t->slots, sizes[i], "a table of %u", sizes[i]);
		is((uintptr_t)bed.t->bucket % 64, 0, "its buckets are aligned");
		is(flow_bed_live(&bed), 0, "is empty");
		is(flow_bed_find(&bed, flow_key(0)), PS_FLOW_FREE,
		   "a flow isn't there");
		is(flow_bed_find(&bed, 1), PS_FLOW_FREE, "nor the key 1");
		is(flow_bed_find(&bed, ~0ull), PS_FLOW_FREE, "nor the last one");
		flow_bed_free(&bed);
	}
	machine.no_memory = true;
	ok(!ps_flow_table_alloc(64, GFP_KERNEL), "no memory: no table");
	machine.no_memory = false;
}

static void test_add(void)
{
	struct flow_bed bed;
	u64 a = flow_key(1), b = flow_key(2);

	flow_bed_init(&bed, 64, 1000, 10);
	is(flow_bed_add(&bed, a, 1), 1, "a flow is added");
	is(flow_bed_find(&bed, a), 1, "and found");
	is(flow_bed_find(&bed, b), PS_FLOW_FREE, "another isn't");
	is(flow_bed_find(&bed, a ^ 1), PS_FLOW_FREE,
	   "nor one that differs in its lowest bit");
	is(flow_bed_find(&bed, a ^ 1ull << 63), PS_FLOW_FREE,
	   "nor one that differs in its highest");
	is(flow_bed_add(&bed, b, 2), 2, "it is added");
	is(flow_bed_find(&bed, a), 1, "the first is where it was");
	is(flow_bed_find(&bed, b), 2, "and so is the second");
	is(flow_bed_live(&bed), 2, "there are two");
	is(flow_bed_add(&bed, a, 2), 1, "a live flow stays with its member");
	is(flow_bed_find(&bed, a), 1, "whoever comes later");
	is(flow_bed_live(&bed), 2, "there are still two");
	is(flow_bed_add(&bed, 1, 3), 3, "the lowest key");
	is(flow_bed_add(&bed, ~0ull, 4), 4, "the highest key");
	is(flow_bed_find(&bed, 1), 3, "are keys");
	is(flow_bed_find(&bed, ~0ull), 4, "like others");
	flow_bed_free(&bed);
}

/* A flow is a live one for @ttl seconds, and no longer. */
static void test_ttl(u32 start, u32 ttl)
{
	u64 key = flow_key(3);
	struct flow_bed bed;
	bool stays = true;
	unsigned int i;

	flow_bed_init(&bed, 64, start, ttl);
	flow_bed_add(&bed, key, 1);
	bed.clock.now = start + ttl;
	is(flow_bed_live(&bed), 1, "from second %u on, after %u: a live one",
	   start, ttl);
	is(flow_bed_find(&bed, key), 1, "it is found");
	/* That was a datagram, so it begins anew; 100 times over. */
	for (i = 0; i < 100; i++) {
		bed.clock.now += ttl;
		stays &= flow_bed_find(&bed, key) == 1;
	}
	ok(stays, "every datagram makes it live as long again");
	/* Others see how old it is without making it younger. */
	bed.clock.now += ttl;
	is(flow_bed_live(&bed), 1, "counting it");
	bed.clock.now++;
	is(flow_bed_live(&bed), 0, "is no datagram: it isn't live any more");
	is(flow_bed_find(&bed, key), PS_FLOW_FREE, "nor found");
	is(flow_bed_find(&bed, key), PS_FLOW_FREE, "looking doesn't revive it");
	is(flow_bed_live(&bed), 0, "nor count it");
	is(flow_bed_add(&bed, key, 2), 2, "it is a new flow");
	is(flow_bed_find(&bed, key), 2, "of another member");
	is(flow_bed_copies(&bed, key), 1, "and there once");
	flow_bed_free(&bed);
}

/* INT_MAX seconds are more than a machine is up: forever. */
static void test_forever(void)
{
	u64 key = flow_key(4);
	struct flow_bed bed;

	flow_bed_init(&bed, 64, 5, S32_MAX);
	flow_bed_add(&bed, key, 1);
	bed.clock.now = 5u + S32_MAX;
	is(flow_bed_live(&bed), 1, "the longest time there is");
	is(flow_bed_find(&bed, key), 1, "is kept");
	flow_bed_free(&bed);
}

/* CPUs whose clocks differ: one has seen a flow in our future. */
static void test_skew(u32 now)
{
	u64 key = flow_key(5);
	struct flow_bed bed;
	u32 ttl;

	for (ttl = 0; ttl < 3; ttl++) {
		flow_bed_init(&bed, 64, now + 1, ttl);
		flow_bed_add(&bed, key, 1);
		bed.clock.now = now;
		is(flow_bed_live(&bed), 1, "second %u: one of the next second, ttl %u",
		   now, ttl);
		is(flow_bed_add(&bed, key, 2), 1, "stays with its member");
		is(flow_bed_find(&bed, key), 1, "and is found");
		bed.clock.now = now + 1;
		is(flow_bed_find(&bed, key), ttl ? 1 : PS_FLOW_FREE,
		   "by the other one, too, if it lives for a second");
		flow_bed_free(&bed);
	}
}

/* The member can't take it: the flow is another's from there on. */
static void test_stale(void)
{
	u64 key = flow_key(6);
	struct flow_bed bed;

	flow_bed_init(&bed, 64, 1000, 10);
	flow_bed_add(&bed, key, 1);
	is(ps_flow_table_add(bed.t, key, 2, 3, &bed.clock), 1,
	   "stale is another: the flow stays");
	is(ps_flow_table_add(bed.t, key, 2, 1, &bed.clock), 2,
	   "stale is its own: it goes to the new one");
	is(ps_flow_table_add(bed.t, key, 3, 1, &bed.clock), 2,
	   "who comes later finds it there");
	is(ps_flow_table_add(bed.t, key, 2, 2, &bed.clock), 2,
	   "stale and new are the same");
	is(flow_bed_copies(&bed, key), 1, "there once");
	bed.gone[2] = true;
	is(flow_bed_find(&bed, key), 2, "a member that has gone is named");
	is(flow_bed_live(&bed), 0, "its flows aren't live");
	is(ps_flow_table_add(bed.t, key, 3, 2, &bed.clock), 3,
	   "and go to another");
	is(flow_bed_copies(&bed, key), 1, "there once");
	bed.gone[3] = true;
	is(flow_bed_add(&bed, key, 4), 4, "also if nobody says that it is stale");
	flow_bed_free(&bed);
}

/* @keys of bucket 0, both choices. */
static void same_bucket(const struct ps_flow_table *t, u64 *keys, u32 n)
{
	u32 i, k = 0;

	for (i = 1000; k < n; i++)
		if (!(flow_key(i) & t->mask) && !(flow_key(i) >> 32 & t->mask))
			keys[k++] = flow_key(i);
}

static bool all_with(struct flow_bed *bed, const u64 *keys, u32 n, u32 holder)
{
	bool all = true;
	u32 i;

	for (i = 0; i < n; i++)
		all &= flow_bed_find(bed, keys[i]) == holder;
	return all;
}

/* What a bucket full of live flows does with one more. */
static void test_full_bucket(u32 slots)
{
	struct flow_bed bed;
	u64 keys[PS_FLOW_WAYS + 3];
	u32 i;

	flow_bed_init(&bed, slots, 1000, 10);
	same_bucket(bed.t, keys, ARRAY_SIZE(keys));
	for (i = 0; i < PS_FLOW_WAYS; i++)
		is(flow_bed_add(&bed, keys[i], 1 + (i == 3)), 1 + (i == 3),
		   "%u slots: flow %u has a place", slots, i);
	is(flow_bed_add(&bed, keys[8], 5), PS_FLOW_FREE, "one more has none");
	is(flow_bed_find(&bed, keys[8]), PS_FLOW_FREE, "and isn't found");
	is(flow_bed_live(&bed), PS_FLOW_WAYS, "the others live");
	ok(all_with(&bed, keys, 3, 1) && all_with(&bed, &keys[4], 4, 1) &&
	   all_with(&bed, &keys[3], 1, 2), "each with its member");
	/* At the last second of all but one's life. */
	bed.clock.now += 10;
	ok(all_with(&bed, &keys[1], 2, 1) && all_with(&bed, &keys[4], 4, 1) &&
	   all_with(&bed, &keys[3], 1, 2), "all but the first go on");
	is(flow_bed_add(&bed, keys[8], 5), PS_FLOW_FREE,
	   "no place in the last second of the first");
	bed.clock.now++;
	is(flow_bed_add(&bed, keys[8], 5), 5, "but in the one after that");
	is(flow_bed_find(&bed, keys[0]), PS_FLOW_FREE, "which has gone");
	is(flow_bed_live(&bed), PS_FLOW_WAYS, "there are as many");
	is(flow_bed_add(&bed, keys[9], 6), PS_FLOW_FREE, "and room for no other");
	/* One member goes, and its flow leaves its place. */
	bed.gone[2] = true;
	is(flow_bed_live(&bed), PS_FLOW_WAYS - 1, "a member goes");
	is(flow_bed_add(&bed, keys[9], 6), 6, "its flow's place is another's");
	is(flow_bed_find(&bed, keys[3]), PS_FLOW_FREE, "it isn't there any more");
	is(flow_bed_add(&bed, keys[10], 6), PS_FLOW_FREE, "full again");
	is(flow_bed_copies(&bed, keys[9]), 1, "there once");
	flow_bed_free(&bed);
}

/* A place of an idle flow comes before that of one whose member has gone. */
static void test_idle_first(void)
{
	u64 keys[PS_FLOW_WAYS + 2];
	struct flow_bed bed;
	u32 i;

	flow_bed_init(&bed, 8, 1000, 10);
	same_bucket(bed.t, keys, ARRAY_SIZE(keys));
	for (i = 0; i < PS_FLOW_WAYS; i++)
		flow_bed_add(&bed, keys[i], 1 + (i == 0));
	bed.gone[2] = true;
	bed.clock.now += 11;
	for (i = 0; i < PS_FLOW_WAYS - 1; i++)
		flow_bed_slot(&bed, i)->seen = bed.clock.now;
	is(flow_bed_add(&bed, keys[8], 3), 3, "one is idle, one has no member");
	is(flow_bed_find(&bed, keys[0]), 2, "the idle one has gone");
	is(flow_bed_find(&bed, keys[7]), PS_FLOW_FREE, "not the other");
	is(flow_bed_add(&bed, keys[9], 3), 3, "the next one");
	is(flow_bed_find(&bed, keys[0]), PS_FLOW_FREE, "takes its place");
	flow_bed_free(&bed);
}

/* Puts new flows into a table. Returns how many found no place. */
static u32 fill(struct flow_bed *bed, u32 seed, u32 from, u32 to, u8 *placed,
		u32 *wrong)
{
	u32 i, got, refused = 0;

	for (i = from; i < to; i++) {
		got = flow_bed_add(bed, flow_key(seed + i), 1 + i % 8);
		placed[i] = got != PS_FLOW_FREE;
		refused += !placed[i];
		*wrong += placed[i] && got != 1 + i % 8;
	}
	return refused;
}

/*
 * How full a table gets before flows find no place, and how many don't. The
 * limits are about twice what is usual.
 */
static void test_fill(u32 slots, u32 times)
{
	u32 part[] = { slots * 13ull / 20, slots * 4ull / 5, slots, 2 * slots };
	u32 i, k, wrong = 0, refused[4] = { 0 }, live = 0;
	u8 *placed = calloc(2, slots);
	struct flow_bed bed;

	for (i = 0; i < times; i++) {
		flow_bed_init(&bed, slots, 1000, 10);
		for (k = 0; k < 4; k++)
			refused[k] += fill(&bed, 2 * slots * i,
					   k ? part[k - 1] : 0, part[k], placed,
					   &wrong);
		for (k = 0; k < 2 * slots; k++)
			wrong += flow_bed_find(&bed, flow_key(2 * slots * i + k)) !=
				 (placed[k] ? 1 + k % 8 : PS_FLOW_FREE);
		live += flow_bed_live(&bed);
		flow_bed_free(&bed);
	}
	free(placed);
	is(wrong, 0, "%u slots: a flow is where it was put, or nowhere", slots);
	is(live, (u64)slots * 2 * times -
	   (refused[0] + refused[1] + refused[2] + refused[3]),
	   "those are counted that are there");
	is(refused[0], 0, "every flow has a place up to 65%%");
	refused[1] += refused[0];
	ok(refused[1] <= (u64)part[1] * times / 2000, "%.4f%% have none at 80%%",
	   100. * refused[1] / times / part[1]);
	refused[2] += refused[1];
	ok(refused[2] <= (u64)part[2] * times * 8 / 100,
	   "%.2f%% of as many as there are slots",
	   100. * refused[2] / times / part[2]);
	ok(live >= (u64)slots * times * 99 / 100,
	   "%.2f%% of the slots are used in the end",
	   100. * live / times / slots);
}

/* Everybody leaves, or idles: the next flows find as much room. */
static void test_refill(void)
{
	u32 i, j, placed, gone;
	struct flow_bed bed;

	for (gone = 0; gone < 2; gone++) {
		flow_bed_init(&bed, 1024, 1000, 10);
		for (j = 0; j < 5; j++) {
			placed = 0;
			for (i = 0; i < 819; i++)
				placed += flow_bed_add(&bed, flow_key(j * 5000 + i),
						       1 + j) == 1 + j;
			/* Places of the departed are looked at last of all. */
			ok(placed >= (gone ? 780 : 815),
			   "%s %u times: %u of 819 have room",
			   gone ? "members have gone" : "flows have idled", j,
			   placed);
			is(flow_bed_live(&bed), placed, "and those live only");
			if (gone)
				bed.gone[1 + j] = true;
			else
				bed.clock.now += 11;
			is(flow_bed_live(&bed), 0, "then none does");
		}
		flow_bed_free(&bed);
	}
}

/* A second table takes over the flows of the first. */
static void move(struct flow_bed *bed, u32 slots)
{
	struct ps_flow_table *old = bed->t;
	u32 i;

	bed->t = ps_flow_table_alloc(slots, GFP_KERNEL);
	bed->t->before = old;
	for (i = 0; i < old->slots; i += 64)
		ps_flow_table_move(bed->t, old, i, min_t(u32, 64, old->slots),
				   &bed->clock);
	bed->t->before = NULL;
	kvfree(old);
}

static void test_move(void)
{
	static const u32 sizes[] = { 1024, 64, 128, 8192, 64, 64 };
	struct flow_bed bed;
	unsigned int i, k;
	u32 wrong;

	flow_bed_init(&bed, 64, 1000, 10);
	for (k = 0; k < 40; k++) {
		bed.clock.now = 1000 + k % 5;
		flow_bed_add(&bed, flow_key(k), 1 + k % 5);
	}
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		/* Its own flow is older than 10, those of the others aren't. */
		bed.clock.now = 1010 + i;
		move(&bed, sizes[i]);
		wrong = 0;
		for (k = 0; k < 40; k++) {
			u32 copies = k % 5 >= i;

			wrong += flow_bed_copies(&bed, flow_key(k)) != copies;
		}
		is(wrong, 0, "moved to %u slots: those that live, once each",
		   sizes[i]);
		is(flow_bed_live(&bed), i < 5 ? 40 - 8 * i : 0,
		   "moving is no datagram");
	}
	flow_bed_free(&bed);
}

static void test_move_orphans(void)
{
	struct flow_bed bed;

	flow_bed_init(&bed, 64, 1000, 10);
	flow_bed_add(&bed, flow_key(1), 1);
	flow_bed_add(&bed, flow_key(2), 2);
	bed.gone[1] = true;
	move(&bed, 128);
	is(flow_bed_find(&bed, flow_key(1)), PS_FLOW_FREE,
	   "flows whose members have gone don't move");
	is(flow_bed_find(&bed, flow_key(2)), 2, "others do");
	flow_bed_free(&bed);
}

/* Packets find flows while they are in the old table. */
static void test_before(void)
{
	struct ps_flow_table *old;
	struct flow_bed bed;
	u64 key = flow_key(1);

	flow_bed_init(&bed, 64, 1000, 10);
	for (u32 i = 0; i < 8; i++)
		flow_bed_add(&bed, flow_key(i), 1 + i);
	old = bed.t;
	bed.t = ps_flow_table_alloc(1024, GFP_KERNEL);
	bed.t->before = old;

	is(flow_bed_live(&bed), 0, "nothing is in the new table");
	is(flow_bed_find(&bed, key), 2, "a flow is found in the one before");
	is(flow_bed_live(&bed), 1, "and is in the new one from there on");
	is(flow_bed_copies(&bed, key), 1, "once");
	is(flow_bed_find(&bed, flow_key(99)), PS_FLOW_FREE,
	   "one that is in neither isn't found");
	bed.gone[3] = true;
	is(flow_bed_find(&bed, flow_key(2)), PS_FLOW_FREE,
	   "nor one whose member has gone");
	is(flow_bed_copies(&bed, flow_key(2)), 0, "nor does it move");
	/* Whoever has the flow in the new table has it. */
	is(ps_flow_table_add(bed.t, flow_key(4), 9, 5, &bed.clock), 9,
	   "a flow whose member can't take it goes to another");
	ps_flow_table_move(bed.t, old, 0, 64, &bed.clock);
	is(flow_bed_find(&bed, flow_key(4)), 9, "and isn't taken back");
	is(flow_bed_copies(&bed, flow_key(4)), 1, "there once");
	is(flow_bed_find(&bed, flow_key(7)), 8, "others have moved");
	is(flow_bed_live(&bed), 7, "all that live");
	bed.clock.now += 11;
	is(flow_bed_find(&bed, flow_key(6)), PS_FLOW_FREE,
	   "one that has idled out isn't found in either");
	bed.t->before = NULL;
	kvfree(old);
	flow_bed_free(&bed);
}

/* The new table is too small: some flows stay in the old one while it is there. */
static void test_shrink_too_far(void)
{
	u32 i, wrong = 0, kept = 0;
	struct ps_flow_table *old;
	struct flow_bed bed;

	flow_bed_init(&bed, 1024, 1000, 10);
	for (i = 0; i < 500; i++)
		flow_bed_add(&bed, flow_key(i), 1 + i % 8);
	old = bed.t;
	bed.t = ps_flow_table_alloc(64, GFP_KERNEL);
	bed.t->before = old;
	ps_flow_table_move(bed.t, old, 0, 1024, &bed.clock);
	for (i = 0; i < 500; i++)
		wrong += flow_bed_find(&bed, flow_key(i)) != 1 + i % 8;
	is(wrong, 0, "500 flows in 64 slots and in those before them");
	bed.t->before = NULL;
	kvfree(old);
	for (i = 0; i < 500; i++) {
		u32 got = flow_bed_find(&bed, flow_key(i));

		kept += got != PS_FLOW_FREE;
		wrong += got != PS_FLOW_FREE && got != 1 + i % 8;
	}
	is(wrong, 0, "then those that there is room for stay with their members");
	ok(kept >= 60 && kept <= 64, "%u of them", kept);
	is(flow_bed_live(&bed), kept, "as is counted");
	flow_bed_free(&bed);
}

/* A flow moves over with its age, but a datagram meanwhile counts. */
static void test_move_refreshes(void)
{
	struct ps_flow_table *old;
	struct flow_bed bed;
	u64 key = flow_key(1);

	flow_bed_init(&bed, 64, 1000, 10);
	flow_bed_add(&bed, key, 1);
	old = bed.t;
	bed.t = ps_flow_table_alloc(64, GFP_KERNEL);
	bed.t->before = old;
	bed.clock.now = 1008;
	is(flow_bed_find(&bed, key), 1, "a datagram while flows move");
	ps_flow_table_move(bed.t, old, 0, 64, &bed.clock);
	bed.t->before = NULL;
	kvfree(old);
	bed.clock.now = 1018;
	is(flow_bed_find(&bed, key), 1, "counts");
	flow_bed_free(&bed);
}

/* A model: flows come and go, members leave, time goes on. */
static void test_random(u32 slots)
{
	enum { FLOWS = 400 };
	static u32 holder[FLOWS], seen[FLOWS];
	u32 step, k, got, next = 1, wrong = 0, full = 0;
	struct flow_bed bed;
	bool live;

	memset(holder, 0, sizeof(holder));
	flow_bed_init(&bed, slots, U32_MAX - 300, 20);
	for (step = 0; step < 300000; step++) {
		k = rnd_below(FLOWS);
		if (rnd_below(500) == 0)
			bed.clock.now++;
		if (rnd_below(5000) == 0) {
			bed.gone[next] = true;
			next = next % (FLOW_BED_HOLDERS - 1) + 1;
			/* A handle is nobody else's; here there are but few. */
			for (k = 0; k < FLOWS; k++)
				if (holder[k] == next)
					holder[k] = 0;
			for (k = 0; bed.gone[next] && k < slots; k++)
				if (flow_bed_slot(&bed, k)->holder == next)
					flow_bed_slot(&bed, k)->holder = 0;
			bed.gone[next] = false;
			k = rnd_below(FLOWS);
		}
		live = holder[k] && !bed.gone[holder[k]] &&
		       bed.clock.now - seen[k] <= 20;
		got = flow_bed_find(&bed, flow_key(k));
		if (live) {
			wrong += got != holder[k];
		} else {
			wrong += got != PS_FLOW_FREE && !bed.gone[got];
			got = ps_flow_table_add(bed.t, flow_key(k), next, got,
						&bed.clock);
			wrong += got != PS_FLOW_FREE && got != next;
			full += got == PS_FLOW_FREE;
			holder[k] = got;
		}
		seen[k] = bed.clock.now;
	}
	is(wrong, 0, "%u slots: a model and the table agree in %u steps, %u full",
	   slots, step, full);
	ok(slots < 512 ? full : !full, "full only when too small");
	flow_bed_free(&bed);
}

int main(void)
{
	test_alloc();
	test_add();
	test_ttl(0, 10);
	test_ttl(1000, 1);
	test_ttl(1000, 0);
	test_ttl(1000, 120);
	test_ttl(U32_MAX - 50, 10);
	test_ttl(U32_MAX, 1);
	test_ttl(S32_MAX - 50u, 10);
	test_ttl(S32_MAX, 1);
	test_ttl(12345, 1 << 30);
	test_forever();
	test_skew(1000);
	test_skew(U32_MAX);
	test_skew(S32_MAX);
	test_stale();
	test_full_bucket(8);
	test_full_bucket(64);
	test_idle_first();
	test_fill(64, 200);
	test_fill(1024, 50);
	test_fill(1 << 16, 4);
	test_refill();
	test_move();
	test_move_orphans();
	test_before();
	test_shrink_too_far();
	test_move_refreshes();
	test_random(64);
	test_random(1024);
	return done();
}
