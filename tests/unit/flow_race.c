// SPDX-License-Identifier: GPL-2.0
/*
 * Flows of a group while real threads have their datagrams, time goes on,
 * members leave, and the table changes its size. Also built with the thread
 * sanitizer, as flow_race_tsan.t.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "bed.h"
#include "flow.h"
#include "flow_bed.h"
#include "tap.h"

#define THREADS 4
#define ROUNDS 3000

static pthread_barrier_t barrier;

/* Of one thread; seeded by its number. */
static __thread u64 chance;

static u32 dice(u32 n)
{
	chance = chance * 6364136223846793005 + 1442695040888963407;
	return (chance >> 32) * n >> 32;
}

/* Threads meet each other more often if they pause in the middle of things. */
static void pause_by_chance(void)
{
	if (!dice(64))
		sched_yield();
}

static void in_threads(void *(*fn)(void *arg))
{
	pthread_t threads[THREADS];
	uintptr_t i;

	pthread_barrier_init(&barrier, NULL, THREADS);
	shim_between = pause_by_chance;
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, fn, (void *)i))
			abort();
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	shim_between = NULL;
	pthread_barrier_destroy(&barrier);
}

/* The same flows at once, each thread for another member. */
#define FLOWS 24

static struct flow_bed table;
static u32 got[THREADS][FLOWS];
static u32 wrong, copies, lost, refused;

static void one_round(u32 round, u32 me)
{
	u32 i, k;

	if (!me) {
		flow_bed_init(&table, 64, 1000, 10);
		table.gone[1] = true;
		/* Flows that have idled, that have no member, that live. */
		table.clock.now = 900;
		for (i = 0; i < 12; i++)
			flow_bed_add(&table, flow_key(1000 + i), 2);
		table.clock.now = 1000;
		for (i = 0; i < 12; i++)
			flow_bed_add(&table, flow_key(2000 + i), 1);
		for (i = 0; i < 12; i++)
			flow_bed_add(&table, flow_key(3000 + i), 3);
	}
	pthread_barrier_wait(&barrier);
	for (i = 0; i < FLOWS; i++) {
		k = me % 2 ? i : FLOWS - 1 - i;
		got[me][k] = flow_bed_find(&table, flow_key(round * FLOWS + k + 5000));
		if (got[me][k] == PS_FLOW_FREE)
			got[me][k] = flow_bed_add(&table,
						  flow_key(round * FLOWS + k + 5000),
						  10 + me);
	}
	pthread_barrier_wait(&barrier);
	if (me)
		return;
	for (k = 0; k < FLOWS; k++) {
		u64 key = flow_key(round * FLOWS + k + 5000);
		u32 end = flow_bed_find(&table, key);

		for (i = 0; i < THREADS; i++) {
			refused += got[i][k] == PS_FLOW_FREE;
			wrong += got[i][k] != PS_FLOW_FREE && got[i][k] != end;
		}
		copies += flow_bed_copies(&table, key) > 1;
	}
	for (k = 0; k < 12; k++)
		lost += flow_bed_find(&table, flow_key(3000 + k)) != 3;
	flow_bed_free(&table);
}

static void *rounds(void *arg)
{
	u32 round;

	chance = (uintptr_t)arg + 1;
	for (round = 0; round < ROUNDS; round++) {
		one_round(round, (uintptr_t)arg);
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static void test_same_flows(void)
{
	in_threads(rounds);
	is(wrong, 0, "%u threads, the same %u flows, %u times: all agree", THREADS,
	   FLOWS, ROUNDS);
	is(copies, 0, "each flow is there once");
	is(lost, 0, "live flows stay");
	ok(refused <= ROUNDS * FLOWS * THREADS / 1000,
	   "%u datagrams of %u found no place", refused,
	   ROUNDS * FLOWS * THREADS);
}

/*
 * A group of UDP sockets whose old flows have datagrams all the time, and where
 * each thread brings new ones, too. One thread changes the size of the table,
 * and when every flow has had a datagram again, the time.
 */
#define OLD_FLOWS 100
#define MEMBERS 8
#define PASSES 400

static struct bed group;
static struct sock *sock_of[OLD_FLOWS];
static u32 moved, strangers;

static struct sock *steer(u32 k)
{
	struct bed_flow f;
	struct sock *sk;

	rcu_read_lock();
	sk = ps_pick(&group.group, rcu_dereference(group.group.set), MEMBERS,
		     &ps_policy_random, bed_flow(&f, k, k & 1), true);
	rcu_read_unlock();
	return sk;
}

static void *passes(void *arg)
{
	u32 me = (uintptr_t)arg, pass, k;

	chance = me + 1;
	for (pass = 0; pass < PASSES; pass++) {
		if (!me && ps_flows_set_room(&group.group, 128 << dice(4)))
			abort();
		for (k = 0; k < OLD_FLOWS; k++)
			if (steer(k) != sock_of[k])
				__atomic_add_fetch(&moved, 1, __ATOMIC_RELAXED);
		for (k = 0; k < 10; k++)
			if (!steer(1000 + (pass * THREADS + me) * 10 + k))
				__atomic_add_fetch(&strangers, 1,
						   __ATOMIC_RELAXED);
		/* One time-out after the other goes by. */
		if (pthread_barrier_wait(&barrier))
			machine.seconds += 2;
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

static void test_group(void)
{
	u32 k, full, live;
	u64 picked = 0;

	bed_init(&group, MEMBERS);
	bed_udp(&group);
	ps_flow_init();
	mutex_init(&group.group.flows_mutex);
	machine.seconds = 1000;
	group.group.affinity = 3;
	if (ps_flows_set_room(&group.group, 128) ||
	    ps_flows_update(&group.group))
		abort();
	for (k = 0; k < OLD_FLOWS; k++)
		sock_of[k] = steer(k);
	in_threads(passes);
	is(moved, 0, "%u flows, a table that changes its size %u times: all stay",
	   OLD_FLOWS, PASSES);
	is(strangers, 0, "new flows get to somebody");
	for (k = 0; k < MEMBERS; k++)
		picked += bed_picked(&group, k);
	is(picked, OLD_FLOWS + PASSES * THREADS * (OLD_FLOWS + 10),
	   "every datagram counts");
	/* A thread may lose its CPU in the middle of writing a slot. */
	full = atomic64_read(&group.group.flows_full);
	ok(full <= PASSES * THREADS * 10 / 1000, "there was room (%u)", full);
	live = ps_flows_live(&group.group);
	ok(live <= OLD_FLOWS + THREADS * 10 &&
	   live + full >= OLD_FLOWS + THREADS * 10,
	   "the flows of the last pass are there (%u)", live);
	group.group.affinity = 0;
	ps_flows_update(&group.group);
	ok(!group.group.flows, "without affinity there is no table");
	bed_free(&group);
}

int main(void)
{
	test_same_flows();
	test_group();
	return done();
}
