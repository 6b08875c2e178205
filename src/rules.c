// SPDX-License-Identifier: GPL-2.0
/*
 * The rules of a namespace: kept, applied to sockets that bind their port, and
 * to those that did already.
 */
#include <linux/slab.h>

#include "adopt.h"
#include "group.h"
#include "hook.h"
#include "policy/quic.h"
#include "rules.h"
#include "setting.h"

static unsigned long ps_rule_index(u8 proto, u16 port)
{
	return (unsigned long)(proto == IPPROTO_UDP) << 16 | port;
}

/**
 * ps_rule_find() - is there a rule for a port?
 * @net: namespace
 * @proto: IPPROTO_TCP or IPPROTO_UDP
 * @port: host order
 * @found: filled with a copy if there is one
 *
 * Context: any.
 */
bool ps_rule_find(const struct net *net, u8 proto, u16 port,
		  struct ps_rule *found)
{
	struct ps_rule *rule;

	rcu_read_lock();
	rule = xa_load(&ps_net(net)->rules, ps_rule_index(proto, port));
	if (rule)
		*found = *rule;
	rcu_read_unlock();
	return rule;
}

/**
 * ps_rule_join() - how a rule makes a socket join
 * @rule: the rule
 * @how: filled
 */
void ps_rule_join(const struct ps_rule *rule, struct ps_join *how)
{
	how->by_rule = true;
	how->policy = rule->policy;
	how->lock = rule->lock;
	how->keep_queue = !rule->migrate;
	how->sets_affinity = rule->sets_affinity;
	how->affinity = rule->affinity;
	how->quic = rule->quic;
}

/* A rule, and the one that it takes the place of, or NULL. */
struct ps_rule_change {
	const struct ps_rule *rule, *old;
};

/* To groups of the port that are there already. Under ps_lock. */
static void ps_rule_apply(struct ps_group *g, const void *arg)
{
	const struct ps_rule_change *change = arg;
	const struct ps_rule *rule = change->rule, *old = change->old;

	ps_group_set_policy(g, rule->policy);
	g->locked = rule->lock;
	WRITE_ONCE(g->keep_queue, !rule->migrate);
	if (rule->sets_affinity || (old && old->sets_affinity))
		WRITE_ONCE(g->affinity, rule->affinity);
	if (rule->quic || (old && old->quic))
		WRITE_ONCE(g->quic, rule->quic ?: PS_QUIC_DEFAULT);
	ps_group_changed(g);
}

/* What the rule has said goes with it; the policy stays until another comes. */
static void ps_rule_unapply(struct ps_group *g, const void *arg)
{
	const struct ps_rule *rule = arg;

	if (rule->lock)
		g->locked = false;
	if (!rule->migrate)
		WRITE_ONCE(g->keep_queue, false);
	if (rule->sets_affinity)
		WRITE_ONCE(g->affinity, 0);
	if (rule->quic)
		WRITE_ONCE(g->quic, PS_QUIC_DEFAULT);
	ps_group_changed(g);
}

/* The rule as it would be written, like snprintf(). */
static int ps_rule_print(const struct ps_rule *rule, char *buf, size_t size)
{
	char affinity[sizeof(" affinity=4294967295")] = "";
	char quic[sizeof(" quic_offset=255 quic_length=255")] = "";

	if (rule->sets_affinity)
		snprintf(affinity, sizeof(affinity), " affinity=%u",
			 rule->affinity);
	if (rule->quic)
		snprintf(quic, sizeof(quic), " quic_offset=%u quic_length=%u",
			 PS_QUIC_OFFSET(rule->quic),
			 PS_QUIC_LENGTH(rule->quic));
	return snprintf(buf, size, "add %s %u policy=%s%s%s%s%s%s\n",
			rule->proto == IPPROTO_TCP ? "tcp" : "udp", rule->port,
			rule->policy->name, rule->lock ? " lock=1" : "",
			rule->migrate ? "" : " migrate=0",
			rule->force ? " force=1" : "", affinity, quic);
}

/*
 * One page is all that a sysfs file shows, and a rule must not be invisible.
 * @fresh may take the place of a rule.
 */
static bool ps_rules_room(struct ps_net *pn, const struct ps_rule *fresh)
{
	size_t len = ps_rule_print(fresh, NULL, 0);
	struct ps_rule *rule;
	unsigned long index;

	xa_for_each(&pn->rules, index, rule)
		if (index != ps_rule_index(fresh->proto, fresh->port))
			len += ps_rule_print(rule, NULL, 0);
	return len < PAGE_SIZE;
}

static int ps_rule_add(struct ps_net *pn, const struct ps_rule_cmd *cmd)
{
	unsigned long index = ps_rule_index(cmd->proto, cmd->port);
	struct ps_rule *rule, *old;
	int err;

	rule = kzalloc(sizeof(*rule), GFP_KERNEL_ACCOUNT);
	if (!rule)
		return -ENOMEM;
	rule->proto = cmd->proto;
	rule->port = cmd->port;
	rule->policy = cmd->policy;
	rule->lock = cmd->lock;
	rule->migrate = cmd->migrate;
	rule->force = cmd->force;
	rule->sets_affinity = cmd->sets_affinity;
	rule->affinity = cmd->affinity;
	if (cmd->sets_quic)
		rule->quic = PS_QUIC_PLACE(cmd->quic_offset, cmd->quic_length);
	if (!ps_rules_room(pn, rule)) {
		kfree(rule);
		return -ENOSPC;
	}

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
	ps_group_for_port(pn->net, cmd->proto, cmd->port, ps_rule_apply,
			  &(struct ps_rule_change){ .rule = rule, .old = old });
	if (old) {
		ps_hooks_put();
		kfree_rcu(old, rcu);
	}
	ps_adopt_port(pn->net, rule);
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
	ps_group_release_rule(pn->net, proto, port);
	ps_member_rule_gone(pn->net, proto, port);
	ps_group_for_port(pn->net, proto, port, ps_rule_unapply, rule);
	kfree_rcu(rule, rcu);
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
		len += ps_rule_print(rule, page + len, PAGE_SIZE - len);
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
