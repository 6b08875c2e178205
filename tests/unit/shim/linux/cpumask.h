/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_CPUMASK_H
#define SHIM_LINUX_CPUMASK_H

#include <machine.h>

#define nr_cpu_ids (machine.nr_cpus)

static inline bool cpu_possible(unsigned int cpu)
{
	/* The kernel's would read beyond its mask. */
	if (cpu >= MACHINE_CPUS)
		abort();
	return machine.node[cpu] >= 0;
}

#endif /* SHIM_LINUX_CPUMASK_H */
