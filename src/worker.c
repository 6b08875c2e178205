// SPDX-License-Identifier: GPL-2.0
/*
 * Who serves a member, learned from who accepts or receives: where it runs, and
 * whether it waits for work.
 *
 * Seen where accept() and recv() begin, by a callback that leaves the call
 * alone: nobody sleeps in our code. A thread is known by its number. When that
 * is somebody else's by now, the guess is wrong until the next accept().
 */
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>
#include <net/inet_connection_sock.h>
#include <net/udp.h>
#include <asm/unistd.h>

#include "compat/task.h"
#include "group.h"
#include "hook.h"
#include "hooks.h"
#include "member_table.h"
#include "worker.h"

/*
 * The calls in which a server waits for its sockets. A thread that sleeps in
 * another one (for a lock, a disk, a while) has work to finish.
 */
static bool ps_waits_in(long nr)
{
	switch (nr) {
	case __NR_accept:
	case __NR_accept4:
	case __NR_recvfrom:
	case __NR_recvmsg:
	case __NR_recvmmsg:
	case __NR_read:
	case __NR_readv:
	case __NR_poll:
	case __NR_ppoll:
	case __NR_select:
	case __NR_pselect6:
	case __NR_epoll_wait:
	case __NR_epoll_pwait:
	case __NR_io_uring_enter:
#ifdef __NR_epoll_pwait2
	case __NR_epoll_pwait2:
#endif
		return true;
	default:
		return false;
	}
}

/**
 * ps_worker_waits() - does a thread sleep waiting for work?
 * @worker: its number in the first pid namespace, 0: not known
 *
 * Context: any, RCU.
 */
bool ps_worker_waits(u32 worker)
{
	struct task_struct *task;

	if (!worker)
		return false;
	task = pid_task(find_pid_ns(worker, &init_pid_ns), PIDTYPE_PID);
	return task && ps_task_sleeps(task) &&
	       ps_waits_in(ps_task_syscall(task));
}

/* The current task is about to take something from a member. RCU. */
static void notrace ps_member_ran(struct ps_member *m)
{
	const struct ps_policy *policy;
	struct ps_group *g;
	int cpu = raw_smp_processor_id();

	WRITE_ONCE(m->awake, ktime_get_mono_fast_ns());
	if (READ_ONCE(m->worker) != task_pid_nr(current))
		WRITE_ONCE(m->worker, task_pid_nr(current));
	if (READ_ONCE(m->ran_on) == cpu)
		return;
	WRITE_ONCE(m->ran_on, cpu);
	g = rcu_dereference(m->group);
	if (!g || READ_ONCE(m->cpu) >= 0)
		return;
	policy = rcu_dereference(g->policy);
	if (!policy->by_cpu)
		return;
	/*
	 * Orders the change before the version that it makes: pairs with
	 * atomic_read_acquire() in ps_index_traits().
	 */
	smp_mb__before_atomic();
	atomic_inc(&g->version);
	ps_group_drifted(g);
}

static void notrace ps_observe_work(unsigned long ip, unsigned long parent_ip,
				    struct ftrace_ops *ops,
				    struct ps_fregs *fregs)
{
	const struct sock *sk = (const struct sock *)ps_fregs_arg(fregs, 0);
	struct ps_member *m;

	if (!test_bit(READ_ONCE(sk->sk_num), ps_ports(sk->sk_protocol)))
		return;
	rcu_read_lock();
	m = ps_member_find(sk);
	if (m)
		ps_member_ran(m);
	rcu_read_unlock();
}

PS_DEFINE_OBSERVED(inet_csk_accept);
PS_DEFINE_OBSERVED(__skb_recv_udp);

static struct ps_hook *const ps_work_hooks[] = {
	&ps_hook_inet_csk_accept,
	&ps_hook___skb_recv_udp,
};

struct ps_hook_set ps_hook_set_work = {
	.filter = ps_observe_work,
	.hooks = ps_work_hooks,
	.n = ARRAY_SIZE(ps_work_hooks),
	.observes = true,
};
