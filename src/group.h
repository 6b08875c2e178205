/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The table: sockets that portsteer knows (members), and the groups they form.
 *
 * Readers are packets: RCU, no locks. Writers hold ps_lock. It is taken inside
 * the socket lock and inside the kernel's listener and UDP hash bucket locks;
 * nothing of the kernel's hash tables is touched under it.
 */
#ifndef PS_GROUP_H
#define PS_GROUP_H

#include <linux/atomic.h>
#include <linux/in6.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/rhashtable.h>
#include <linux/spinlock.h>
#include <linux/uidgid.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/sock.h>
#include <net/tcp_states.h>

#include "policy.h"
#include "secret.h"
#include "set.h"

extern spinlock_t ps_lock;

/* What the kernel groups: sockets alike in all of this share a port. */
struct ps_key {
	struct net *net;	/* kept alive by the members' sockets */
	struct in6_addr addr;	/* IPv4: in s6_addr32[0], the others 0 */
	int dev;		/* bound device, 0: none */
	kuid_t uid;
	u16 port;		/* host order */
	u16 family;
	u8 proto;
	u8 v6only;
};

struct mem_cgroup;
struct ps_flow_table;
struct ps_group_dir;
struct ps_index;
struct ps_member_dir;
struct ps_peer;

struct ps_group {
	/* Read by every packet. */
	const struct ps_policy __rcu *policy;
	struct ps_set __rcu *set;
	struct ps_index __rcu *index;	/* may be NULL or out of date */
	struct ps_flow_table __rcu *flows;	/* NULL: no affinity */
	atomic_t version;		/* of what an index depends on */
	u32 candidates;			/* members in the kernel's own group */
	struct ps_key key;
	bool explicit_policy;	/* chosen by a member or a rule */
	bool conns;		/* has, or had, connect()ed UDP sockets */
	u16 quic;		/* PS_QUIC(), see policy/quic.h */
	struct xarray handles;	/* members, by the handle of ps_member */

	/* Written by packets. */
	atomic_t turn ____cacheline_aligned_in_smp;
	u32 warm;		/* who was picked last, by place; see idle.c */
	atomic64_t fallbacks;
	atomic64_t migrated;
	atomic64_t migrate_failed;
	atomic64_t flows_full;	/* datagrams whose flow couldn't be kept */
	/* Since a listener last began to leave; see migrate.c. */
	u32 epoch;
	u32 moved;

	/* Written under ps_lock. */
	bool locked;		/* programs can't change the group */
	bool keep_queue;	/* !migrate: what a leaving member has queued */
	s32 working_generation;	/* -1: all */
	u32 affinity;		/* seconds */
	u32 next_handle;
	struct ps_secret secret;
	u64 picked_gone;	/* by members that have left */
	u32 members;
	u32 twin;		/* 2, 3...: the name is taken by others; 1: not */
	struct xarray ids;	/* of members, by id; marks: see sysfs_sync.c */
	struct ps_group_dir *dir;	/* in sysfs, or NULL */
	struct list_head dirs_gone;	/* of members that have left */
	struct hlist_node port_node;	/* RCU */
	struct hlist_node anywhere_node;
	struct list_head net_node;	/* RCU; by @serial */
	u64 serial;
	struct rcu_head rcu;

	refcount_t refs;
	struct mem_cgroup *memcg;	/* to charge, or NULL */
	struct delayed_work settle;	/* see settle.c */
	struct mutex flows_mutex;	/* for who replaces the table */
	u32 flow_room;			/* under it: of a table, if there is one */
	struct task_struct *waiter;	/* only ever compared */
};

#define PS_NO_ID U32_MAX

/* Which settings of a socket are of its program's making. */
enum ps_wish {
	PS_WISH_WEIGHT = BIT(0),
	PS_WISH_CPU = BIT(1),
	PS_WISH_RX_QUEUE = BIT(2),
	PS_WISH_STATE = BIT(3),
	PS_WISH_GENERATION = BIT(4),
	PS_WISH_WORKING_GENERATION = BIT(5),
	PS_WISH_AFFINITY = BIT(6),
};

/*
 * A socket that portsteer knows: a member of a group, or one that only has
 * wishes (@group is NULL). Holds a reference to the socket until a grace period
 * after it has gone from the table, so that @sk is good for every reader, and
 * would be even if a leave were missed.
 */
struct ps_member {
	struct sock *sk;
	struct ps_group __rcu *group;
	struct rhash_head node;
	atomic64_t picked;	/* a listener's own lock is hotter than this */
	atomic64_t migrated_in;
	atomic64_t migrated_out;
	u32 epoch;		/* of the group's, that @moved counts in */
	u32 moved;		/* what it was given of that */

	/* Read by policies, written under ps_lock. */
	u32 id;			/* while in a group */
	u32 handle;		/* of a UDP member: never another's in the group */
	u32 weight;
	u32 generation;
	s32 cpu;		/* set, or -1 */
	s32 rx_queue;		/* set, or -1 */
	u8 state;		/* enum portsteer_state */

	/* Read by policies, written by whoever accepts or receives. */
	s32 ran_on;		/* the CPU it last did on, -1: not yet */
	u32 worker;		/* its thread's id (global), 0: not known */
	u64 awake;		/* when it last did, local_clock() */

