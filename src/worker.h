/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The threads that accept and receive.
 */
#ifndef PS_WORKER_H
#define PS_WORKER_H

#include <linux/types.h>

bool ps_worker_waits(u32 worker);

#endif /* PS_WORKER_H */
