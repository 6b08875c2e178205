// SPDX-License-Identifier: GPL-2.0
/*
 * What has to follow a change of a group, but may sleep, and so can't be done
 * where the group changes: its policy's index, its directory in sysfs and its
 * table of flows.
 *
 * A task that has changed a group, by bind() or close() for instance, finds all
 * of it done when it is back in user space.
 */
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/task_work.h>
#include <linux/workqueue.h>

#include "flow.h"
#include "group.h"
#include "hook.h"
#include "index.h"
#include "sysfs.h"

/* Threads wander between CPUs: look at them no more often than that. */
#define PS_DRIFT_DELAY (HZ / 100 ?: 1)

/* When to ask again for memory that there wasn't. */
#define PS_SETTLE_RETRY HZ

static struct workqueue_struct *ps_settle_queue;

/* The work holds a reference from being queued to its end. */
static void ps_settle_schedule(struct ps_group *g, unsigned long delay)
{
	if (!ps_group_get(g))
		return;
	if (delay ? !queue_delayed_work(ps_settle_queue, &g->settle, delay) :
		    mod_delayed_work(ps_settle_queue, &g->settle, 0))
		ps_group_put(g);
}

static void ps_settle_work(struct work_struct *work)
{
	struct ps_group *g = container_of(to_delayed_work(work),
					  struct ps_group, settle);
	bool again = false;

	/*
	 * Until there is memory the policy looks at the members themselves,
	 * operators don't see them all, flows don't stay on their sockets.
	 */
	again |= ps_index_update(g);
	again |= ps_sysfs_sync(g);
	again |= ps_flows_update(g);
	/* One that has disbanded needs none, and nobody would wait for it. */
	if (again && READ_ONCE(g->members))
		ps_settle_schedule(g, PS_SETTLE_RETRY);
	ps_group_put(g);
}

/* Of a new group. Context: any. */
void ps_settle_start(struct ps_group *g)
{
	INIT_DELAYED_WORK(&g->settle, ps_settle_work);
}

struct ps_settle_wait {
	struct callback_head work;
	struct ps_group *g;
};

static void ps_settle_wait_done(struct ps_settle_wait *wait)
{
	ps_group_put(wait->g);
	kfree(wait);
	ps_hook_exit();
}

/* Context: process, on the way back to user space, no locks. */
static void ps_settle_waiting(struct callback_head *work)
{
	struct ps_settle_wait *wait = container_of(work, struct ps_settle_wait,
						   work);

	/* What changes from here on, by another task, is that one's to await. */
	WRITE_ONCE(wait->g->waiter, NULL);
	flush_delayed_work(&wait->g->settle);
	ps_settle_wait_done(wait);
}

/*
 * Makes the current task wait on its way back to user space. If that can't be
 * had, it only sees what it has changed a little later.
 */
static void ps_settle_wait(struct ps_group *g)
{
	struct ps_settle_wait *wait;

	if (!in_task() ||
	    current->flags & (PF_KTHREAD | PF_IO_WORKER | PF_EXITING) ||
	    READ_ONCE(g->waiter) == current)
		return;
	/* The one that unloads us can't wait for its own way back. */
	if (READ_ONCE(THIS_MODULE->state) != MODULE_STATE_LIVE)
		return;
	wait = kmalloc(sizeof(*wait), GFP_ATOMIC | __GFP_NOWARN);
	if (!wait)
		return;
	if (!ps_group_get(g)) {
		kfree(wait);
		return;
	}
	wait->g = g;
	WRITE_ONCE(g->waiter, current);
	init_task_work(&wait->work, ps_settle_waiting);
	/* It is our code that will run: unloading waits for it. */
	ps_hook_enter();
	if (task_work_add(current, &wait->work, TWA_RESUME)) {
		WRITE_ONCE(g->waiter, NULL);
		ps_settle_wait_done(wait);
	}
}

/**
 * ps_group_changed() - members, or what packets go by, have changed
 * @g: the group
 *
 * Context: any, under ps_lock.
 */
void ps_group_changed(struct ps_group *g)
{
	ps_settle_schedule(g, 0);
	ps_settle_wait(g);
}

/**
 * ps_group_drifted() - a member's thread has moved to another CPU
 * @g: the group
 *
 * Context: any, RCU; no locks are taken that may sleep on PREEMPT_RT.
 */
void ps_group_drifted(struct ps_group *g)
{
	ps_settle_schedule(g, PS_DRIFT_DELAY);
}

/* Waits for what is due. Context: process, may sleep. */
void ps_settle_flush(void)
{
	flush_workqueue(ps_settle_queue);
}

int ps_settle_init(void)
{
	ps_settle_queue = alloc_workqueue("portsteer", WQ_UNBOUND, 0);
	return ps_settle_queue ? 0 : -ENOMEM;
}

/* When there is no group any more that could change. */
void ps_settle_exit(void)
{
	destroy_workqueue(ps_settle_queue);
}
