// SPDX-License-Identifier: GPL-2.0
/* The registry of policies and the module parameters. */
#include <linux/module.h>

#include "bed.h"
#include "stats.h"
#include "tap.h"

extern const struct shim_param shim_param_policy, shim_param_seed;

static const struct {
	const char *name;
	const struct ps_policy *policy;
} all[] = {
#define POLICY(name) { #name, &ps_policy_##name }
#include "policies.h"
};

static int set(const struct shim_param *param, const char *val)
{
	/* In memory of its size: ASan sees what is read beyond. */
	char *copy = strdup(val);
	int err = param->ops->set(copy, NULL);

	free(copy);
	return err;
}

static const char *get(const struct shim_param *param)
{
	static char buf[4096];
	int len = param->ops->get(buf, NULL);

	if (len != (int)strlen(buf))
		return "(another length)";
	return buf;
}

static u32 weight_of(u32 kind)
{
	static const u32 most[] = { 1, 3, 100, 65535 };

	return 1 + rnd_below(most[kind % ARRAY_SIZE(most)]);
}

/* Members of all kinds, on a machine of 8 CPUs at most, some of them sparse. */
static void shuffle(struct bed *bed)
{
	u32 i, kind = rnd(), load = rnd_below(3);

	machine.nr_cpus = 1 + rnd_below(8);
	machine.nr_nodes = 1 + rnd_below(4);
	for (i = 0; i < machine.nr_cpus; i++)
		machine.node[i] = rnd_below(4) ? (int)rnd_below(machine.nr_nodes) :
						 -1;
	machine.cpu = rnd_below(machine.nr_cpus);
	machine.node[machine.cpu] = rnd_below(machine.nr_nodes);
	for (i = 0; i < bed->n; i++) {
		struct ps_member *m = &bed->members[i];

		m->weight = weight_of(kind);
		m->cpu = (int)rnd_below(12) - 1;
		m->ran_on = (int)rnd_below(9) - 1;
		m->rx_queue = (int)rnd_below(6) - 1;
		m->worker = rnd_below(MACHINE_WORKERS);
		m->awake = rnd();
		machine.waits[m->worker] = rnd() & 1;
		m->sk->sk_ack_backlog = rnd_below(1 + load * 5);
	}
	bed_changed(bed);
}

static u32 wrong;

static void pick_all(struct bed *bed, const struct ps_policy *policy, u32 times)
{
	struct bed_flow f;
	u32 k;

	for (k = 0; k < times; k++) {
		const struct ps_flow *flow = bed_flow(&f, rnd(), k & 1);

		f.skb.queue_mapping = rnd_below(8) * rnd_below(5000);
		if (k % 3 == 2)
			f.flow.skb = NULL;
		wrong += policy->pick(&bed->group, bed->set, bed->n, flow,
				      k % PS_PICK_ATTEMPTS) >= bed->n;
	}
}

/* What the packet path relies on, whatever the policy. */
static void test_pick(const struct ps_policy *policy)
{
	static const u32 sizes[] = { 63, 64, 65, 127, 1000, 1024, 1025, 3000 };
	bool changes = false;
	struct ps_group before;
	struct bed bed;
	u32 i;

	wrong = 0;
	for (i = 0; i < 40 + ARRAY_SIZE(sizes); i++) {
		u32 n = i < 40 ? 1 + i : sizes[i - 40];

		bed_init(&bed, n);
		shuffle(&bed);
		before = bed.group;
		pick_all(&bed, policy, 300);
		changes |= memcmp(&before, &bed.group, sizeof(before));
		bed_index(&bed, policy);
		pick_all(&bed, policy, 300);
		/* out of date */
		shuffle(&bed);
		pick_all(&bed, policy, 100);
		bed_free(&bed);
	}
	is(wrong, 0, "%s: picks one of n", policy->name);
	ok(!changes || policy->takes_turns, "changes the group only in turns");
	ok(!policy->takes_turns || !policy->follows_flow,
	   "doesn't take turns and follow the flow");
}

