// SPDX-License-Identifier: GPL-2.0
/*
 * Arms and disarms the hooks, and makes unloading safe.
 */
#include <linux/capability.h>
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "hook.h"

/* How long the hooks stay after the last user, so that a restart is cheap. */
#define PS_DISARM_DELAY (HZ / 2)

DEFINE_PER_CPU(long, ps_hook_inside);

static struct ps_hook_set *const *ps_hook_sets;
static unsigned int ps_hook_sets_n;

static DEFINE_MUTEX(ps_hooks_mutex);	/* arming; taken outside socket locks */
static bool ps_hooks_armed;		/* under ps_hooks_mutex */
static bool ps_hooks_open;		/* under it: initialised, not going */
static bool ps_hooks_complained;	/* under it: since arming worked last */
static int ps_hooks_error;		/* under it: what arming came to last */
static unsigned long ps_hooks_tried;	/* under it: when that was */
static atomic_t ps_hooks_users = ATOMIC_INIT(0);

static void ps_hooks_disarm_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(ps_hooks_disarm_later, ps_hooks_disarm_work);

/*
 * The callback of hooks that have to see every call. Runs with preemption
 * disabled, in whatever context the hooked function is called in.
 */
void notrace ps_hook_always(unsigned long ip, unsigned long parent_ip,
			    struct ftrace_ops *ops, struct ps_fregs *fregs)
{
	struct ps_hook_set *set = container_of(ops, struct ps_hook_set, ops);
	unsigned int i;

	for (i = 0; i < set->n; i++) {
		if (set->hooks[i]->site == ip) {
			ps_fregs_redirect(fregs, set->hooks[i]->handler);
			return;
		}
	}
}

/**
 * ps_hook_resolve() - find a kernel function
 * @hook: its address is filled in
 *
 * A kprobe knows where a function is and steps over a landing pad (endbr64)
 * for us: what it finds is the ftrace site, or the function isn't traceable.
 *
 * Context: process, may sleep.
 * Return: 0, or an errno after a line in the log.
 */
int ps_hook_resolve(struct ps_hook *hook)
{
	struct kprobe kp = {
		.symbol_name = hook->name,
		.flags = KPROBE_FLAG_DISABLED,
	};
	u8 insn[MCOUNT_INSN_SIZE];
	unsigned long site;
	int err;

	err = register_kprobe(&kp);
	if (err) {
		pr_err("kernel function %s() is missing or can't be probed (%d), not loading\n",
		       hook->name, err);
		return err;
	}
	site = (unsigned long)kp.addr;
	unregister_kprobe(&kp);

	if (copy_from_kernel_nofault(insn, (void *)site, sizeof(insn)) ||
	    !ps_ftrace_site(insn)) {
		pr_err("kernel function %s() is not traceable, not loading\n",
		       hook->name);
		return -EOPNOTSUPP;
	}
	hook->site = site;
	if (hook->set_original)
		hook->set_original((void *)(site + MCOUNT_INSN_SIZE));
	return 0;
}

static int ps_hook_set_resolve(struct ps_hook_set *set)
{
	unsigned int i;
	int err;

	set->ops.func = set->filter;
	set->ops.flags = set->observes ? PS_FTRACE_OBSERVE_FLAGS :
					 PS_FTRACE_FLAGS;
	for (i = 0; i < set->n; i++) {
		err = ps_hook_resolve(set->hooks[i]);
		if (err)
			return err;
		err = ftrace_set_filter_ip(&set->ops, set->hooks[i]->site, 0,
					   0);
		if (err) {
			pr_err("kernel function %s() is not traceable (%d), not loading\n",
			       set->hooks[i]->name, err);
			return err;
		}
	}
	return 0;
}

/*
 * An empty filter is nobody's memory, but emptying it takes some. Not
 * ftrace_free_filter(): it isn't for modules in 5.10, and leaves a dangling
 * pointer until 6.2.
 */
static void ps_hook_filter_free(struct ftrace_ops *ops)
{
	while (ftrace_set_filter(ops, NULL, 0, 1) == -ENOMEM)
		msleep(20);
}

static void ps_hook_sets_free(struct ps_hook_set *const *sets, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		ps_hook_filter_free(&sets[i]->ops);
}

static void ps_hook_set_unregister(struct ps_hook_set *set)
{
	int err;

	if (!set->registered)
		return;
	err = unregister_ftrace_function(&set->ops);
	/* Only fails for an ops that isn't registered: our bug. */
	WARN_ONCE(err, "unhooking %s()...: %d\n", set->hooks[0]->name, err);
	WRITE_ONCE(set->registered, false);
}

