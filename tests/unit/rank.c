// SPDX-License-Identifier: GPL-2.0
/*
 * What a change makes of the set: whether everybody is where ps_rank() says, by
 * their ids, what a packet sees meanwhile, and who is told.
 *
 * Ids are unique in a group, so that no two members are alike for the merge.
 */
#include "bed.h"
#include "rank.h"
#include "set_check.h"
#include "stats.h"
#include "tap.h"

#define MEMBERS 40
#define LARGEST 65536

/* @why: what is wrong, or NULL */
#define right(why, ...) is_str((why) ?: "", "", __VA_ARGS__)

/* The group and its set before a change, and what came to light during it. */
static struct watch {
	const struct bed *bed;
	const struct ps_set *set;
	void *was;
	size_t size;
	int version;
	u32 changed;
	u32 looks;
	const char *why;
} watch;

/* Between any two accesses to what is shared: what would a packet see? */
static void look(void)
{
	const struct bed *bed = watch.bed;
	const struct ps_set *set = bed->group.set;
	u32 i;

	watch.looks++;
	if (set == watch.set && !memcmp(set, watch.was, watch.size))
		return;
	if (bed->group.version.counter == watch.version)
		watch.why = "the set has changed, and indexes are still used";
	for (i = 0; i < set->n; i++)
		if (set->m[i] < bed->members ||
		    set->m[i] >= bed->members + bed->n)
			watch.why = "a packet finds no member";
}

static void watch_begin(const struct bed *bed)
{
	const struct ps_set *set = bed->group.set;

	watch = (struct watch){
		.bed = bed, .set = set, .version = bed->group.version.counter,
		.changed = machine.changed,
		.size = (u8 *)&set->upto[set->cap] - (u8 *)set,
	};
	watch.was = malloc(watch.size);
	memcpy(watch.was, set, watch.size);
	shim_between = look;
}

/* Was everybody told of a change, or was there none? */
static const char *watch_end(bool change)
{
	const struct ps_group *g = &watch.bed->group;
	bool same = g->set == watch.set &&
		    !memcmp(g->set, watch.was, watch.size);

	shim_between = NULL;
	free(watch.was);
	if (watch.why)
		return watch.why;
	if (change && (g->version.counter == watch.version ||
		       machine.changed == watch.changed))
		return "nobody is told of a change";
	if (!change && (!same || g->version.counter != watch.version ||
			machine.changed != watch.changed))
		return "nothing was to change";
	return NULL;
}

static u8 rank_of(const struct bed *bed, const struct ps_member *m)
{
	return m->candidate ? ps_rank(m->state, m->generation,
				      bed->group.working_generation) :
			      PS_RANK_NONE;
}

/* Is everybody there who should be, once, in their place? */
static const char *check(struct bed *bed)
{
	u32 i;

	bed->set = bed->group.set;
	for (i = 0; i < bed->n; i++)
		if (bed->members[i].rank != rank_of(bed, &bed->members[i]))
			return "a member's rank";
	return set_check(bed);
}

static const char *place(struct bed *bed, struct ps_member *m)
{
	bool change = m->rank != rank_of(bed, m);

	watch_begin(bed);
	spin_lock_bh(&ps_lock);
	ps_group_place(m);
	spin_unlock_bh(&ps_lock);
	return watch_end(change);
}

static const char *reweigh(struct bed *bed, struct ps_member *m, u32 weight)
{
	watch_begin(bed);
	m->weight = weight;
	spin_lock_bh(&ps_lock);
	ps_group_reweigh(m);
	spin_unlock_bh(&ps_lock);
	return watch_end(true);
}

/* @want: what it has to return. */
static const char *renumber(struct bed *bed, struct ps_member *m, u32 id,
			    int want)
{
	u32 was = m->id;
	bool change = !want && id != was;
	const char *why;
	int err;

	machine.left = 0;
	machine.enrolled = 0;
	watch_begin(bed);
	spin_lock_bh(&ps_lock);
	err = ps_group_renumber(m, id);
	spin_unlock_bh(&ps_lock);
	why = watch_end(change);
	if (why)
		return why;
	if (err != want)
		return "what is returned";
	if (m->id != (change ? id : was) ||
	    xa_load(&bed->group.ids, m->id) != m)
		return "the id";
	if (change && xa_load(&bed->group.ids, was))
		return "the id that it had";
	if (machine.left != change || machine.enrolled != change)
		return "the directories";
	if (change && (machine.left_id != was || machine.enrolled_id != id))
		return "the directories' names";
	return NULL;
}

static const char *to_generation(struct bed *bed, s32 generation)
{
	bool change = bed->group.working_generation != generation;
	const char *why;
	int err;

	watch_begin(bed);
	err = ps_group_set_working_generation(&bed->group, generation);
	why = watch_end(change);
	if (why)
		return why;
	if (err || bed->group.working_generation != generation)
		return "the working generation";
	return check(bed);
}

static void place_all(struct bed *bed)
{
	u32 i;

	spin_lock_bh(&ps_lock);
	for (i = 0; i < bed->n; i++)
		ps_group_place(&bed->members[i]);
	spin_unlock_bh(&ps_lock);
}

