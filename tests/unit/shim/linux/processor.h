/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_PROCESSOR_H
#define SHIM_LINUX_PROCESSOR_H

/*
 * Of a thread that waits for another one: there may be more of them than CPUs,
 * and the one it waits for has been taken off its CPU, as none is in the kernel.
 */
#include <sched.h>

#include <linux/compiler.h>

/* The same where it is the test that says who goes on. */
extern void (*shim_relax)(void);

static inline void cpu_relax(void)
{
	if (shim_relax)
		shim_relax();
	else
		sched_yield();
}

#endif /* SHIM_LINUX_PROCESSOR_H */
