// SPDX-License-Identifier: GPL-2.0
/*
 * Several CPUs that change a table of flows at a time: flow_order.t [seed]
 *
 * Each CPU is a context of its own in this one thread. At any access to memory
 * that others see another may go on, by chance: so there is one order of all
 * that happens, and what fails does so again with its seed.
 */
#include <stdlib.h>
#include <ucontext.h>

#include <linux/processor.h>

#include "flow_bed.h"
#include "tap.h"

#define CPUS 3
#define STACK (256 << 10)
#define ROUNDS 10000

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#else
#define __sanitizer_start_switch_fiber(save, bottom, size)
#define __sanitizer_finish_switch_fiber(save, bottom, size)
#endif

struct cpu {
	ucontext_t context;
	void *fake;	/* of ASan */
	char *stack;
	void (*fn)(u32 cpu);
	bool done;
};

static struct cpu cpus[CPUS], starter;
static u32 now_on, n_cpus, often;
static u64 chance;

static u32 dice(u32 n)
{
	chance = chance * 6364136223846793005 + 1442695040888963407;
	return (chance >> 32) * n >> 32;
}

static const void *main_bottom;
static size_t main_size;

static void go(struct cpu *from, struct cpu *to)
{
	/* One that has ended has no stack to come back to. */
	__sanitizer_start_switch_fiber(from->done ? NULL : &from->fake,
				       to == &starter ? main_bottom : to->stack,
				       to == &starter ? main_size : STACK);
	swapcontext(&from->context, &to->context);
	__sanitizer_finish_switch_fiber(from->fake, &main_bottom, &main_size);
}

/* Another CPU goes on, if there is one. */
static void relax(void)
{
	u32 i, next = now_on, others = 0;

	for (i = 0; i < n_cpus; i++)
		others += i != now_on && !cpus[i].done;
	if (!others)
		return;
	others = dice(others) + 1;
	while (others) {
		next = (next + 1) % n_cpus;
		others -= !cpus[next].done && next != now_on;
	}
	i = now_on;
	now_on = next;
	go(&cpus[i], &cpus[next]);
}

static void between(void)
{
	if (!dice(often))
		relax();
}

static void run_one(void)
{
	struct cpu *me = &cpus[now_on];

	__sanitizer_finish_switch_fiber(NULL, &main_bottom, &main_size);
	me->fn(now_on);
	me->done = true;
	for (now_on = 0; now_on < n_cpus && cpus[now_on].done; now_on++)
		;
	go(me, now_on < n_cpus ? &cpus[now_on] : &starter);
}

/* All at once. */
static void run(void (*fn)(u32 cpu), u32 n)
{
	u32 i;

	n_cpus = n;
	often = 2 + dice(30);
	for (i = 0; i < n; i++) {
		cpus[i].fn = fn;
		cpus[i].done = false;
		getcontext(&cpus[i].context);
		cpus[i].context.uc_stack.ss_sp = cpus[i].stack;
		cpus[i].context.uc_stack.ss_size = STACK;
		makecontext(&cpus[i].context, run_one, 0);
	}
	now_on = dice(n);
	shim_between = between;
	shim_relax = relax;
	go(&starter, &cpus[now_on]);
	shim_between = NULL;
	shim_relax = NULL;
}

/* What the CPUs do, and what they get. */
static struct flow_bed bed;
static u64 key;
static struct {
	u32 stale, found, got, skew;
} by[CPUS];

static void datagram(u32 cpu)
{
	struct ps_flow_clock clock = bed.clock;

	clock.now += by[cpu].skew;
	by[cpu].found = ps_flow_table_find(bed.t, key, &clock);
	by[cpu].got = by[cpu].found;
	if (by[cpu].found == PS_FLOW_FREE || bed.gone[by[cpu].found] ||
	    by[cpu].found == by[cpu].stale)
		by[cpu].got = ps_flow_table_add(bed.t, key, 10 + cpu,
						by[cpu].found, &clock);
}

