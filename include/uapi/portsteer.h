/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * portsteer: private socket options, all that a program sees of the module.
 *
 * Level: IPPROTO_IP on AF_INET sockets, IPPROTO_IPV6 on AF_INET6 sockets.
 * ENOPROTOOPT there means that the module is not loaded. An option that this
 * version of the module knows by number but does not serve gives EOPNOTSUPP.
 *
 * Before a socket is bound every option is a wish: kept, readable, and applied
 * when the socket joins its port's group.
 */
#ifndef _UAPI_PORTSTEER_H
#define _UAPI_PORTSTEER_H

#include <linux/types.h>

#define PORTSTEER_JOIN			20563	/* int 0/1 */
#define PORTSTEER_POLICY		20564	/* string, the group's policy */
#define PORTSTEER_WEIGHT		20565	/* int 1..65535 */
#define PORTSTEER_CPU			20566	/* int, -1: learned */
#define PORTSTEER_STATE			20567	/* int, enum portsteer_state */
#define PORTSTEER_ID			20568	/* int 0..65535, unique in the group */
#define PORTSTEER_GENERATION		20569	/* int >= 0 */
#define PORTSTEER_WORKING_GENERATION	20570	/* int, -1: all; the group's */
#define PORTSTEER_KEY			20571	/* 1..32 bytes, never readable */
#define PORTSTEER_INFO			20572	/* get: struct portsteer_info */
#define PORTSTEER_VERSION		20573	/* get: int, PORTSTEER_ABI_VERSION */
#define PORTSTEER_RX_QUEUE		20574	/* int, -1: by order */
#define PORTSTEER_AFFINITY		20575	/* int seconds, 0: off; the group's */

#define PORTSTEER_ABI_VERSION		1
#define PORTSTEER_POLICY_LEN		16	/* with the closing NUL */
#define PORTSTEER_MAX_ID		65535
#define PORTSTEER_MAX_WEIGHT		65535
#define PORTSTEER_KEY_LEN		32

enum portsteer_state {
	PORTSTEER_ACTIVE,
	PORTSTEER_STANDBY,	/* picked only while no member is active */
	PORTSTEER_DRAINING,	/* no new connection or flow */
};

/* Grows at its end only: read as many bytes as getsockopt() says it filled. */
struct portsteer_info {
	__u32 size;		/* of the structure the module knows */
	__u32 id;
	__u32 state;		/* enum portsteer_state */
	__u32 weight;
	__s32 cpu;		/* in force: set or learned, -1: neither */
	__s32 rx_queue;
	__u32 generation;
	__s32 working_generation;	/* the group's, -1: all */
	__u32 members;		/* in the group */
	__u32 selectable;	/* of them, could be picked now */
	char policy[PORTSTEER_POLICY_LEN];
	__u64 picked;		/* by a policy, for this member */
	__u64 migrated_in;
	__u64 migrated_out;
	__u64 fallbacks;	/* the group's: the kernel's own choice stood */
};

#endif /* _UAPI_PORTSTEER_H */
