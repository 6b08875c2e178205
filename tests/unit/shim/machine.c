// SPDX-License-Identifier: GPL-2.0
/* What stands for the machine, its threads, and the table of groups. */
#include <machine.h>

#include <linux/processor.h>

#include "group.h"
#include "sysfs.h"
#include "worker.h"

void (*shim_between)(void);
void (*shim_relax)(void);
void (*shim_unlocked)(void);

/* Of the table, as in the module. */
spinlock_t ps_lock;

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

void ps_group_changed(struct ps_group *g)
{
	lockdep_assert_held(&ps_lock);
	machine.changed++;
}

void ps_sysfs_left(struct ps_group *g, struct ps_member *m)
{
	machine.left++;
	machine.left_id = m->id;
}

void ps_sysfs_enrolled(struct ps_group *g, const struct ps_member *m)
{
	machine.enrolled++;
	machine.enrolled_id = m->id;
}