static void ps_hook_ignore(unsigned long ip, unsigned long parent_ip,
			   struct ftrace_ops *ops, struct ps_fregs *fregs)
{
}

static int ps_hook_try(struct ps_hook *hook, unsigned long flags)
{
	static struct ftrace_ops probe;
	int err;

	lockdep_assert_held(&ps_hooks_mutex);
	probe.func = ps_hook_ignore;
	probe.flags = flags;
	err = ftrace_set_filter_ip(&probe, hook->site, 0, 1);
	if (!err) {
		err = register_ftrace_function(&probe);
		if (!err)
			unregister_ftrace_function(&probe);
	}
	ps_hook_filter_free(&probe);
	return err;
}

/*
 * Says why a set can't be armed, and for which function, by trying each. Once
 * until it works again: any user can make us try.
 */
static void ps_hook_set_blame(struct ps_hook_set *set, int err)
{
	struct ps_hook *hook = set->hooks[0];
	unsigned int i;

	if (ps_hooks_complained)
		return;
	ps_hooks_complained = true;

	for (i = 0; i < set->n; i++) {
		if (ps_hook_try(set->hooks[i], set->ops.flags &
				PS_FTRACE_FLAGS)) {
			hook = set->hooks[i];
			break;
		}
	}
	if (err != -EBUSY)
		pr_err("kernel function %s() can't be hooked (%d)\n",
		       hook->name, err);
	else if (!ps_hook_try(hook, set->ops.flags & PS_FTRACE_FLAGS &
			      ~FTRACE_OPS_FL_PERMANENT))
		pr_err("kernel function %s() can't be hooked: ftrace is switched off (kernel.ftrace_enabled=0)\n",
		       hook->name);
	else
		pr_err("kernel function %s() is taken by a livepatch or another module that replaces it\n",
		       hook->name);
}

static int ps_hook_set_register(struct ps_hook_set *set)
{
	int err = register_ftrace_function(&set->ops);

	WRITE_ONCE(set->registered, !err);
	if (err)
		ps_hook_set_blame(set, err);
	return err;
}

static void ps_hooks_disarm(void)
{
	unsigned int i;

	lockdep_assert_held(&ps_hooks_mutex);
	for (i = ps_hook_sets_n; i-- > 0;)
		ps_hook_set_unregister(ps_hook_sets[i]);
	ps_hooks_armed = false;
}

/* @all: also the sets that are armed on demand */
static int ps_hooks_arm(bool all)
{
	unsigned int i;
	int err;

	lockdep_assert_held(&ps_hooks_mutex);
	for (i = 0; i < ps_hook_sets_n; i++) {
		if (ps_hook_sets[i]->on_demand && !all)
			continue;
		err = ps_hook_set_register(ps_hook_sets[i]);
		if (err) {
			ps_hooks_disarm();
			return err;
		}
	}
	ps_hooks_armed = true;
	ps_hooks_complained = false;
	return 0;
}

/**
 * ps_hook_set_demand() - arm a set that isn't by itself
 * @set: stays armed as long as the others
 *
 * Context: process, may sleep; a socket lock may be held.
 * Return: 0 (also: was armed), -ESHUTDOWN if the others are not armed, or what
 * ftrace says.
 */
int ps_hook_set_demand(struct ps_hook_set *set)
{
	int err = 0;

	if (READ_ONCE(set->registered))
		return 0;
	mutex_lock(&ps_hooks_mutex);
	if (!ps_hooks_armed)
		err = -ESHUTDOWN;
	else if (!set->registered)
		err = ps_hook_set_register(set);
	mutex_unlock(&ps_hooks_mutex);
	return err;
}

static void ps_hooks_disarm_work(struct work_struct *work)
{
	mutex_lock(&ps_hooks_mutex);
	/*
	 * Zero is final while we hold the mutex: only ps_hooks_get() leaves
	 * it, under the mutex; ps_hooks_get_armed() refuses.
	 */
	if (ps_hooks_armed && !atomic_read(&ps_hooks_users))
		ps_hooks_disarm();
	mutex_unlock(&ps_hooks_mutex);
}

/*
 * Where a function is taken, trying patches the others and takes that back: not
 * as often as any user likes.
 */
