/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_MACHINE_H
#define SHIM_MACHINE_H

/*
 * The machine that a test runs on, as it likes to have it.
 */
#include <stdlib.h>

#include <linux/types.h>

#define MACHINE_CPUS 256
#define MACHINE_WORKERS 2048

struct machine {
	int cpu;		/* that the test's thread is on */
	unsigned int nr_cpus;	/* highest possible CPU + 1 */
	unsigned int nr_nodes;
	int node[MACHINE_CPUS];	/* -1: there can't be such a CPU */
	bool waits[MACHINE_WORKERS];	/* asleep, by the thread's number */
	u32 asked;		/* calls of ps_worker_waits() */
	u32 outdated;		/* of ps_groups_outdate() */
	u32 changed;		/* of ps_group_changed() */
	u32 left, enrolled;	/* of ps_sysfs_left(), ps_sysfs_enrolled() */
	u32 left_id, enrolled_id;	/* the id that the member had then */
	s64 seconds;		/* since it booted */
	bool no_memory;		/* large allocations fail */
};

extern struct machine machine;

#endif /* SHIM_MACHINE_H */