	/* Written under ps_lock, read by packets. */
	bool candidate;		/* is in the kernel's own group */
	bool joining;		/* being bound to join; under the socket lock */

	/* Under ps_lock. */
	u8 rank;		/* enum ps_rank, in the group's set */
	bool wish_join;
	bool gave_reuseport;	/* SO_REUSEPORT is of our making */
	bool by_rule;
	bool left;		/* by JOIN 0: not a rule's until bind(), listen() */
	bool busy;		/* an option is being set: not idle */
	u32 wishes;		/* enum ps_wish */
	u32 wish_id;		/* or PS_NO_ID */
	s32 wish_working_generation;
	u32 wish_affinity;
	const struct ps_policy *wish_policy;	/* or NULL */
	struct ps_secret secret;	/* wished, and shown at joining */
	struct ps_member_dir *dir;	/* in sysfs, or NULL */
	struct ps_peer *peer;		/* see peer.c, or NULL */

	/* Of a listener that is closed, see gone.c. */
	bool gone;
	struct ps_group *home;	/* the group it was in; holds a reference */
	struct list_head gone_node;
	struct rcu_head rcu;
};

/* Why and how a socket joins. */
struct ps_join {
	bool bound_before;	/* JOIN of a bound socket: check its uid */
	bool by_rule;
	/* The rule's, if there is one. */
	const struct ps_policy *policy;
	bool lock;
	bool keep_queue;
	bool sets_affinity;
	u32 affinity;
	u16 quic;	/* PS_QUIC_PLACE(), or 0 */
};

/* member.c */
struct ps_member *ps_member_get(struct sock *sk, gfp_t gfp);
void ps_member_unlink(struct ps_member *m);
void ps_member_drop(struct sock *sk);
void ps_member_drop_all(const struct net *net);
void ps_member_drop_if_idle(struct ps_member *m);
void ps_member_rule_gone(const struct net *net, u8 proto, u16 port);
void ps_member_reset(struct ps_member *m);
u32 ps_member_backlog(const struct ps_member *m);
int ps_members_init(void);
void ps_members_forget(void);
void ps_members_exit(void);

/* group.c */
void ps_groups_init(void);
void ps_key_of(struct ps_key *key, const struct sock *sk);
bool ps_key_overlaps(const struct ps_key *a, const struct ps_key *b);
int ps_group_join(struct sock *sk, const struct ps_join *how, gfp_t gfp);
void ps_group_leave(struct ps_member *m);
bool ps_group_excludes(const struct ps_key *key,
		       const struct ps_secret *secret);
bool ps_group_fits(const struct ps_member *m);
void ps_group_select(struct ps_member *m);
void ps_group_unselect(struct ps_member *m);
void ps_group_count(struct ps_group *g, int more);
void ps_group_put(struct ps_group *g);
struct ps_group *ps_group_find_rcu(const struct ps_key *key);
void ps_group_for_port(const struct net *net, u8 proto, u16 port,
		       void (*fn)(struct ps_group *g, const void *arg),
		       const void *arg);
void ps_group_release_rule(const struct net *net, u8 proto, u16 port);
void ps_groups_outdate(void);
u32 ps_group_selectable(const struct ps_group *g);
u64 ps_group_picked(struct ps_group *g);

/* settle.c */
void ps_settle_start(struct ps_group *g);
void ps_group_changed(struct ps_group *g);
void ps_group_drifted(struct ps_group *g);
int ps_settle_init(void);
void ps_settle_flush(void);
void ps_settle_exit(void);

/* The CPU that a member serves: set, or where it ran; -1: not known. */
static inline s32 ps_member_cpu(const struct ps_member *m)
{
	s32 cpu = READ_ONCE(m->cpu);

	return cpu >= 0 ? cpu : READ_ONCE(m->ran_on);
}

static inline bool ps_group_get(struct ps_group *g)
{
	return refcount_inc_not_zero(&g->refs);
}

/* The group @m is in; for writers. */
static inline struct ps_group *ps_member_group(const struct ps_member *m)
{
	return rcu_dereference_protected(m->group, lockdep_is_held(&ps_lock));
}

/**
 * ps_member_usable() - can the socket take what @g's policy gives it?
 * @m: a member
 * @g: its group
 *
 * What may have changed without our being told: a TCP member that doesn't
 * listen (any more) or isn't hashed yet, a UDP member that was connect()ed or
 * unbound, a socket that was bound to another device after bind().
 *
 * Context: any, RCU.
 */
static inline bool ps_member_usable(const struct ps_member *m,
				    const struct ps_group *g)
{
	const struct sock *sk = m->sk;
	int state = READ_ONCE(sk->sk_state);

	if (g->key.proto == IPPROTO_TCP ? state != TCP_LISTEN :
					  state == TCP_ESTABLISHED)
		return false;
	return !hlist_unhashed_lockless(&sk->sk_node) &&
	       READ_ONCE(sk->sk_bound_dev_if) == g->key.dev &&
	       READ_ONCE(sk->sk_num) == g->key.port;
}

/* ports.c: which ports have a group, for the callbacks of the lookups */
extern unsigned long ps_ports_tcp[];
extern unsigned long ps_ports_udp[];

static inline unsigned long *ps_ports(u8 proto)
{
	return proto == IPPROTO_TCP ? ps_ports_tcp : ps_ports_udp;
}

#endif /* PS_GROUP_H */
