// SPDX-License-Identifier: GPL-2.0
/*
 * Makes the tracepoints.
 */
#include <net/ipv6.h>

#define CREATE_TRACE_POINTS
#include "trace.h"