/* Slots that hold flows as they may be found: FREE, idle, without a member. */
static void litter(u32 live)
{
	u32 i, n = dice(bed.t->slots + 1);

	bed.gone[1] = true;
	for (i = 0; i < n; i++) {
		struct ps_flow_slot *slot = flow_bed_slot(&bed, i);

		slot->key = flow_key(100 + i);
		slot->holder = dice(3);
		slot->seen = bed.clock.now - (dice(2) ? 50 : 0);
		if (slot->holder == 2 && bed.clock.now == slot->seen && !live)
			slot->holder = 1;
		if (dice(8) == 0 && slot->holder != 2) {
			/* As it is after two CPUs placed one flow. */
			slot->key = ~slot->key | 1;
			slot->holder = PS_FLOW_FREE;
		}
	}
}

static u32 live_lost(const struct flow_bed *before)
{
	u32 i, lost = 0;

	for (i = 0; i < before->t->slots; i++) {
		const struct ps_flow_slot *was = flow_bed_slot(before, i);

		if (was->holder == 2 && was->seen == bed.clock.now)
			lost += memcmp(was, flow_bed_slot(&bed, i), sizeof(*was)) != 0;
	}
	return lost;
}

enum kind { NEW, IDLE, GONE, STALE, KINDS };

static const char *const kinds[] = {
	"a new flow", "an idle flow", "a flow whose member has gone",
	"a flow whose member can't take it",
};

static void prepare(enum kind kind, u32 slots)
{
	u32 i;

	flow_bed_init(&bed, slots, 1000, 10);
	key = flow_key(dice(64));
	litter(true);
	for (i = 0; i < CPUS; i++) {
		by[i].stale = PS_FLOW_FREE;
		by[i].skew = 0;
	}
	if (kind == NEW)
		return;
	if (flow_bed_add(&bed, key, 3) != 3)
		return;
	if (kind == IDLE)
		bed.clock.now += 50;
	if (kind == GONE)
		bed.gone[3] = true;
	for (i = 0; kind == STALE && i < CPUS; i++)
		by[i].stale = 3;
}

/*
 * Several CPUs have a datagram of one flow that is nobody's, and their policies
 * would give it to different members: one of those gets all.
 */
static void test_one_flow(enum kind kind, u32 slots, u32 n)
{
	u32 round, i, end, differ = 0, copies = 0, lost = 0, nobody = 0, busy = 0;
	u32 refused = 0;

	for (round = 0; round < ROUNDS; round++) {
		struct flow_bed before;
		bool room;

		prepare(kind, slots);
		before = bed;
		before.t = ps_flow_table_alloc(slots, GFP_KERNEL);
		memcpy(before.t, bed.t, sizeof(*bed.t) +
		       slots / PS_FLOW_WAYS * sizeof(struct ps_flow_bucket));
		room = ps_flow_table_add(before.t, key, 9, kind == STALE ? 3 : 0,
					 &before.clock) == 9;
		memcpy(before.t, bed.t, sizeof(*bed.t) +
		       slots / PS_FLOW_WAYS * sizeof(struct ps_flow_bucket));
		run(datagram, n);
		end = flow_bed_find(&bed, key);
		for (i = 0; i < n; i++) {
			if (by[i].got == PS_FLOW_FREE)
				refused += room;
			else
				differ += by[i].got != end;
		}
		copies += flow_bed_copies(&bed, key) > 1;
		nobody += room && end == PS_FLOW_FREE;
		lost += live_lost(&before);
		for (i = 0; i < slots; i++)
			busy += flow_bed_slot(&bed, i)->holder == PS_FLOW_BUSY;
		flow_bed_free(&before);
		flow_bed_free(&bed);
	}
	is(differ, 0, "%u CPUs, %s, %u slots: who gets a datagram keeps the flow",
	   n, kinds[kind], slots);
	is(copies, 0, "the flow is there once");
	is(nobody, 0, "and it is somebody's where there is room");
	is(refused, 0, "no CPU found none");
	is(lost, 0, "live flows stay");
	is(busy, 0, "no slot is left busy");
}

