// SPDX-License-Identifier: GPL-2.0
/* The registry of policies and the module parameters. */
#include <linux/module.h>

#include "bed.h"
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

/* What the packet path relies on, whatever the policy. */
static void test_pick(const struct ps_policy *policy)
{
	bool inside = true, changes = false;
	struct ps_group before;
	u32 k, n, attempt;
	struct bed_flow f;
	struct bed bed;

	for (n = 1; n <= 20; n++) {
		bed_init(&bed, n);
		for (k = 0; k < 1000; k++) {
			const struct ps_flow *flow = bed_flow(&f, k, k & 1);

			attempt = k % PS_PICK_ATTEMPTS;
			before = bed.group;
			inside &= policy->pick(&bed.group, bed.set, n, flow,
					       attempt) < n;
			changes |= memcmp(&before, &bed.group, sizeof(before));
		}
		bed_free(&bed);
	}
	ok(inside, "%s: picks one of n", policy->name);
	is(changes, policy->takes_turns, "changes the group if it takes turns");
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
		for (j = 0; j < i; j++)
			unique &= strcmp(all[j].policy->name, name);
		ok(unique, "the name is unique");
		ok(ps_policy_find(name) == all[i].policy, "and found");
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
	is(set(&shim_param_seed, seed), 0, "set");
	is_str(get(&shim_param_seed), seed, "and shown");
	is(set(&shim_param_seed, "1"), -EINVAL, "a bad one");
	is_str(get(&shim_param_seed), seed, "changes nothing");
	is(set(&shim_param_seed, "random\n"), 0, "back to random");
	is_str(get(&shim_param_seed), "random\n", "and shown");
}

int main(void)
{
	test_names();
	ok(ps_policy_rr.takes_turns && !ps_policy_hash.takes_turns,
	   "rr takes turns, hash doesn't");
	test_find();
	test_policy_param();
	test_seed_param();
	return done();
}
