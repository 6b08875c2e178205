// SPDX-License-Identifier: GPL-2.0
/* cpu, numa and rxqueue: with an index, without, and against their rules. */
#include "bed.h"
#include "stats.h"
#include "tap.h"

#define ROUNDS 3000

static const struct ps_policy *const near[] = {
	&ps_policy_cpu, &ps_policy_numa, &ps_policy_rxqueue,
};

/* CPUs with gaps between them, nodes, some of which have no member. */
static void shuffle_machine(void)
{
	u32 i;

	machine.nr_cpus = 1 + rnd_below(rnd_below(2) ? 8 : MACHINE_CPUS);
	machine.nr_nodes = 1 + rnd_below(4);
	for (i = 0; i < machine.nr_cpus; i++)
		machine.node[i] = rnd_below(4) ? (int)rnd_below(machine.nr_nodes) :
						 -1;
	machine.cpu = rnd_below(machine.nr_cpus);
	machine.node[machine.cpu] = rnd_below(machine.nr_nodes);
}

static s32 some_number(u32 below)
{
	switch (rnd_below(8)) {
	case 0:
		return rnd() >> 1;
	case 1:
	case 2:
		return -1;
	default:
		return rnd_below(below);
	}
}

static void shuffle_members(struct bed *bed)
{
	u32 i, cpus = 1 + rnd_below(machine.nr_cpus), queues = 1 + rnd_below(10);
	bool weighted = rnd() & 1;

	for (i = 0; i < bed->n; i++) {
		struct ps_member *m = &bed->members[i];

		m->cpu = some_number(cpus);
		m->ran_on = some_number(cpus);
		m->rx_queue = some_number(queues);
		m->weight = weighted ? 1 + rnd_below(5) : 1;
	}
	bed_changed(bed);
}

static s32 node_of(s32 cpu)
{
	return cpu < 0 || cpu >= (s32)machine.nr_cpus ? -1 : machine.node[cpu];
}

/* Who isn't known to be anywhere may be here. */
static s32 maybe_here(const struct ps_member *m)
{
	return ps_member_cpu(m) < 0 ||
	       node_of(ps_member_cpu(m)) == machine.node[machine.cpu];
}

static s32 queue_of_member(const struct ps_member *m)
{
	return m->rx_queue;
}

/* Is it one of those with @key? -1: there are none. */
static int one_of(const struct bed *bed, s32 (*key_of)(const struct ps_member *m),
		  s32 key, u32 got)
{
	u32 i, count = 0;

	for (i = 0; i < bed->n; i++)
		count += key_of(&bed->members[i]) == key;
	return count ? key_of(&bed->members[got]) == key : -1;
}

/* What the first attempt has to give. */
static bool right(struct bed *bed, const struct ps_policy *policy,
		  const struct ps_flow *flow, u32 got)
{
	u32 i, at, unset = 0;
	int is_one = -1;

	if (policy == &ps_policy_cpu)
		is_one = one_of(bed, ps_member_cpu, machine.cpu, got);
	if (policy != &ps_policy_rxqueue && is_one < 0)
		is_one = one_of(bed, maybe_here, 1, got);
	if (policy == &ps_policy_rxqueue && flow->skb && flow->skb->queue_mapping) {
		s32 queue = flow->skb->queue_mapping - 1;

		is_one = one_of(bed, queue_of_member, queue, got);
		for (i = 0; i < bed->n; i++)
			unset += bed->members[i].rx_queue == -1;
		for (i = 0, at = 0; is_one < 0 && unset && i < bed->n; i++)
			if (bed->members[i].rx_queue == -1 &&
			    at++ == queue % unset)
				return got == i;
	}
	return is_one < 0 ? got == bed_pick(bed, &ps_policy_hash, flow, 0) :
			    is_one;
}

static void test_random(const struct ps_policy *policy)
{
	u32 round, k, attempt, differ = 0, wrong = 0;
	struct bed_flow f;
	struct bed bed;

	for (round = 0; round < ROUNDS; round++) {
		shuffle_machine();
		bed_init(&bed, 1 + rnd_below(round % 50 ? 20 : 1000));
		shuffle_members(&bed);
		for (k = 0; k < 10; k++) {
			u32 got[PS_PICK_ATTEMPTS];

			bed_flow(&f, rnd(), k & 1);
			f.skb.queue_mapping = rnd_below(10);
			if (k == 8)
				f.skb.queue_mapping = 2000 + rnd_below(63536);
			if (k == 9)
				f.flow.skb = NULL;
			bed_unindex(&bed);
			for (attempt = 0; attempt < ARRAY_SIZE(got); attempt++)
				got[attempt] = bed_pick(&bed, policy, &f.flow,
							attempt);
			wrong += !right(&bed, policy, &f.flow, got[0]);
			bed_index(&bed, policy);
			for (attempt = 0; attempt < ARRAY_SIZE(got); attempt++)
				differ += got[attempt] !=
					  bed_pick(&bed, policy, &f.flow,
						   attempt);
		}
		bed_free(&bed);
	}
	is(wrong, 0, "%s: %u groups: by its rules", policy->name, round);
	is(differ, 0, "the same with an index and without");
}

