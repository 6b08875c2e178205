/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What another task is doing.
 */
#ifndef PS_COMPAT_TASK_H
#define PS_COMPAT_TASK_H

#include <linux/sched.h>
#include <linux/sched/task_stack.h>
#include <linux/uaccess.h>
#include <asm/ptrace.h>
#include <asm/thread_info.h>

static inline bool ps_task_sleeps(const struct task_struct *task)
{
#ifdef PS_TASK_STATE
	return READ_ONCE(task->__state) & TASK_INTERRUPTIBLE;
#else
	return READ_ONCE(task->state) & TASK_INTERRUPTIBLE;
#endif
}

/*
 * The number of the system call that a sleeping task is in, -1: not known. Its
 * stack may go at any time: what is read then is of no use, but does no harm.
 */
static inline long ps_task_syscall(struct task_struct *task)
{
	unsigned long nr;

	if (READ_ONCE(task_thread_info(task)->status) & TS_COMPAT)
		return -1;
	if (copy_from_kernel_nofault(&nr, &task_pt_regs(task)->orig_ax,
				     sizeof(nr)))
		return -1;
	return nr;
}

#endif /* PS_COMPAT_TASK_H */
