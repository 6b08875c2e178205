/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Charging memory to a cgroup that isn't the current task's. Process context
 * only: the kernel's own set_active_memcg() also knows interrupts, for which
 * 5.10 doesn't export what it takes.
 */
#ifndef PS_COMPAT_MEMCG_H
#define PS_COMPAT_MEMCG_H

#include <linux/memcontrol.h>
#include <linux/sched.h>

struct ps_memcg_scope {
	struct mem_cgroup *before;
};

static inline void ps_memcg_enter(struct ps_memcg_scope *scope,
				  struct mem_cgroup *memcg)
{
#ifdef CONFIG_MEMCG
	scope->before = current->active_memcg;
	current->active_memcg = memcg;
#endif
}

static inline void ps_memcg_exit(struct ps_memcg_scope *scope)
{
#ifdef CONFIG_MEMCG
	current->active_memcg = scope->before;
#endif
}

#endif /* PS_COMPAT_MEMCG_H */
