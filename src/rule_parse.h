/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The text of a rule. Pure: also built in user space, by the unit tests.
 */
#ifndef PS_RULE_PARSE_H
#define PS_RULE_PARSE_H

#include "policy.h"

enum ps_rule_verb {
	PS_RULE_ADD,
	PS_RULE_DEL,
	PS_RULE_CLEAR,
};

struct ps_rule_cmd {
	enum ps_rule_verb verb;
	u8 proto;			/* IPPROTO_TCP or IPPROTO_UDP */
	u16 port;
	/* Of an add: */
	const struct ps_policy *policy;	/* never NULL */
	bool lock;
	bool migrate;
	bool force;
	bool sets_affinity;
	u32 affinity;			/* seconds, 0: off */
	bool sets_quic;
	u32 quic_offset;		/* in a connection ID, of the member's id */
	u32 quic_length;
};

int ps_rule_parse(char *text, struct ps_rule_cmd *cmd);

#endif /* PS_RULE_PARSE_H */
