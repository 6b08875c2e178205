// SPDX-License-Identifier: GPL-2.0-only
/*
 * A module that has faults: one of every kind that a debug kernel is there to
 * find, committed when it is loaded with fault=NAME. A suite in which none of them
 * is found can't fail. See planted.t.
 */
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/timer.h>
#include <linux/workqueue.h>

static char *fault = "";
module_param(fault, charp, 0);
MODULE_PARM_DESC(fault, "which one");

struct thing {
	struct rcu_head rcu;
	struct work_struct work;
	unsigned long value;
};

/* The compiler shall not see what becomes of it. */
static struct thing *new_thing(void)
{
	struct thing *t = kzalloc(sizeof(*t), GFP_KERNEL);

	OPTIMIZER_HIDE_VAR(t);
	return t;
}

static void use_after_free(void)
{
	struct thing *t = new_thing();

	kfree(t);
	WRITE_ONCE(t->value, 1);
}

static void free_thing(struct rcu_head *rcu)
{
	kfree(container_of(rcu, struct thing, rcu));
}

/* Freed by RCU, and used by one who wasn't a reader when that began. */
static void use_after_grace_period(void)
{
	struct thing *t = new_thing();

	call_rcu(&t->rcu, free_thing);
	rcu_barrier();
	WRITE_ONCE(t->value, 1);
}

static void out_of_bounds(void)
{
	struct thing *t = new_thing();
	size_t behind = sizeof(*t);

	OPTIMIZER_HIDE_VAR(behind);
	WRITE_ONCE(((u8 *)t)[behind], 1);
	kfree(t);
}

static void double_free(void)
{
	struct thing *t = new_thing();

	kfree(t);
	kfree(t);
}

static void leak(void)
{
	new_thing();
}

static void sleep_in_atomic(void)
{
	static DEFINE_SPINLOCK(lock);

	spin_lock(&lock);
	msleep(20);
	spin_unlock(&lock);
}

static DEFINE_SPINLOCK(lock_a);
static DEFINE_SPINLOCK(lock_b);

static void two_orders(void)
{
	spin_lock(&lock_a);
	spin_lock(&lock_b);
	spin_unlock(&lock_b);
	spin_unlock(&lock_a);
	spin_lock(&lock_b);
	spin_lock(&lock_a);
	spin_unlock(&lock_a);
	spin_unlock(&lock_b);
}

/* Taken by a softirq as well: whoever holds it must keep them out. */
static void take_in_softirq(struct timer_list *unused)
{
	spin_lock(&lock_a);
	spin_unlock(&lock_a);
}

static void softirq(void)
{
	static DEFINE_TIMER(timer, take_in_softirq);

	mod_timer(&timer, jiffies + 1);
	msleep(100);
	spin_lock(&lock_a);
	spin_unlock(&lock_a);
}

static void rcu_without_lock(void)
{
	static struct thing __rcu *published;

	kfree(rcu_dereference(published));
}

static void sleep_under_rcu(void)
{
	rcu_read_lock();
	msleep(20);
	rcu_read_unlock();
}

static void do_nothing(struct work_struct *unused)
{
}

static void free_queued_work(void)
{
	struct thing *t = new_thing();

	INIT_WORK(&t->work, do_nothing);
	/* on its way for as long as this CPU doesn't let go */
	preempt_disable();
	queue_work_on(smp_processor_id(), system_wq, &t->work);
	kfree(t);
	preempt_enable();
	msleep(100);
}

static void free_twice_by_rcu(void)
{
	struct thing *t = new_thing();

	kfree_rcu(t, rcu);
	kfree_rcu(t, rcu);
	msleep(100);
}

static void broken_list(void)
{
	static LIST_HEAD(list);
	static struct list_head entry;

	list_add(&entry, &list);
	list_add(&entry, &list);
}

static void put_too_often(void)
{
	refcount_t count;

	refcount_set(&count, 1);
	if (refcount_dec_and_test(&count))
		refcount_inc(&count);
}

static unsigned long raced;

static int count_up(void *unused)
{
	while (!kthread_should_stop()) {
		raced++;
		barrier();
		cond_resched();
	}
	return 0;
}

static void race(void)
{
	struct task_struct *tasks[2];
	int i;

	for (i = 0; i < 2; i++)
		tasks[i] = kthread_run(count_up, NULL, "planted/%d", i);
	msleep(5000);
	for (i = 0; i < 2; i++)
		if (!IS_ERR(tasks[i]))
			kthread_stop(tasks[i]);
}

static const struct {
	const char *name;
	void (*commit)(void);
} faults[] = {
	{ "use-after-free", use_after_free },
	{ "use-after-grace-period", use_after_grace_period },
	{ "out-of-bounds", out_of_bounds },
	{ "double-free", double_free },
	{ "leak", leak },
	{ "sleep-in-atomic", sleep_in_atomic },
	{ "two-orders", two_orders },
	{ "softirq", softirq },
	{ "rcu-without-lock", rcu_without_lock },
	{ "sleep-under-rcu", sleep_under_rcu },
	{ "free-queued-work", free_queued_work },
	{ "free-twice-by-rcu", free_twice_by_rcu },
	{ "broken-list", broken_list },
	{ "put-too-often", put_too_often },
	{ "data-race", race },
	{ "none", NULL },
};

static int __init planted_init(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(faults); i++) {
		if (strcmp(faults[i].name, fault))
			continue;
		if (faults[i].commit)
			faults[i].commit();
		return 0;
	}
	return -EINVAL;
}

static void __exit planted_exit(void)
{
}

module_init(planted_init);
module_exit(planted_exit);
MODULE_DESCRIPTION("Faults for debug kernels to find");
MODULE_LICENSE("GPL");
