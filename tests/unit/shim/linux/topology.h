/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_TOPOLOGY_H
#define SHIM_LINUX_TOPOLOGY_H

#include <machine.h>

/* Of a possible CPU: the kernel's reads that CPU's own memory. */
static inline int cpu_to_node(int cpu)
{
	if (cpu < 0 || cpu >= (int)machine.nr_cpus || machine.node[cpu] < 0)
		abort();
	return machine.node[cpu];
}

#endif /* SHIM_LINUX_TOPOLOGY_H */
