// SPDX-License-Identifier: GPL-2.0
/* What stands for the machine, its threads, and the table of groups. */
#include <machine.h>

#include <linux/processor.h>

#include "group.h"
#include "worker.h"

void (*shim_between)(void);
void (*shim_relax)(void);

/* One CPU, one node. */
struct machine machine = { .nr_cpus = 1, .nr_nodes = 1 };

bool ps_worker_waits(u32 worker)
{
	machine.asked++;
	return worker && worker < MACHINE_WORKERS && machine.waits[worker];
}

void ps_groups_outdate(void)
{
	machine.outdated++;
}