/* Different flows at a time, for the same few slots. */
static u64 keys[CPUS];

static void other_datagram(u32 cpu)
{
	by[cpu].got = ps_flow_table_add(bed.t, keys[cpu], 10 + cpu, PS_FLOW_FREE,
					&bed.clock);
	by[cpu].found = ps_flow_table_find(bed.t, keys[cpu], &bed.clock);
}

static void test_several_flows(u32 slots)
{
	u32 round, i, wrong = 0, copies = 0, lost = 0, refused = 0, unused;

	for (round = 0; round < ROUNDS; round++) {
		struct flow_bed before;

		flow_bed_init(&bed, slots, 1000, 10);
		litter(true);
		before = bed;
		before.t = ps_flow_table_alloc(slots, GFP_KERNEL);
		memcpy(before.t, bed.t, sizeof(*bed.t) +
		       slots / PS_FLOW_WAYS * sizeof(struct ps_flow_bucket));
		unused = slots - flow_bed_live(&bed);
		for (i = 0; i < CPUS; i++)
			keys[i] = flow_key(round * CPUS + i + 1000);
		run(other_datagram, CPUS);
		for (i = 0; i < CPUS; i++) {
			if (by[i].got == PS_FLOW_FREE) {
				refused += slots == 8 && unused >= CPUS;
				continue;
			}
			wrong += by[i].got != 10 + i ||
				 by[i].found != 10 + i ||
				 flow_bed_find(&bed, keys[i]) != 10 + i;
			copies += flow_bed_copies(&bed, keys[i]) != 1;
		}
		lost += live_lost(&before);
		flow_bed_free(&before);
		flow_bed_free(&bed);
	}
	is(wrong, 0, "%u CPUs, as many flows, %u slots: each has its own", CPUS,
	   slots);
	is(copies, 0, "and is there once");
	is(refused, 0, "none is refused while there is room");
	is(lost, 0, "live flows stay");
}

/*
 * One CPU gives the flow in @keys[0] to a slot of an idle flow, and another
 * CPU's datagram is that idle flow's.
 */
static void revived(u32 cpu)
{
	u64 flow = cpu < 2 ? keys[0] : keys[1];

	by[cpu].got = ps_flow_table_find(bed.t, flow, &bed.clock);
	if (by[cpu].got == PS_FLOW_FREE)
		by[cpu].got = ps_flow_table_add(bed.t, flow, 10 + cpu,
						PS_FLOW_FREE, &bed.clock);
}

static void test_revived(void)
{
	u32 round, i, moved = 0, copies = 0, holder, got;

	for (round = 0; round < 5 * ROUNDS; round++) {
		flow_bed_init(&bed, 16, 1000, 10);
		keys[0] = flow_key(dice(100));
		keys[1] = flow_key(100 + dice(100));
		/* It has one of the first slots of its buckets. */
		flow_bed_add(&bed, keys[1], 4);
		for (i = 0; i < 4; i++)
			flow_bed_add(&bed, flow_key(100 + dice(100)), 4);
		bed.clock.now += 50;
		run(revived, CPUS);
		/* From now on it has a datagram every 5 seconds. */
		holder = PS_FLOW_FREE;
		for (i = 0; i < 5; i++) {
			got = flow_bed_find(&bed, keys[1]);
			if (got == PS_FLOW_FREE)
				got = flow_bed_add(&bed, keys[1], 20 + i);
			moved += holder != PS_FLOW_FREE && got != holder;
			holder = got;
			bed.clock.now += 5;
		}
		copies += flow_bed_copies(&bed, keys[1]) > 1;
		flow_bed_free(&bed);
	}
	is(moved, 0, "a flow that comes back while its slot is taken stays then");
	is(copies, 0, "and is there once");
}

/* A table is taken over by a larger one while the flow has datagrams. */
static struct ps_flow_table *old;