/* Whom packets name is a member, and asking changes nothing. */
static void test_named(const struct ps_policy *policy)
{
	struct ps_group before;
	u32 i, k, strange = 0;
	struct bed_flow f;
	struct bed bed;

	if (!policy->named)
		return;
	bed_init(&bed, 8);
	bed_udp(&bed);
	before = bed.group;
	for (i = 0; i < 20000; i++) {
		const struct ps_member *m;

		bed_flow(&f, i, i & 1);
		for (k = 0; k < sizeof(f.packet.rest); k++)
			f.packet.rest[k] = rnd_below(3) ? rnd_below(16) : rnd();
		f.skb.len = rnd_below(4 + sizeof(f.packet.rest) + 1);
		m = policy->named(&bed.group, &f.flow);
		strange += m && (m < bed.members || m >= bed.members + 8);
	}
	is(strange, 0, "%s: a packet names a member or nobody", policy->name);
	ok(!memcmp(&before, &bed.group, sizeof(before)), "which changes nothing");
	bed_free(&bed);
}

/* Another attempt comes to a usable member: @broken are not, one after another. */
static void test_unusable(const struct ps_policy *policy, u32 n, u32 broken,
			  bool indexed)
{
	u32 i, k, steered = 0, fallbacks = 0;
	struct bed_flow f;
	struct bed bed;

	wrong = 0;
	for (i = 0; i < 40; i++) {
		bed_init(&bed, n);
		shuffle(&bed);
		bed_weigh_all(&bed, NULL);
		for (k = 0; k < broken; k++)
			bed_break(&bed, (i + k) % n);
		if (indexed)
			bed_index(&bed, policy);
		for (k = 0; k < 50; k++) {
			const struct ps_flow *flow = bed_flow(&f, rnd(), k & 1);
			int got;

			f.skb.queue_mapping = rnd_below(8);
			got = bed_steer(&bed, policy, flow);
			wrong += got >= 0 && !bed_usable(&bed, got);
			steered++;
		}
		fallbacks += bed_fallbacks(&bed);
		bed_free(&bed);
	}
	is(wrong, 0, "%s, %u of %u unusable: none of them", policy->name, broken,
	   n);
	if (broken == n)
		is(fallbacks, steered, "falls back every time");
	else
		ok(fallbacks <= (broken > 1 ? steered / 50 : 0),
		   "falls back %u of %u times", fallbacks, steered);
}

static void test_unusables(const struct ps_policy *policy)
{
	u32 indexed;

	for (indexed = 0; indexed < 2; indexed++) {
		test_unusable(policy, 1, 1, indexed);
		test_unusable(policy, 2, 1, indexed);
		test_unusable(policy, 3, 1, indexed);
		test_unusable(policy, 8, 1, indexed);
		test_unusable(policy, 8, 4, indexed);
		test_unusable(policy, 4, 4, indexed);
		test_unusable(policy, 100, 1, indexed);
	}
}

static void test_names(void)
{
	unsigned int i, j;

	ok(ARRAY_SIZE(all) >= 2, "%zu policies", ARRAY_SIZE(all));
	for (i = 0; i < ARRAY_SIZE(all); i++) {
		const char *name = all[i].policy->name;
		bool unique = true;

		ok(strnlen(name, PORTSTEER_POLICY_LEN) < PORTSTEER_POLICY_LEN,
		   "%s: the name fits", all[i].name);
		is_str(name, all[i].name, "is that of the variable");
		ok(!name[strspn(name, "abcdefghijklmnopqrstuvwxyz")] && *name,
		   "is of small letters only");
		test_pick(all[i].policy);
		test_named(all[i].policy);
		test_unusables(all[i].policy);
		for (j = 0; j < i; j++)
			unique &= !!strcmp(all[j].policy->name, name);
		ok(unique, "the name is unique");
		ok(ps_policy_find(name) == all[i].policy, "and found");
	}
}