/* Kinds of members: any state of either of two generations, or no candidate. */
#define KINDS 7

static void be(struct ps_member *m, u32 kind)
{
	m->candidate = kind != KINDS - 1;
	m->state = kind % 3;
	m->generation = kind / 3 % 2;
}

/* Up to five members, of any kind each, whatever the working generation. */
static void test_every_merge(void)
{
	static const s32 generations[] = { 0, 1, 0, 0, 2, 1, -1, -1, 1, 2, -1 };
	u32 n, k, i, merges, wrong, kinds = 1;

	for (n = 1; n <= 5; n++) {
		kinds *= KINDS;
		merges = 0;
		wrong = 0;
		for (k = 0; k < kinds; k++) {
			u32 rest = k;
			struct bed bed;

			bed_init_empty(&bed, n);
			for (i = 0; i < n; i++, rest /= KINDS)
				be(&bed.members[i], rest % KINDS);
			place_all(&bed);
			wrong += !!check(&bed);
			for (i = 0; i < ARRAY_SIZE(generations); i++) {
				const char *why;

				why = to_generation(&bed, generations[i]);
				merges++;
				if (why && wrong++ < 5)
					diag("%u members, kinds %u, step %u: %s",
					     n, k, i, why);
			}
			bed_free(&bed);
		}
		is(wrong, 0, "%u members: %u merges", n, merges);
	}
}

/* Nobody is there any more. */
static void test_disbanded(void)
{
	struct bed bed;

	bed_init_empty(&bed, 0);
	watch_begin(&bed);
	is(ps_group_set_working_generation(&bed.group, 1), -ENOENT,
	   "a group without members: ENOENT");
	right(watch_end(false), "changes nothing");
	is(bed.group.working_generation, -1, "not the generation either");
	bed_free(&bed);
}

/* As many as there can be. */
static void test_largest(void)
{
	static const s32 generations[] = { 1, 0, 7, -1 };
	struct bed bed;
	const char *why;
	u32 i;
	u8 rank;

	bed_init_empty(&bed, LARGEST);
	for (i = 0; i < LARGEST; i++) {
		be(&bed.members[i], rnd_below(KINDS));
		bed.members[i].weight = 1 + rnd_below(65535);
	}
	for (rank = 0; rank < PS_RANKS; rank++)
		for (i = 0; i < LARGEST; i++)
			if (rank_of(&bed, &bed.members[i]) == rank)
				ps_set_append(bed.set, &bed.members[i], rank);
	ps_set_publish(bed.set);
	for (i = 0; i < ARRAY_SIZE(generations); i++) {
		ps_group_set_working_generation(&bed.group, generations[i]);
		why = check(&bed);
		right(why, "%u members, generation %d", LARGEST,
		      generations[i]);
	}
	bed_free(&bed);
}

static const char *renumber_any(struct bed *bed, struct ps_member *m)
{
	/* Most are somebody's in a group of any size. */
	u32 id = rnd_below(2 * MEMBERS);
	struct ps_member *has = xa_load(&bed->group.ids, id);

	return renumber(bed, m, id, has && has != m ? -EEXIST : 0);
}

static const char *change(struct bed *bed)
{
	struct ps_member *m = &bed->members[rnd_below(bed->n)];

	switch (rnd_below(6)) {
	case 0:
		return to_generation(bed, (s32)rnd_below(4) - 1);
	case 1:
		return renumber_any(bed, m);
	case 2:
		return reweigh(bed, m, rnd_below(3) ? 1 : 1 + rnd_below(65535));
	default:
		be(m, rnd_below(KINDS));
		return place(bed, m);
	}
}

static void test_changes(void)
{
	u32 round, k, changes = 0, looks = 0, wrong = 0;
	const char *why;

	for (round = 0; round < 300; round++) {
		struct bed bed;

		bed_init_empty(&bed, 1 + rnd_below(MEMBERS));
		place_all(&bed);
		for (k = 0; k < 200; k++) {
			why = change(&bed) ?: check(&bed);
			changes++;
			looks += watch.looks;
			if (why && wrong++ < 5)
				diag("round %u, change %u: %s", round, k, why);
		}
		bed_free(&bed);
	}
	is(wrong, 0, "%u random changes", changes);
	ok(looks > changes, "looked at in their midst, %u times", looks);
}

