// SPDX-License-Identifier: GPL-2.0
/* rr: exact turns. */
#include "bed.h"
#include "tap.h"

static const struct ps_policy *const rr = &ps_policy_rr;

/* The difference between the most and the least picked of the usable members. */
static u32 spread(const struct bed *bed)
{
	u32 i, low = U32_MAX, high = 0;

	for (i = 0; i < bed->set->n; i++) {
		u32 picked = bed_picked(bed, i);

		if (!bed_usable(bed, i))
			continue;
		if (picked < low)
			low = picked;
		if (picked > high)
			high = picked;
	}
	return high - low;
}

static void steer(struct bed *bed, u32 turns)
{
	struct bed_flow f;
	u32 k;

	for (k = 0; k < turns; k++)
		bed_steer(bed, rr, bed_flow(&f, k, k & 1));
}

static void test_exact(void)
{
	bool exact = true, even = true;
	struct bed bed;
	u32 n;

	bed_init(&bed, 4);
	steer(&bed, 400);
	is(bed_picked(&bed, 0), 100, "400 over 4 members: 100 for the first");
	is(spread(&bed), 0, "and for every one");
	bed_free(&bed);

	for (n = 1; n <= 1000; n++) {
		bed_init(&bed, n);
		atomic_set(&bed.group.turn, n * 7919);
		steer(&bed, 3 * n);
		exact &= bed_picked(&bed, 0) == 3 && !spread(&bed);
		steer(&bed, n / 2);
		even &= spread(&bed) <= 1;
		bed_free(&bed);
	}
	ok(exact, "exact after N * n turns, n = 1 to 1000");
	ok(even, "never apart by more than one");
}

static void test_wrap(void)
{
	static const u32 sizes[] = { 1, 2, 3, 4, 5, 7, 8, 10, 64, 100, 1000, 65535 };
	unsigned int i;
	struct bed bed;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		u32 n = sizes[i], k, irregular = 0;
		struct bed_flow f;
		int last, next;

		bed_init(&bed, n);
		atomic_set(&bed.group.turn, -(int)n - 3);
		last = bed_steer(&bed, rr, bed_flow(&f, 0, false));
		for (k = 0; k < 2 * n + 6; k++) {
			next = bed_steer(&bed, rr, bed_flow(&f, k, false));
			irregular += (u32)next != (last + 1) % n;
			last = next;
		}
		ok(atomic_read(&bed.group.turn) > 0, "%u members: wrapped", n);
		ok(irregular <= 1, "%u irregular steps", irregular);
		bed_free(&bed);

		/* the sign changes where unsigned goes on */
		bed_init(&bed, n);
		atomic_set(&bed.group.turn, INT32_MAX - n);
		steer(&bed, 2 * n);
		is(spread(&bed), 0, "exact where the sign changes");
		bed_free(&bed);
	}
}

/* @pattern: a character for each member, 'x' for the unusable ones. */
static void test_unusable(const char *pattern)
{
	u32 i, n = strlen(pattern), usable = 0;
	struct bed bed;

	bed_init(&bed, n);
	for (i = 0; i < n; i++) {
		if (pattern[i] == 'x')
			bed_break(&bed, i);
		else
			usable++;
	}
	steer(&bed, 100 * usable);
	is(bed_fallbacks(&bed), 0, "members %s: no fallback", pattern);
	ok(spread(&bed) <= 1, "the others' shares are equal");
	steer(&bed, usable / 2);
	ok(spread(&bed) <= 1, "at any time");
	bed_free(&bed);
}

static void test_all_unusable(void)
{
	struct bed bed;
	u32 i;

	bed_init(&bed, 3);
	for (i = 0; i < 3; i++)
		bed_break(&bed, i);
	steer(&bed, 10);
	is(bed_fallbacks(&bed), 10, "none usable: falls back every time");
	bed_free(&bed);
}

int main(void)
{
	test_exact();
	test_wrap();
	test_unusable("-x");
	test_unusable("x-");
	test_unusable("-x-");
	test_unusable("-xx-");
	test_unusable("x-x-x-x-");
	test_unusable("xxx-----");
	test_unusable("-xxxxxxx");
	test_unusable("--xxxxxxx---x--");
	test_all_unusable();
	return done();
}
