// SPDX-License-Identifier: GPL-2.0
/*
 * The registry of policies, and the module parameters that belong to them.
 */
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/string.h>

#include "group.h"
#include "policy.h"

static const struct ps_policy *const ps_policies[] = {
	&ps_policy_hash,
	&ps_policy_rr,
	&ps_policy_random,
	&ps_policy_least,
	&ps_policy_cpu,
	&ps_policy_numa,
	&ps_policy_rxqueue,
	&ps_policy_idle,
	&ps_policy_consistent,
	&ps_policy_quic,
};

static const struct ps_policy *ps_default_policy = &ps_policy_hash;

/**
 * ps_policy_find() - by name
 * @name: ends in a NUL
 *
 * Context: any.
 * Return: NULL if there is none.
 */
const struct ps_policy *ps_policy_find(const char *name)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ps_policies); i++)
		if (!strcmp(ps_policies[i]->name, name))
			return ps_policies[i];
	return NULL;
}

/**
 * ps_policy_nth() - one after the other
 * @i: from 0 on
 *
 * Context: any.
 * Return: NULL behind the last one.
 */
const struct ps_policy *ps_policy_nth(unsigned int i)
{
	return i < ARRAY_SIZE(ps_policies) ? ps_policies[i] : NULL;
}

/**
 * ps_policy_default() - for a group that nobody chose a policy for
 *
 * Context: any.
 */
const struct ps_policy *ps_policy_default(void)
{
	return READ_ONCE(ps_default_policy);
}

static int ps_param_policy_set(const char *val, const struct kernel_param *kp)
{
	const struct ps_policy *policy;
	char name[PORTSTEER_POLICY_LEN];

	if (strscpy(name, val, sizeof(name)) < 0)
		return -EINVAL;
	policy = ps_policy_find(strim(name));
	if (!policy)
		return -EINVAL;
	WRITE_ONCE(ps_default_policy, policy);
	return 0;
}

static int ps_param_policy_get(char *buf, const struct kernel_param *kp)
{
	return sprintf(buf, "%s\n", ps_policy_default()->name);
}

static const struct kernel_param_ops ps_param_policy_ops = {
	.set = ps_param_policy_set,
	.get = ps_param_policy_get,
};

module_param_cb(policy, &ps_param_policy_ops, NULL, 0644);
MODULE_PARM_DESC(policy, "policy of a group that nobody chose one for (hash)");

static int ps_param_seed_set(const char *val, const struct kernel_param *kp)
{
	int err = ps_hash_set_seed(val);

	if (!err)
		ps_groups_outdate();
	return err;
}

static int ps_param_seed_get(char *buf, const struct kernel_param *kp)
{
	return ps_hash_show_seed(buf);
}

static const struct kernel_param_ops ps_param_seed_ops = {
	.set = ps_param_seed_set,
	.get = ps_param_seed_get,
};

/* For root only: who knows the seed can choose his worker. */
module_param_cb(seed, &ps_param_seed_ops, NULL, 0600);
MODULE_PARM_DESC(seed, "key of the hash, 32 hex digits, the same on hosts that shall agree (random)");
