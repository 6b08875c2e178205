// SPDX-License-Identifier: GPL-2.0
/*
 * Comes and goes with each network namespace.
 */
#include "group.h"
#include "net.h"
#include "rules.h"

unsigned int ps_net_id __read_mostly;

static int __net_init ps_net_start(struct net *net)
{
	struct ps_net *pn = ps_net(net);
	int err;

	pn->net = net;
	INIT_LIST_HEAD(&pn->groups);
	ps_rules_start(pn);

	err = ps_procfs_add(net);
	if (err)
		return err;
	err = ps_sysfs_add(pn);
	if (err)
		ps_procfs_remove(net);
	return err;
}

/*
 * A namespace ends after the last of its users' sockets. What is left, at
 * most, are kernel sockets that a rule adopted.
 */
static void __net_exit ps_net_stop(struct net *net)
{
	struct ps_net *pn = ps_net(net);

	ps_sysfs_remove(pn);
	ps_procfs_remove(net);
	ps_rules_stop(pn);
	/* A walk may miss some when the table is resized under it. */
	do {
		ps_member_drop_all(net);
		cond_resched();
	} while (!list_empty(&pn->groups));
	/*
	 * Groups point to their namespace as long as they are worked on, and
	 * have a directory in it.
	 */
	ps_settle_flush();
	WARN_ON_ONCE(!hash_empty(pn->dirs));
}

static struct pernet_operations ps_net_ops = {
	.init = ps_net_start,
	.exit = ps_net_stop,
	.id = &ps_net_id,
	.size = sizeof(struct ps_net),
};

int ps_net_init(void)
{
	return register_pernet_subsys(&ps_net_ops);
}

void ps_net_exit(void)
{
	unregister_pernet_subsys(&ps_net_ops);
}