static int ps_hooks_try(void)
{
	lockdep_assert_held(&ps_hooks_mutex);
	if (ps_hooks_error &&
	    time_before(jiffies, ps_hooks_tried + PS_DISARM_DELAY) &&
	    !capable(CAP_NET_ADMIN))
		return ps_hooks_error;
	ps_hooks_error = ps_hooks_arm(false);
	ps_hooks_tried = jiffies;
	return ps_hooks_error;
}

/**
 * ps_hooks_get() - one more reason to have the hooks armed
 *
 * Context: process, may sleep; no socket lock held.
 * Return: 0, -EBUSY if a function is taken by a livepatch or ftrace is off,
 * -ESHUTDOWN while the module is being loaded or unloaded, or what ftrace says. To be undone by
 * ps_hooks_put().
 */
int ps_hooks_get(void)
{
	int err = 0;

	if (ps_hooks_get_armed())
		return 0;

	mutex_lock(&ps_hooks_mutex);
	if (!ps_hooks_open)
		err = -ESHUTDOWN;
	else if (!ps_hooks_armed)
		err = ps_hooks_try();
	if (!err)
		atomic_inc(&ps_hooks_users);
	mutex_unlock(&ps_hooks_mutex);
	return err;
}

/**
 * ps_hooks_get_armed() - one more reason, if there is one already
 *
 * Context: any.
 * Return: false if nobody else wants the hooks: they may be going.
 */
bool ps_hooks_get_armed(void)
{
	return atomic_inc_not_zero(&ps_hooks_users);
}

/**
 * ps_hooks_put() - one reason less; the last one's hooks go a little later
 *
 * Context: any, also under spinlocks.
 */
void ps_hooks_put(void)
{
	if (atomic_dec_and_test(&ps_hooks_users))
		schedule_delayed_work(&ps_hooks_disarm_later, PS_DISARM_DELAY);
}

static long ps_hooks_inside(void)
{
	long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu(ps_hook_inside, cpu));
	return sum;
}

/* Waits, once disarmed, until nobody runs our code: see ps_hooks_exit(). */
static void ps_hooks_drain(void)
{
	synchronize_rcu_tasks();
	while (ps_hooks_inside())
		msleep(20);
	synchronize_rcu_tasks();
	synchronize_rcu();
}

/**
 * ps_hooks_init() - resolve the functions and arm once, to see that it works
 * @sets: in the order of arming; must outlive ps_hooks_exit()
 * @n: how many
 *
 * Context: process, may sleep.
 * Return: 0, or an errno after one line in the log that names the function.
 */
int ps_hooks_init(struct ps_hook_set *const *sets, unsigned int n)
{
	unsigned int i;
	int err;

	for (i = 0; i < n; i++) {
		err = ps_hook_set_resolve(sets[i]);
		if (err)
			goto free;
	}
	ps_hook_sets = sets;
	ps_hook_sets_n = n;

	mutex_lock(&ps_hooks_mutex);
	err = ps_hooks_arm(true);
	if (!err) {
		ps_hooks_disarm();
		ps_hooks_open = true;
	}
	mutex_unlock(&ps_hooks_mutex);
	if (!err)
		return 0;
	/* Some sets were armed for a moment, and sockets are busy. */
	ps_hooks_drain();
free:
	ps_hook_sets_free(sets, n);
	return err;
}

/**
 * ps_hooks_exit() - disarm for good and wait until nobody runs our code
 *
 * A task can be in three places: between the callback and ps_hook_enter() or
 * between ps_hook_exit() and the return, where it can only be preempted, never
 * sleep of its own will: synchronize_rcu_tasks() waits for those. Between the
 * two it may sleep for long (a lingering close()): it is counted. Nobody comes
 * in any more, so the sum, once zero, stays zero. The packet path isn't
 * counted: all of its callers are RCU readers.
 *
 * Context: process, may sleep.
 */
void ps_hooks_exit(void)
{
	mutex_lock(&ps_hooks_mutex);
	ps_hooks_open = false;
	ps_hooks_disarm();
	mutex_unlock(&ps_hooks_mutex);

	ps_hooks_drain();
	ps_hook_sets_free(ps_hook_sets, ps_hook_sets_n);
}

/**
 * ps_hooks_done() - the last of unloading, when nobody holds the hooks
 *
 * Also waits for tasks that have been given something to do of ours, by what
 * changed after the hooks were gone (see settle.c).
 *
 * Context: process, may sleep; after the last ps_hooks_put().
 */
void ps_hooks_done(void)
{
	ps_hooks_drain();
	cancel_delayed_work_sync(&ps_hooks_disarm_later);
}
