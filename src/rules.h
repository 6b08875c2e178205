/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The operator's rules: what to do with servers that know nothing of portsteer.
 */
#ifndef PS_RULES_H
#define PS_RULES_H

#include <linux/rcupdate.h>

#include "group.h"
#include "net.h"
#include "policy.h"
#include "rule_parse.h"

struct ps_rule {
	u8 proto;
	u16 port;
	const struct ps_policy *policy;
	bool lock;	/* programs can't change the group */
	bool migrate;
	bool force;	/* also sockets that don't ask for SO_REUSEPORT */
	bool sets_affinity;
	u32 affinity;	/* seconds, 0: off */
	u16 quic;	/* PS_QUIC_PLACE(), or 0 */
	struct rcu_head rcu;
};

void ps_rules_start(struct ps_net *pn);
void ps_rules_stop(struct ps_net *pn);
int ps_rules_command(struct ps_net *pn, char *text);
int ps_rules_show(struct ps_net *pn, char *page);
bool ps_rule_find(const struct net *net, u8 proto, u16 port,
		  struct ps_rule *found);
void ps_rule_join(const struct ps_rule *rule, struct ps_join *how);

#endif /* PS_RULES_H */