/* sysfs lists them like that. */
static void test_nth(void)
{
	static const char *const order[] = {
		"hash", "rr", "random", "least", "cpu", "numa", "rxqueue", "idle",
		"consistent", "quic",
	};
	unsigned int i;

	is(ARRAY_SIZE(order), ARRAY_SIZE(all), "as many as there are");
	for (i = 0; i < ARRAY_SIZE(order); i++)
		is_str(ps_policy_nth(i)->name, order[i], "policy %u", i);
	ok(!ps_policy_nth(i) && !ps_policy_nth(U32_MAX), "and no more");
}

/* What lookup.c does with them depends on it. */
static void test_flags(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(all); i++) {
		const struct ps_policy *p = all[i].policy;

		is(p->follows_flow, p == &ps_policy_hash ||
		   p == &ps_policy_consistent || p == &ps_policy_quic,
		   "%s: follows the flow", p->name);
		is(!!p->named, p == &ps_policy_quic, "is told by the packet");
		is(p->by_cpu, p == &ps_policy_cpu || p == &ps_policy_numa,
		   "is by CPU");
		is(p->takes_turns, !p->follows_flow && p != &ps_policy_rxqueue,
		   "takes turns");
		is(!p->index_size, !p->index_build, "builds what it has a size of");
	}
}

static void test_find(void)
{
	static const char *const names[] = {
		"", "has", "hashh", "HASH", "hash ", " hash", "hash\n", "none",
		"a name that is longer than any policy's",
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		ok(!ps_policy_find(names[i]), "no policy: case %u", i);
}

static void test_policy_param(void)
{
	static const char *const bad[] = {
		"", "\n", "none", "none\n", "HASH", "has", "hashh", "hash rr",
		"hash\nrr", "0123456789abcdef", "hash            x",
		"a name that is longer than any policy's",
	};
	unsigned int i;
	char text[64];

	is(shim_param_policy.perm, 0644, "policy: root may write, all may read");
	ok(ps_policy_default() == &ps_policy_hash, "the default is hash");
	is_str(get(&shim_param_policy), "hash\n", "and shown");
	for (i = 0; i < ARRAY_SIZE(all); i++) {
		is(set(&shim_param_policy, all[i].name), 0, "set %s", all[i].name);
		ok(ps_policy_default() == all[i].policy, "is the default now");
		ok(!set(&shim_param_policy, "hash"), "back to hash");
		snprintf(text, sizeof(text), "%s\n", all[i].name);
		is(set(&shim_param_policy, text), 0, "set it with a newline");
		ok(ps_policy_default() == all[i].policy, "is the default now");
		is_str(get(&shim_param_policy), text, "and shown");
	}
	set(&shim_param_policy, "rr");
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		is(set(&shim_param_policy, bad[i]), -EINVAL, "bad name %u", i);
		ok(ps_policy_default() == &ps_policy_rr, "the default is kept");
	}
}

static void test_seed_param(void)
{
	static const char seed[] = "00112233445566778899aabbccddeeff\n";

	is(shim_param_seed.perm, 0600, "seed: for root only");
	is_str(get(&shim_param_seed), "random\n", "random at load");
	machine.outdated = 0;
	is(set(&shim_param_seed, seed), 0, "set");
	is(machine.outdated, 1, "indexes are made anew");
	is_str(get(&shim_param_seed), seed, "and shown");
	is(set(&shim_param_seed, "1"), -EINVAL, "a bad one");
	is(machine.outdated, 1, "indexes are not");
	is_str(get(&shim_param_seed), seed, "changes nothing");
	is(set(&shim_param_seed, "random\n"), 0, "back to random");
	is_str(get(&shim_param_seed), "random\n", "and shown");
}

int main(void)
{
	test_names();
	test_nth();
	test_flags();
	test_find();
	test_policy_param();
	test_seed_param();
	return done();
}
