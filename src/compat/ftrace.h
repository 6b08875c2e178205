/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The registers an ftrace callback sees, and the flags that let it change them.
 */
#ifndef PS_COMPAT_FTRACE_H
#define PS_COMPAT_FTRACE_H

#include <linux/ftrace.h>
#include <linux/kernel.h>
#include <linux/ptrace.h>
#include <linux/string.h>

#ifndef CONFIG_X86_64
#error "portsteer knows the calling convention and the ftrace site of x86-64 only"
#endif

/*
 * Does @insn, of MCOUNT_INSN_SIZE bytes, look like a function's ftrace site? A
 * call while somebody traces it, a breakpoint while that is being changed, else
 * a nop, of which older kernels (before 5.13) have one for some AMD processors
 * and one for all others.
 */
static inline bool ps_ftrace_site(const u8 *insn)
{
	static const u8 nops[][MCOUNT_INSN_SIZE] = {
		{ 0x0f, 0x1f, 0x44, 0x00, 0x00 },
		{ 0x66, 0x66, 0x66, 0x66, 0x90 },
	};
	unsigned int i;

	if (insn[0] == 0xe8 || insn[0] == 0xcc)
		return true;
	for (i = 0; i < ARRAY_SIZE(nops); i++)
		if (!memcmp(insn, nops[i], MCOUNT_INSN_SIZE))
			return true;
	return false;
}

#ifdef PS_HAVE_FTRACE_REGS
#define ps_fregs ftrace_regs
#else
#define ps_fregs pt_regs
#endif

/* 5.10 can only move the instruction pointer when all registers are saved. */
#ifdef CONFIG_DYNAMIC_FTRACE_WITH_ARGS
#define PS_FTRACE_REGS_FLAG 0
#else
#define PS_FTRACE_REGS_FLAG FTRACE_OPS_FL_SAVE_REGS
#endif

/* Our callbacks are safe when nested. Until 5.11 that had to be said. */
#ifdef PS_HAVE_FTRACE_RECURSION_SAFE
#define PS_FTRACE_RECURSION_FLAG FTRACE_OPS_FL_RECURSION_SAFE
#else
#define PS_FTRACE_RECURSION_FLAG 0
#endif

/* PERMANENT: kernel.ftrace_enabled=0 would quietly take the hooks away. */
#define PS_FTRACE_OBSERVE_FLAGS (FTRACE_OPS_FL_PERMANENT |		\
				 PS_FTRACE_REGS_FLAG | PS_FTRACE_RECURSION_FLAG)
#define PS_FTRACE_FLAGS (FTRACE_OPS_FL_IPMODIFY | PS_FTRACE_OBSERVE_FLAGS)

static __always_inline struct pt_regs *ps_pt_regs(struct ps_fregs *fregs)
{
#if defined(arch_ftrace_regs)
	return &arch_ftrace_regs(fregs)->regs;
#elif defined(PS_HAVE_FTRACE_REGS)
	return &fregs->regs;
#else
	return fregs;
#endif
}

static __always_inline void ps_fregs_redirect(struct ps_fregs *fregs, void *to)
{
	ps_pt_regs(fregs)->ip = (unsigned long)to;
}

/*
 * Argument @n, counted from 0, of the function whose entry is being traced.
 * The first six are in registers, the others on the stack above the return
 * address, which is where the stack pointer is at a function's entry.
 */
static __always_inline unsigned long ps_fregs_arg(struct ps_fregs *fregs,
						  unsigned int n)
{
	struct pt_regs *regs = ps_pt_regs(fregs);

	switch (n) {
	case 0:
		return regs->di;
	case 1:
		return regs->si;
	case 2:
		return regs->dx;
	case 3:
		return regs->cx;
	case 4:
		return regs->r8;
	case 5:
		return regs->r9;
	default:
		return ((unsigned long *)regs->sp)[n - 5];
	}
}

#endif /* PS_COMPAT_FTRACE_H */
