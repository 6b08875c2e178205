/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_NODEMASK_H
#define SHIM_LINUX_NODEMASK_H

#include <machine.h>

#define NUMA_NO_NODE (-1)
#define nr_node_ids (machine.nr_nodes)

#endif /* SHIM_LINUX_NODEMASK_H */