static void test_renumber(void)
{
	static const u32 order[] = { 3, 1, 2, 0 };
	struct bed bed;
	u32 i;

	bed_init_empty(&bed, 4);
	bed.members[3].state = PORTSTEER_DRAINING;
	place_all(&bed);
	right(renumber(&bed, &bed.members[0], 2, -EEXIST),
	      "another's id: EEXIST, nothing changes");
	right(renumber(&bed, &bed.members[0], 3, -EEXIST),
	      "also of one that is draining");
	right(renumber(&bed, &bed.members[0], 0, 0),
	      "its own: nothing changes");
	machine.no_memory = true;
	right(renumber(&bed, &bed.members[0], 9, -ENOMEM),
	      "no memory: ENOMEM, nothing changes");
	machine.no_memory = false;
	right(check(&bed), "all as it was");
	right(renumber(&bed, &bed.members[0], PORTSTEER_MAX_ID, 0),
	      "the highest");
	right(check(&bed), "comes last");
	ok(ps_set_member(bed.set, 2) == &bed.members[0], "of the three");
	right(renumber(&bed, &bed.members[3], 0, 0),
	      "one that is draining gets what is free now");
	bed.members[3].state = PORTSTEER_ACTIVE;
	right(place(&bed, &bed.members[3]) ?: check(&bed),
	      "and its place by that, once it is active");
	for (i = 0; i < 4; i++)
		is(ps_set_member(bed.set, i) - bed.members, order[i],
		   "place %u", i);
	bed_free(&bed);
}

/* Of a member that isn't in the set, indexes may know nevertheless. */
static void test_reweigh(void)
{
	struct bed bed;

	bed_init_empty(&bed, 3);
	bed.members[2].state = PORTSTEER_DRAINING;
	place_all(&bed);
	right(reweigh(&bed, &bed.members[0], 5) ?: check(&bed), "a weight");
	is(ps_set_total(bed.set, 2), 6, "counts");
	right(reweigh(&bed, &bed.members[2], 100) ?: check(&bed),
	      "that of one that is draining");
	is(ps_set_total(bed.set, 2), 6, "doesn't");
	right(reweigh(&bed, &bed.members[0], 1) ?: check(&bed),
	      "all alike again");
	ok(!bed.set->weighted, "no sums are needed");
	bed_free(&bed);
}

/* While memory for another working generation is being had. */
static struct bed *meanwhile;

/* Half of the members were there; now come the others. */
static void others_join(void)
{
	struct ps_set *old = meanwhile->group.set;
	struct ps_set *larger = ps_set_alloc(meanwhile->n, GFP_KERNEL);

	shim_unlocked = NULL;
	ps_set_move(larger, old);
	meanwhile->group.set = larger;
	kvfree(old);
	place_all(meanwhile);
}

static void test_others_join(void)
{
	struct bed bed;
	u32 i;

	bed_init_empty(&bed, 16);
	kvfree(bed.set);
	bed.group.set = ps_set_alloc(8, GFP_KERNEL);
	for (i = 0; i < 16; i++)
		be(&bed.members[i], i % 2 * 3 + i / 2 % 2);
	for (i = 0; i < 8; i++) {
		spin_lock_bh(&ps_lock);
		ps_group_place(&bed.members[2 * i]);
		spin_unlock_bh(&ps_lock);
	}
	meanwhile = &bed;
	shim_unlocked = others_join;
	is(ps_group_set_working_generation(&bed.group, 1), 0,
	   "as many others join meanwhile");
	right(check(&bed), "nobody is lost");
	is(bed.set->all, 16, "all are there");
	ok(bed.set->cap >= 16, "in a set that has room for them");
	bed_free(&bed);
}

static void all_leave(void)
{
	shim_unlocked = NULL;
	meanwhile->group.members = 0;
}

static void test_all_leave(void)
{
	struct bed bed;

	bed_init(&bed, 3);
	meanwhile = &bed;
	shim_unlocked = all_leave;
	watch_begin(&bed);
	is(ps_group_set_working_generation(&bed.group, 1), -ENOENT,
	   "all leave meanwhile: ENOENT");
	right(watch_end(false), "nothing changes");
	is(bed.group.working_generation, -1, "not the generation either");
	bed_free(&bed);
}

static const struct ps_set *theirs;

static void another_sets_it(void)
{
	shim_unlocked = NULL;
	ps_group_set_working_generation(&meanwhile->group, 1);
	theirs = meanwhile->group.set;
}

static void test_another_sets_it(void)
{
	struct bed bed;

	bed_init(&bed, 3);
	bed.members[1].generation = 1;
	meanwhile = &bed;
	shim_unlocked = another_sets_it;
	is(ps_group_set_working_generation(&bed.group, 1), 0,
	   "another sets the same meanwhile");
	ok(bed.group.set == theirs, "which is left as it is");
	right(check(&bed), "and right");
	bed_free(&bed);
}

static void test_no_memory(void)
{
	struct bed bed;

	bed_init(&bed, 3);
	machine.no_memory = true;
	watch_begin(&bed);
	is(ps_group_set_working_generation(&bed.group, 1), -ENOMEM,
	   "no memory: ENOMEM");
	right(watch_end(false), "nothing changes");
	is(bed.group.working_generation, -1, "not the generation either");
	is(ps_group_set_working_generation(&bed.group, -1), 0,
	   "for the one that is in force none is needed");
	machine.no_memory = false;
	bed_free(&bed);
}

int main(void)
{
	test_every_merge();
	test_disbanded();
	test_largest();
	test_changes();
	test_renumber();
	test_reweigh();
	test_others_join();
	test_all_leave();
	test_another_sets_it();
	test_no_memory();
	return done();
}
