/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Replaces kernel functions through ftrace. Knows nothing of sockets.
 *
 * A hooked function is redirected by an ftrace callback (its set's @filter)
 * that runs at its entry, with the caller's locks and in the caller's context.
 * The callback either leaves the registers alone, and the kernel's function
 * runs as if nobody had looked, or sends the call to the hook's @handler, which
 * has the kernel function's own signature. A handler reaches the kernel's
 * function by ps_original(), a direct call of the instruction behind the ftrace
 * site: it does not go through ftrace a second time, so it can't come back to
 * us, and other tracers of the function see each call once.
 */
#ifndef PS_HOOK_H
#define PS_HOOK_H

#include <linux/ftrace.h>
#include <linux/percpu.h>
#include <linux/static_call.h>

#include "compat/ftrace.h"

struct ps_hook {
	const char *name;
	void *handler;
	void (*set_original)(void *body);
	unsigned long site;	/* of the call to ftrace */
};

/*
 * Hooks that share a callback, and so an ftrace_ops: each of those costs a few
 * grace periods when it goes.
 */
struct ps_hook_set {
	ftrace_func_t filter;
	struct ps_hook *const *hooks;
	unsigned int n;
	bool on_demand;		/* armed by ps_hook_set_demand() only */
	bool observes;		/* its filter never redirects */
	struct ftrace_ops ops;
	bool registered;
};

/*
 * Defines ps_hook_<fn>, whose calls go to hook_<fn>() when its set's filter
 * says so. hook_<fn>() has to have the signature that the kernel's headers
 * declare.
 */
#define PS_DEFINE_HOOK(fn)						\
	DEFINE_STATIC_CALL_NULL(ps_original_##fn, fn);			\
	static void ps_set_original_##fn(void *body)			\
	{								\
		static_assert(__same_type(typeof(fn), hook_##fn));		\
		static_call_update(ps_original_##fn,			\
				   (typeof(fn) *)body);		\
	}								\
	struct ps_hook ps_hook_##fn = {					\
		.name = #fn,						\
		.handler = hook_##fn,					\
		.set_original = ps_set_original_##fn,			\
	}

/*
 * Defines ps_hook_<fn>, whose calls are only looked at, by the filter of its
 * set.
 */
#define PS_DEFINE_OBSERVED(fn)						\
	static struct ps_hook ps_hook_##fn = { .name = #fn }

/* To stand before the handler, which calls the original by it. */
#define PS_DECLARE_ORIGINAL(fn) DECLARE_STATIC_CALL(ps_original_##fn, fn)
#define ps_original(fn) static_call(ps_original_##fn)

/*
 * Defines ps_callee_<fn>, a kernel function that is only called, by ps_call(),
 * because it isn't exported by every kernel. To be resolved by
 * ps_hook_resolve() before.
 */
#define PS_DEFINE_CALL(fn)						\
	DEFINE_STATIC_CALL_NULL(ps_original_##fn, fn);			\
	static void ps_set_original_##fn(void *body)			\
	{								\
		static_call_update(ps_original_##fn, (typeof(fn) *)body); \
	}								\
	struct ps_hook ps_callee_##fn = {				\
		.name = #fn,						\
		.set_original = ps_set_original_##fn,			\
	}
#define ps_call(fn) ps_original(fn)

DECLARE_PER_CPU(long, ps_hook_inside);

/*
 * Every handler that may sleep, or whose caller need not be in an RCU read
 * section, stands between these two: unloading waits until all are out.
 */
static inline void ps_hook_enter(void)
{
	this_cpu_inc(ps_hook_inside);
}

static inline void ps_hook_exit(void)
{
	this_cpu_dec(ps_hook_inside);
}

void ps_hook_always(unsigned long ip, unsigned long parent_ip,
		    struct ftrace_ops *ops, struct ps_fregs *fregs);

int ps_hook_resolve(struct ps_hook *hook);
int ps_hooks_init(struct ps_hook_set *const *sets, unsigned int n);
void ps_hooks_exit(void);
void ps_hooks_done(void);

int ps_hook_set_demand(struct ps_hook_set *set);

int ps_hooks_get(void);
bool ps_hooks_get_armed(void);
void ps_hooks_put(void);

#endif /* PS_HOOK_H */
