/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_PREEMPT_H
#define SHIM_LINUX_PREEMPT_H

/* A thread can't keep its CPU. */
static inline void preempt_disable(void) {}
static inline void preempt_enable(void) {}

#endif /* SHIM_LINUX_PREEMPT_H */
