/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The hooked functions, and where what they do for us is written.
 */
#ifndef PS_HOOKS_H
#define PS_HOOKS_H

#include <linux/percpu-defs.h>

#include "hook.h"

/* lookup.c: the packet path */
extern struct ps_hook ps_hook_reuseport_select_sock;
extern struct ps_hook_set ps_hook_set_select;

/* udp_conns.c: the packet path of UDP groups with connect()ed members */
extern struct ps_hook ps_hook___udp4_lib_lookup;
#if IS_ENABLED(CONFIG_IPV6)
extern struct ps_hook ps_hook___udp6_lib_lookup;
#endif
extern struct ps_hook_set ps_hook_set_udp;
extern struct ps_hook ps_hook_reuseport_has_conns_set;
extern struct ps_hook ps_hook_udp_disconnect;
extern struct ps_hook ps_hook_udp_abort;

/* Packets that a BPF program of a kernel's group has dropped, on this CPU. */
DECLARE_PER_CPU(unsigned int, ps_udp_refusals);

struct ps_group;

void ps_udp_conns_seen(struct ps_group *g);
void ps_udp_conns_exit(void);

static inline bool ps_udp_conns_armed(void)
{
	return READ_ONCE(ps_hook_set_udp.registered);
}

/* worker.c: accept() and recv() */
extern struct ps_hook_set ps_hook_set_work;

/* bind.c: bind() and listen() */
extern struct ps_hook ps_callee_inet_put_port;
extern struct ps_hook ps_hook_inet_csk_get_port;
extern struct ps_hook ps_hook_udp_lib_get_port;

/* leave.c: close(), shutdown(), connect() of a UDP socket */
extern struct ps_hook ps_hook_inet_release;
extern struct ps_hook ps_hook_inet_shutdown;
extern struct ps_hook ps_hook_reuseport_detach_sock;
#ifdef PS_HAVE_STOP_LISTEN
extern struct ps_hook ps_hook_reuseport_stop_listen_sock;
#endif

/* migrate.c: what a leaving listener has, elsewhere */
#ifdef PS_HAVE_MIGRATE
extern struct ps_hook ps_hook_reuseport_migrate_sock;
extern struct ps_hook ps_hook_inet_csk_complete_hashdance;
extern struct ps_hook_set ps_hook_set_migrate;
#endif

#endif /* PS_HOOKS_H */
