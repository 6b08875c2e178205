// SPDX-License-Identifier: GPL-2.0
/*
 * The ports that have a group, in any namespace: one bit each, tested before
 * anything else of ours, so that other ports' packets pay next to nothing.
 */
#include <linux/bitmap.h>
#include <linux/cache.h>

#include "group.h"

#define PS_PORTS 65536

unsigned long ps_ports_tcp[BITS_TO_LONGS(PS_PORTS)] __cacheline_aligned;
unsigned long ps_ports_udp[BITS_TO_LONGS(PS_PORTS)] __cacheline_aligned;