/* Several with the same number, or none: evenly by hash. */
static void test_even(const struct ps_policy *policy, bool serve, u32 share)
{
	u32 i, k, n = 0, count[16] = { 0 };
	struct bed_flow f;
	struct bed bed;

	machine = (struct machine){ .cpu = 3, .nr_cpus = 4, .nr_nodes = 2,
				    .node = { 0, 0, 1, 1 } };
	bed_init(&bed, 16);
	for (i = 0; i < 16; i++) {
		bed.members[i].ran_on = serve && i % share == 0 ? 3 : 0;
		bed.members[i].rx_queue = serve && i % share == 0 ? 5 : 1;
	}
	bed_changed(&bed);
	bed_index(&bed, policy);
	for (k = 0; k < 10000; k++) {
		bed_flow(&f, k, false);
		f.skb.queue_mapping = 6;
		count[bed_pick(&bed, policy, &f.flow, 0)]++;
	}
	for (i = 0; i < 16; i++)
		if (count[i])
			count[n++] = count[i];
	is(n, serve ? 16 / share : 16, "%s: so many members", policy->name);
	ok(chi_square(count, n) < 4.5, "evenly");
	bed_free(&bed);
}

static void test_cpu(void)
{
	struct bed_flow f;
	struct bed bed;
	u32 i, cpu;

	/* CPUs 0, 2, 5 and 7 only; CPU 5 has no member. */
	machine = (struct machine){ .nr_cpus = 8, .nr_nodes = 2,
				    .node = { 0, -1, 0, -1, -1, 1, -1, 1 } };
	bed_init(&bed, 4);
	bed.members[0].cpu = 7;
	bed.members[1].cpu = 0;
	bed.members[2].ran_on = 2;
	bed.members[3].cpu = 3;		/* there is none */
	bed_changed(&bed);
	bed_flow(&f, 1, false);
	for (i = 0; i < 2; i++) {
		static const u32 want[] = { 1, 0, 2, 0, 0, 0, 0, 0 };

		for (cpu = 0; cpu < 8; cpu++) {
			if (machine.node[cpu] < 0)
				continue;
			machine.cpu = cpu;
			is(bed_pick(&bed, &ps_policy_cpu, &f.flow, 0), want[cpu],
			   "sparse: CPU %u", cpu);
		}
		bed_index(&bed, &ps_policy_cpu);
	}
	/* It has gone elsewhere, and the index doesn't know yet. */
	bed.members[2].ran_on = 5;
	machine.cpu = 5;
	is(bed_pick(&bed, &ps_policy_cpu, &f.flow, 0), 0, "index as it was");
	atomic_inc_return(&bed.group.version);
	is(bed_pick(&bed, &ps_policy_cpu, &f.flow, 0), 2, "out of date: not used");
	bed_free(&bed);
}

/* One after the other of those by order. */
static void test_order(void)
{
	struct bed_flow f;
	struct bed bed;
	u32 queue, wrong = 0;

	bed_init(&bed, 5);
	bed.members[1].rx_queue = 100;
	bed.members[3].rx_queue = 2;
	bed_changed(&bed);
	bed_index(&bed, &ps_policy_rxqueue);
	for (queue = 0; queue < 50; queue++) {
		static const u32 order[] = { 0, 2, 4 };

		bed_flow(&f, queue * 77, false);
		f.skb.queue_mapping = queue + 1;
		wrong += bed_pick(&bed, &ps_policy_rxqueue, &f.flow, 0) !=
			 (queue == 2 ? 3 : order[queue % 3]);
	}
	is(wrong, 0, "queues in turn for members without one");
	bed_free(&bed);
}

/* Attempts come to every member of a small group. */
static void test_attempts(const struct ps_policy *policy)
{
	u32 round, attempt, missed = 0;
	struct bed_flow f;
	struct bed bed;

	for (round = 0; round < ROUNDS; round++) {
		u32 seen = 0, indexed = round & 1;

		shuffle_machine();
		bed_init(&bed, 2);
		shuffle_members(&bed);
		if (indexed)
			bed_index(&bed, policy);
		bed_flow(&f, rnd(), false);
		f.skb.queue_mapping = rnd_below(4);
		for (attempt = 0; attempt < PS_PICK_ATTEMPTS; attempt++)
			seen |= 1 << bed_pick(&bed, policy, &f.flow, attempt);
		missed += seen != 3;
		bed_free(&bed);
	}
	is(missed, 0, "%s: another attempt comes to the other member",
	   policy->name);
}

int main(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(near); i++) {
		test_random(near[i]);
		test_attempts(near[i]);
		test_even(near[i], true, 4);
		test_even(near[i], true, 1);
		test_even(near[i], false, 1);
	}
	test_cpu();
	test_order();
	return done();
}
