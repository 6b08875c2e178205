/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Exclusive groups: a key that all who share the port must know.
 */
#ifndef PS_EXCLUSIVE_H
#define PS_EXCLUSIVE_H

#include <net/sock.h>

#include "secret.h"

bool ps_exclusive_refuses(const struct sock *sk, u16 port,
			  const struct ps_secret *secret);
bool ps_exclusive_strangers(struct sock *sk, const struct ps_secret *secret);

#endif /* PS_EXCLUSIVE_H */
