/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sockets that were bound before anybody asked for them.
 */
#ifndef PS_ADOPT_H
#define PS_ADOPT_H

#include "net.h"
#include "policy.h"

void ps_adopt_port(struct net *net, u8 proto, u16 port,
		   const struct ps_policy *policy);
void ps_adopt_later(struct net *net);
void ps_adopt_work(struct work_struct *work);

#endif /* PS_ADOPT_H */
