// SPDX-License-Identifier: GPL-2.0
/*
 * portsteer: which socket of a port gets the next connection or datagram.
 */
#include <linux/module.h>

#include "flow.h"
#include "group.h"
#include "hooks.h"
#include "net.h"
#include "peer.h"
#include "policy.h"
#include "sockopt.h"

static struct ps_hook *const ps_control_hooks[] = {
	&ps_hook_inet_release,
	&ps_hook_inet_shutdown,
#ifdef PS_HAVE_MIGRATE
	&ps_hook_reuseport_migrate_sock,
#endif
	&ps_hook_reuseport_detach_sock,
#ifdef PS_HAVE_STOP_LISTEN
	&ps_hook_reuseport_stop_listen_sock,
#endif
	&ps_hook_reuseport_has_conns_set,
	&ps_hook_udp_disconnect,
	&ps_hook_udp_abort,
	&ps_hook_inet_csk_get_port,
	&ps_hook_udp_lib_get_port,
};

static struct ps_hook_set ps_hook_set_control = {
	.filter = ps_hook_always,
	.hooks = ps_control_hooks,
	.n = ARRAY_SIZE(ps_control_hooks),
};

static struct ps_hook_set *const ps_all_hooks[] = {
	&ps_hook_set_control,
	&ps_hook_set_select,
	&ps_hook_set_work,
#ifdef PS_HAVE_MIGRATE
	&ps_hook_set_migrate,
#endif
	&ps_hook_set_udp,
};

/*
 * The hooks are armed once while they are initialised, on a machine whose
 * sockets are busy: all that their handlers use has to be there before.
 */
static int __init ps_init(void)
{
	int err;

	ps_hash_init();
	ps_random_init();
	ps_flow_init();
	ps_groups_init();
	err = ps_settle_init();
	if (err)
		return err;
	err = ps_peers_init();
	if (err)
		goto settle;
	err = ps_members_init();
	if (err)
		goto peers;
	err = ps_sysfs_init();
	if (err)
		goto members;
	err = ps_net_init();
	if (err)
		goto sysfs;
	err = ps_hook_resolve(&ps_callee_inet_put_port);
	if (err)
		goto net;
	err = ps_hooks_init(ps_all_hooks, ARRAY_SIZE(ps_all_hooks));
	if (err)
		goto net;
	err = ps_sockopt_init();
	if (err)
		goto hooks;
	return 0;

hooks:
	ps_hooks_exit();
	ps_udp_conns_exit();
net:
	ps_net_exit();
sysfs:
	ps_sysfs_exit();
members:
	ps_members_forget();
	ps_hooks_done();
	ps_settle_exit();
	ps_members_exit();
	ps_peers_exit();
	return err;
peers:
	ps_peers_exit();
settle:
	ps_settle_exit();
	return err;
}

/*
 * Programs first, then the hooks: after that no socket and no packet comes in,
 * and what is in the table can be taken down.
 */
static void __exit ps_exit(void)
{
	ps_sockopt_exit();
	ps_peers_stop();
	ps_hooks_exit();
	ps_udp_conns_exit();
	ps_net_exit();
	ps_sysfs_exit();
	ps_members_forget();
	ps_hooks_done();
	ps_settle_exit();
	ps_members_exit();
	ps_peers_exit();
}

module_init(ps_init);
module_exit(ps_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Chooses which socket of a port gets the next connection or datagram");
MODULE_VERSION(PS_VERSION);