static void moving(u32 cpu)
{
	if (cpu)
		by[cpu].got = ps_flow_table_find(bed.t, key, &bed.clock);
	else
		ps_flow_table_move(bed.t, old, 0, old->slots, &bed.clock);
}

static void test_moving(void)
{
	u32 round, i, wrong = 0, copies = 0, idled = 0;

	for (round = 0; round < ROUNDS; round++) {
		flow_bed_init(&bed, 8, 1000, 10);
		key = flow_key(dice(100));
		flow_bed_add(&bed, key, 3);
		for (i = 0; i < dice(6); i++)
			flow_bed_add(&bed, flow_key(100 + i), 4);
		bed.clock.now += 8;
		old = bed.t;
		bed.t = ps_flow_table_alloc(64, GFP_KERNEL);
		bed.t->before = old;
		run(moving, CPUS);
		for (i = 1; i < CPUS; i++)
			wrong += by[i].got != 3;
		copies += flow_bed_copies(&bed, key) != 1;
		bed.t->before = NULL;
		kvfree(old);
		bed.clock.now += 8;
		idled += flow_bed_find(&bed, key) != 3;
		flow_bed_free(&bed);
	}
	is(wrong, 0, "flows move: each datagram gets to its member");
	is(copies, 0, "the flow is there once");
	is(idled, 0, "and lives on from its last datagram");
}

/* A CPU that is held up in the middle of writing. */
static u32 stop_at, points;
static u64 stopped_key;
static u32 stopped_got, stopped_found, stopped_live;

static void stop(void)
{
	if (points++ != stop_at)
		return;
	shim_between = NULL;
	stopped_found = ps_flow_table_find(bed.t, stopped_key, &bed.clock);
	stopped_got = ps_flow_table_add(bed.t, stopped_key, 20, PS_FLOW_FREE,
					&bed.clock);
	stopped_live = flow_bed_live(&bed);
	shim_between = stop;
}

/* At any point of an add: others don't wait forever, and nothing is lost. */
static void test_held_up(bool same)
{
	u32 got, wrong = 0, n = 0, unplaced = 0;

	for (stop_at = 0; ; stop_at++) {
		flow_bed_init(&bed, 64, 1000, 10);
		bed.gone[1] = true;
		flow_bed_add(&bed, flow_key(1), 2);
		points = 0;
		key = flow_key(2);
		stopped_key = same ? key : flow_key(3);
		shim_between = stop;
		got = flow_bed_add(&bed, key, 10);
		shim_between = NULL;
		if (points <= stop_at) {
			flow_bed_free(&bed);
			break;
		}
		n++;
		if (same) {
			wrong += stopped_got != PS_FLOW_FREE && stopped_got != got;
			wrong += flow_bed_find(&bed, key) != got;
			unplaced += stopped_got == PS_FLOW_FREE;
		} else {
			wrong += got != 10 || stopped_got != 20;
			wrong += flow_bed_find(&bed, stopped_key) != 20;
		}
		wrong += flow_bed_copies(&bed, key) != 1;
		wrong += flow_bed_find(&bed, flow_key(1)) != 2;
		wrong += stopped_live < 1 || stopped_live > (same ? 2 : 3);
		flow_bed_free(&bed);
	}
	is(wrong, 0, "a CPU held up at any of %u points: the other's flow, %s one",
	   n, same ? "the same" : "another");
	ok(!same || (unplaced && unplaced < n),
	   "isn't placed while its slot is busy (%u)", unplaced);
}

int main(int argc, char **argv)
{
	u32 kind, i;

	chance = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;
	for (i = 0; i < CPUS; i++)
		cpus[i].stack = malloc(STACK);
	for (kind = 0; kind < KINDS; kind++) {
		test_one_flow(kind, 8, 2);
		test_one_flow(kind, 64, 2);
		test_one_flow(kind, 64, 3);
	}
	test_several_flows(8);
	test_several_flows(64);
	test_revived();
	test_moving();
	test_held_up(true);
	test_held_up(false);
	for (i = 0; i < CPUS; i++)
		free(cpus[i].stack);
	return done();
}
