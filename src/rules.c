// SPDX-License-Identifier: GPL-2.0
/*
 * The rules of a namespace: kept, applied to sockets that bind their port, and
 * to those that did already.
 */
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "adopt.h"
#include "group.h"
#include "hook.h"
#include "rules.h"

/* The longest line ps_rules_show() writes. */
#define PS_RULE_LINE (sizeof("add tcp 65535 policy=\n") + PORTSTEER_POLICY_LEN)
/* One page is all that a sysfs file shows, and a rule must not be invisible. */
#define PS_RULES_MAX (PAGE_SIZE / PS_RULE_LINE)

static unsigned long ps_rule_index(u8 proto, u16 port)
{
	return (unsigned long)(proto == IPPROTO_UDP) << 16 | port;
}

/**
 * ps_rule_policy() - is there a rule for a port?
 * @net: namespace
 * @proto: IPPROTO_TCP or IPPROTO_UDP
 * @port: host order
 * @policy: set to the rule's policy if there is one
 *
 * Context: any.
 */
bool ps_rule_policy(const struct net *net, u8 proto, u16 port,
		    const struct ps_policy **policy)
{
	struct ps_rule *rule;

	rcu_read_lock();
	rule = xa_load(&ps_net(net)->rules, ps_rule_index(proto, port));
	if (rule)
		*policy = rule->policy;
	rcu_read_unlock();
	return rule;
}

static u32 ps_rules_count(struct ps_net *pn)
{
	struct ps_rule *rule;
	unsigned long index;
	u32 n = 0;

	xa_for_each(&pn->rules, index, rule)
		n++;
	return n;
}

static int ps_rule_add(struct ps_net *pn, const struct ps_rule_cmd *cmd)
{
	unsigned long index = ps_rule_index(cmd->proto, cmd->port);
	struct ps_rule *rule, *old;
	int err;

	if (!xa_load(&pn->rules, index) && ps_rules_count(pn) >= PS_RULES_MAX)
		return -ENOSPC;

	rule = kzalloc(sizeof(*rule), GFP_KERNEL_ACCOUNT);
	if (!rule)
		return -ENOMEM;
	rule->proto = cmd->proto;
	rule->port = cmd->port;
	rule->policy = cmd->policy;

	/* Armed first: a bind() after the rule is there must be seen. */
	err = ps_hooks_get();
	if (err) {
		kfree(rule);
		return err;
	}
	old = xa_store(&pn->rules, index, rule, GFP_KERNEL_ACCOUNT);
	if (xa_is_err(old)) {
		ps_hooks_put();
		kfree(rule);
		return xa_err(old);
	}
	if (old) {
		ps_hooks_put();
		kfree_rcu(old, rcu);
	}

	ps_group_set_policy_on_port(pn->net, cmd->proto, cmd->port,
				    cmd->policy);
	ps_adopt_port(pn->net, cmd->proto, cmd->port, cmd->policy);
	/* A listen() that began before us hashes its socket after our walk. */
	ps_adopt_later(pn->net);
	return 0;
}

static int ps_rule_del(struct ps_net *pn, u8 proto, u16 port)
{
	struct ps_rule *rule;

	rule = xa_erase(&pn->rules, ps_rule_index(proto, port));
	if (!rule)
		return -ENOENT;
	kfree_rcu(rule, rcu);
	ps_group_release_rule(pn->net, proto, port);
	ps_hooks_put();
	return 0;
}

static void ps_rules_clear(struct ps_net *pn)
{
	struct ps_rule *rule;
	unsigned long index;

	xa_for_each(&pn->rules, index, rule)
		ps_rule_del(pn, rule->proto, rule->port);
}

/**
 * ps_rules_command() - do what a line says
 * @pn: namespace
 * @text: the line; is cut up
 *
 * Context: process, may sleep.
 * Return: 0, -EINVAL (not a rule), -ENOENT (no such rule to delete), -ENOSPC
 * (more rules than can be shown), -ENOMEM, or why the hooks can't be armed. On
 * error nothing has changed.
 */
int ps_rules_command(struct ps_net *pn, char *text)
{
	struct ps_rule_cmd cmd;
	int err;

	err = ps_rule_parse(text, &cmd);
	if (err)
		return err;

	mutex_lock(&pn->rules_mutex);
	switch (cmd.verb) {
	case PS_RULE_ADD:
		err = ps_rule_add(pn, &cmd);
		break;
	case PS_RULE_DEL:
		err = ps_rule_del(pn, cmd.proto, cmd.port);
		break;
	case PS_RULE_CLEAR:
		ps_rules_clear(pn);
		break;
	}
	mutex_unlock(&pn->rules_mutex);
	return err;
}

/**
 * ps_rules_show() - the rules, as they would be written
 * @pn: namespace
 * @page: a page
 *
 * Context: process, may sleep.
 * Return: the length.
 */
int ps_rules_show(struct ps_net *pn, char *page)
{
	struct ps_rule *rule;
	unsigned long index;
	int len = 0;

	mutex_lock(&pn->rules_mutex);
	xa_for_each(&pn->rules, index, rule)
		len += sysfs_emit_at(page, len, "add %s %u policy=%s\n",
				     rule->proto == IPPROTO_TCP ? "tcp" : "udp",
				     rule->port, rule->policy->name);
	mutex_unlock(&pn->rules_mutex);
	return len;
}

void ps_rules_start(struct ps_net *pn)
{
	xa_init_flags(&pn->rules, XA_FLAGS_ACCOUNT);
	mutex_init(&pn->rules_mutex);
	INIT_DELAYED_WORK(&pn->adopt_again, ps_adopt_work);
}

/* When nobody writes rules any more. */
void ps_rules_stop(struct ps_net *pn)
{
	mutex_lock(&pn->rules_mutex);
	ps_rules_clear(pn);
	mutex_unlock(&pn->rules_mutex);
	cancel_delayed_work_sync(&pn->adopt_again);
	xa_destroy(&pn->rules);
}
