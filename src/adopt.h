/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sockets that were bound before anybody asked for them.
 */
#ifndef PS_ADOPT_H
#define PS_ADOPT_H

#include "net.h"

struct ps_rule;

void ps_adopt_port(struct net *net, const struct ps_rule *rule);
void ps_adopt_later(struct net *net);
void ps_adopt_work(struct work_struct *work);

#endif /* PS_ADOPT_H */
