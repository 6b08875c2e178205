// SPDX-License-Identifier: GPL-2.0
/*
 * Groups: who is in one, and which of them are selectable.
 */
#include <linux/bitmap.h>
#include <linux/hashtable.h>
#include <linux/jhash.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <net/ipv6.h>
#include <net/netns/hash.h>
#include <net/tcp.h>

#include "flow.h"
#include "group.h"
#include "member_table.h"
#include "net.h"
#include "peer.h"
#include "policy/quic.h"
#include "rank.h"
#include "sysfs.h"
#include "trace.h"

DEFINE_SPINLOCK(ps_lock);

/*
 * By namespace and port, so that lookup and "twins" are one walk. Keyed, since
 * packets walk it, too: whoever has many groups must not lengthen the walk of
 * other ports, or of other namespaces.
 */
static DEFINE_HASHTABLE(ps_groups, 10);
static u32 ps_groups_seed __read_mostly;
/* By port alone, to see whether any is left. Under ps_lock. */
static DEFINE_HASHTABLE(ps_groups_anywhere, 10);

#define PS_SET_MIN 4

/* Numbers of groups of one name that are looked at in one go. */
#define PS_TWINS 1024

/* Members that a rule's end lets go of before others get their turn. */
#define PS_RELEASE_BATCH 16

/* At load. Context: process. */
void ps_groups_init(void)
{
	get_random_bytes(&ps_groups_seed, sizeof(ps_groups_seed));
}

static u32 ps_port_key(const struct net *net, u8 proto, u16 port)
{
	return jhash_2words((u32)(proto == IPPROTO_UDP) << 16 | port,
			    net_hash_mix(net), ps_groups_seed);
}

static u32 ps_port_key_of(const struct ps_key *key)
{
	return ps_port_key(key->net, key->proto, key->port);
}

static u32 ps_port_key_anywhere(u8 proto, u16 port)
{
	return jhash_1word((u32)(proto == IPPROTO_UDP) << 16 | port,
			   ps_groups_seed);
}

/**
 * ps_key_of() - what the kernel groups a bound socket by
 * @key: filled
 * @sk: bound, or being bound; its lock is held
 *
 * Context: any.
 */
void ps_key_of(struct ps_key *key, const struct sock *sk)
{
	memset(key, 0, sizeof(*key));
	key->net = sock_net(sk);
	key->dev = READ_ONCE(sk->sk_bound_dev_if);
	key->uid = sk->sk_uid;
	key->port = READ_ONCE(sk->sk_num);
	key->family = sk->sk_family;
	key->proto = sk->sk_protocol;
#if IS_ENABLED(CONFIG_IPV6)
	if (sk->sk_family == AF_INET6) {
		key->v6only = ipv6_only_sock(sk);
		key->addr = sk->sk_v6_rcv_saddr;
		return;
	}
#endif
	key->addr.s6_addr32[0] = (__force __be32)sk->sk_rcv_saddr;
}

/* Alike in all that a group's name shows. */
static bool ps_key_same_name(const struct ps_key *a, const struct ps_key *b)
{
	return a->net == b->net && a->proto == b->proto &&
	       a->family == b->family && a->port == b->port &&
	       a->dev == b->dev && ipv6_addr_equal(&a->addr, &b->addr);
}

static bool ps_key_equal(const struct ps_key *a, const struct ps_key *b)
{
	return ps_key_same_name(a, b) && a->v6only == b->v6only &&
	       uid_eq(a->uid, b->uid);
}

/* Of an IPv4 socket, or of an IPv6 one that is bound to an address of IPv4. */
static bool ps_key_is_v4(const struct ps_key *key)
{
	return key->family == AF_INET || ipv6_addr_v4mapped(&key->addr);
}

static __be32 ps_key_v4(const struct ps_key *key)
{
	return (__force __be32)key->addr.s6_addr32[key->family == AF_INET ?
						   0 : 3];
}

/**
 * ps_key_overlaps() - could a packet be for sockets of both?
 * @a: one
 * @b: the other
 *
 * By the kernel's own rules, see inet_rcv_saddr_equal().
 * Context: any.
 */
bool ps_key_overlaps(const struct ps_key *a, const struct ps_key *b)
{
	if (a->net != b->net || a->proto != b->proto || a->port != b->port ||
	    (a->dev && b->dev && a->dev != b->dev))
		return false;
	/* 0.0.0.0 can be written as ::ffff:0.0.0.0, too. */
	if (ps_key_is_v4(a) && ps_key_is_v4(b))
		return !ps_key_v4(a) || !ps_key_v4(b) ||
		       ps_key_v4(a) == ps_key_v4(b);
	if (ps_key_is_v4(a))
		return ipv6_addr_any(&b->addr) && !b->v6only;
	if (ps_key_is_v4(b))
		return ipv6_addr_any(&a->addr) && !a->v6only;
	return ipv6_addr_any(&a->addr) || ipv6_addr_any(&b->addr) ||
	       ipv6_addr_equal(&a->addr, &b->addr);
}

/**
 * ps_group_excludes() - is there a group that a socket must not share with?
 * @key: the socket's
 * @secret: what it knows
 *
 * Context: any, under ps_lock.
 * Return: true if a group that overlaps has another key, or one and not the
 * other has any.
 */
bool ps_group_excludes(const struct ps_key *key, const struct ps_secret *secret)
{
	struct ps_group *g;

	lockdep_assert_held(&ps_lock);
	hash_for_each_possible(ps_groups, g, port_node,
			       ps_port_key_of(key))
		if (ps_key_overlaps(&g->key, key) &&
		    !ps_secret_equal(&g->secret, secret))
			return true;
	return false;
}

/* A key is for who joins by its own wish: a rule's sockets have none. */
static const struct ps_secret *ps_member_secret(const struct ps_member *m)
{
	static const struct ps_secret none;

	return m->wish_join ? &m->secret : &none;
}

static struct ps_group *ps_group_find(const struct ps_key *key)
{
	struct ps_group *g;

	lockdep_assert_held(&ps_lock);
	hash_for_each_possible(ps_groups, g, port_node,
			       ps_port_key_of(key))
		if (ps_key_equal(&g->key, key))
			return g;
	return NULL;
}

/**
 * ps_group_find_rcu() - the group of sockets like that
 * @key: what they have in common
 *
 * Context: any, RCU.
 */
struct ps_group *ps_group_find_rcu(const struct ps_key *key)
{
	struct ps_group *g;

	hash_for_each_possible_rcu(ps_groups, g, port_node,
				   ps_port_key_of(key))
		if (ps_key_equal(&g->key, key))
			return g;
	return NULL;
}

static bool ps_group_of_other_uid(const struct ps_key *key)
{
	struct ps_group *g;

	lockdep_assert_held(&ps_lock);
	hash_for_each_possible(ps_groups, g, port_node,
			       ps_port_key_of(key))
		if (ps_key_same_name(&g->key, key) &&
		    g->key.v6only == key->v6only &&
		    !uid_eq(g->key.uid, key->uid))
			return true;
	return false;
}

/* The lowest number that no group of this name has: 1 if the name is free. */
static u32 ps_group_twin(const struct ps_key *key)
{
	DECLARE_BITMAP(taken, PS_TWINS);
	struct ps_group *g;
	u32 first, twin;

	for (first = 1;; first += PS_TWINS) {
		bitmap_zero(taken, PS_TWINS);
		hash_for_each_possible(ps_groups, g, port_node,
				       ps_port_key_of(key))
			if (ps_key_same_name(&g->key, key) &&
			    g->twin >= first && g->twin - first < PS_TWINS)
				__set_bit(g->twin - first, taken);
		twin = find_first_zero_bit(taken, PS_TWINS);
		if (twin < PS_TWINS)
			return first + twin;
	}
}

static struct ps_set *ps_group_set(const struct ps_group *g)
{
	return rcu_dereference_protected(g->set, lockdep_is_held(&ps_lock));
}

static struct ps_group *ps_group_alloc(gfp_t gfp)
{
	struct ps_group *g = kzalloc(sizeof(*g), gfp);
	struct ps_set *set;

	if (!g)
		return NULL;
	set = ps_set_alloc(PS_SET_MIN, gfp);
	if (!set) {
		kfree(g);
		return NULL;
	}
	RCU_INIT_POINTER(g->set, set);
	xa_init_flags(&g->ids, XA_FLAGS_ALLOC | XA_FLAGS_ACCOUNT);
	ps_flows_start(g);
	/* The first turn is the first member's. */
	atomic_set(&g->turn, -1);
	atomic64_set(&g->fallbacks, 0);
	atomic64_set(&g->migrated, 0);
	atomic64_set(&g->migrate_failed, 0);
	refcount_set(&g->refs, 1);
	g->memcg = get_mem_cgroup_from_mm(in_task() ? current->mm : NULL);
	ps_settle_start(g);
	ps_sysfs_start(g);
	return g;
}

static void ps_group_free(struct ps_group *g)
{
	xa_destroy(&g->ids);
	xa_destroy(&g->handles);
	kvfree(rcu_dereference_protected(g->set, 1));
	kvfree(rcu_dereference_protected(g->index, 1));
	ps_flows_end(g);
	mem_cgroup_put(g->memcg);
	kfree_sensitive(g);
}

static void ps_group_free_rcu(struct rcu_head *head)
{
	ps_group_free(container_of(head, struct ps_group, rcu));
}

/**
 * ps_group_put() - let go of a group
 * @g: the group, from ps_group_get()
 *
 * Context: any.
 */
void ps_group_put(struct ps_group *g)
{
	/* Packets may still be reading it. */
	if (refcount_dec_and_test(&g->refs))
		call_rcu(&g->rcu, ps_group_free_rcu);
}

/* All that a packet reads, before the first member points to the group. */
static void ps_group_setup(struct ps_group *g, const struct ps_key *key,
			   const struct ps_join *how,
			   const struct ps_member *founder)
{
	const struct ps_policy *policy = how->policy ?: founder->wish_policy;

	lockdep_assert_held(&ps_lock);
	g->key = *key;
	g->twin = ps_group_twin(key);
	g->explicit_policy = policy;
	RCU_INIT_POINTER(g->policy, policy ?: ps_policy_default());
	g->locked = how->lock;
	g->keep_queue = how->keep_queue;
	g->working_generation = -1;
	if (founder->wishes & PS_WISH_WORKING_GENERATION)
		g->working_generation = founder->wish_working_generation;
	if (founder->wishes & PS_WISH_AFFINITY)
		g->affinity = founder->wish_affinity;
	if (how->sets_affinity)
		g->affinity = how->affinity;
	g->quic = how->quic ?: PS_QUIC_DEFAULT;
	g->secret = *ps_member_secret(founder);
}

static void ps_group_publish(struct ps_group *g)
{
	static u64 serial;

	lockdep_assert_held(&ps_lock);
	g->serial = ++serial;
	hash_add_rcu(ps_groups, &g->port_node, ps_port_key_of(&g->key));
	hash_add(ps_groups_anywhere, &g->anywhere_node,
		 ps_port_key_anywhere(g->key.proto, g->key.port));
	list_add_tail_rcu(&g->net_node, &ps_net(g->key.net)->groups);
	set_bit(g->key.port, ps_ports(g->key.proto));
}

static void ps_group_disband(struct ps_group *g)
{
	struct ps_group *other;
	bool last = true;

	lockdep_assert_held(&ps_lock);
	hash_del_rcu(&g->port_node);
	hash_del(&g->anywhere_node);
	list_del_rcu(&g->net_node);
	hash_for_each_possible(ps_groups_anywhere, other, anywhere_node,
			       ps_port_key_anywhere(g->key.proto, g->key.port))
		if (other->key.proto == g->key.proto &&
		    other->key.port == g->key.port) {
			last = false;
			break;
		}
	if (last)
		clear_bit(g->key.port, ps_ports(g->key.proto));
	ps_group_changed(g);
	ps_group_put(g);
}

/**
 * ps_group_fits() - is a member's socket still what its group is made of?
 * @m: perhaps in no group
 *
 * Context: any, under ps_lock.
 */
bool ps_group_fits(const struct ps_member *m)
{
	const struct ps_group *g = ps_member_group(m);
	struct ps_key key;

	if (!g)
		return false;
	ps_key_of(&key, m->sk);
	return ps_key_equal(&g->key, &key);
}

/**
 * ps_group_count() - members join or leave the kernel's own group
 * @g: the group
 * @more: how many
 *
 * Context: any, under ps_lock.
 */
void ps_group_count(struct ps_group *g, int more)
{
	lockdep_assert_held(&ps_lock);
	WRITE_ONCE(g->candidates, g->candidates + more);
}

/**
 * ps_group_select() - a member listens, or takes datagrams of all peers
 * @m: in a group, perhaps a candidate already
 *
 * Context: any, under ps_lock. Can't fail: joining made the room.
 */
void ps_group_select(struct ps_member *m)
{
	struct ps_group *g = ps_member_group(m);

	lockdep_assert_held(&ps_lock);
	if (m->candidate)
		return;
	WRITE_ONCE(m->candidate, true);
	ps_group_count(g, 1);
	ps_group_place(m);
}

/**
 * ps_group_unselect() - a member doesn't (any more)
 * @m: in a group, perhaps no candidate
 *
 * Context: any, under ps_lock.
 */
void ps_group_unselect(struct ps_member *m)
{
	struct ps_group *g = ps_member_group(m);

	lockdep_assert_held(&ps_lock);
	if (!m->candidate)
		return;
	WRITE_ONCE(m->candidate, false);
	ps_group_count(g, -1);
	ps_group_place(m);
}

/* Puts the members into a larger array; readers go on with the old one. */
static void ps_group_grow(struct ps_group *g, struct ps_set *larger)
{
	struct ps_set *set = ps_group_set(g);

	ps_set_move(larger, set);
	/* Pairs with rcu_dereference() in lookup.c: filled before seen. */
	rcu_assign_pointer(g->set, larger);
	kvfree_rcu(set, rcu);
}

/*
 * What flows know a member by. Once round takes four thousand million members,
 * and a flow isn't a live one for as long as that.
 */
static int ps_handle_alloc(struct ps_group *g, struct ps_member *m, gfp_t gfp)
{
	int err;

	if (g->key.proto != IPPROTO_UDP)
		return 0;
	err = xa_alloc_cyclic(&g->handles, &m->handle, m,
			      XA_LIMIT(1, U32_MAX - 1), &g->next_handle, gfp);
	return err < 0 ? err : 0;
}

static int ps_group_enroll(struct ps_group *g, struct ps_member *m)
{
	gfp_t gfp = GFP_ATOMIC | __GFP_NOWARN;
	int err = -EBUSY;

	lockdep_assert_held(&ps_lock);
	if (m->wish_id != PS_NO_ID) {
		m->id = m->wish_id;
		err = xa_insert(&g->ids, m->id, m, gfp);
	}
	/* A wish that can't be had must not make bind() fail. */
	if (err == -EBUSY)
		err = xa_alloc(&g->ids, &m->id, m,
			       XA_LIMIT(0, PORTSTEER_MAX_ID), gfp);
	if (err)
		goto no_memory;
	if (ps_handle_alloc(g, m, gfp)) {
		xa_erase(&g->ids, m->id);
		goto no_memory;
	}
	ps_sysfs_enrolled(g, m);
	WRITE_ONCE(g->members, g->members + 1);
	/* Pairs with rcu_dereference() in lookup.c: the group is complete. */
	rcu_assign_pointer(m->group, g);
	trace_join(g, m);
	return 0;

no_memory:
	m->id = PS_NO_ID;
	return -ENOMEM;
}

static bool ps_sock_selectable(const struct sock *sk)
{
	if (sk->sk_protocol == IPPROTO_TCP)
		return sk->sk_state == TCP_LISTEN;
	return sk->sk_state != TCP_ESTABLISHED;
}

/**
 * ps_group_join() - make a bound socket a member of its port's group
 * @sk: known (ps_member_get()); its lock is held
 * @how: why, and what for
 * @gfp: for the allocations
 *
 * Founds the group if there is none. A socket that is in another group (it was
 * bound anew) leaves that first.
 *
 * Context: process; atomic if @gfp is.
 * Return: 0 (also for a member), -ENOENT if the socket isn't known (any more),
 * -EPERM if the group is another uid's, -EADDRINUSE if keys differ, -ENOMEM
 * (also: all ids taken). On error nothing has changed.
 */
int ps_group_join(struct sock *sk, const struct ps_join *how, gfp_t gfp)
{
	struct ps_group *fresh = NULL;
	struct ps_set *larger = NULL;
	struct ps_member *m;
	struct ps_group *g;
	struct ps_key key;
	u32 want = 0;
	int err;

	ps_key_of(&key, sk);
again:
	if (want) {
		kvfree(larger);
		larger = ps_set_alloc(want, gfp);
		if (!larger) {
			err = -ENOMEM;
			goto out;
		}
	}

	spin_lock_bh(&ps_lock);
	m = ps_member_find_locked(sk);
	/* One that is being closed has left for good. */
	if (!m || m->gone) {
		err = -ENOENT;
		goto unlock;
	}
	g = ps_member_group(m);
	if (g && !ps_key_equal(&g->key, &key)) {
		ps_group_leave(m);
		g = NULL;
	}
	if (g) {
		/* A rule brought it in, and now it comes with a key. */
		err = -EADDRINUSE;
		if (!ps_secret_equal(&g->secret, ps_member_secret(m)))
			goto unlock;
		goto joined;
	}

	/*
	 * Two listening TCP sockets of one address never differ in their uid:
	 * this one was given away after bind(). UDP sockets may (SO_REUSEADDR).
	 */
	if (how->bound_before && key.proto == IPPROTO_TCP &&
	    ps_group_of_other_uid(&key)) {
		err = -EPERM;
		goto unlock;
	}

	if (ps_group_excludes(&key, ps_member_secret(m))) {
		err = -EADDRINUSE;
		goto unlock;
	}

	g = ps_group_find(&key);
	if (!g) {
		if (!fresh) {
			spin_unlock_bh(&ps_lock);
			fresh = ps_group_alloc(gfp);
			if (fresh)
				goto again;
			err = -ENOMEM;
			goto out;
		}
		ps_group_setup(fresh, &key, how, m);
		err = ps_group_enroll(fresh, m);
		if (err)
			goto unlock;
		ps_group_publish(fresh);
		fresh = NULL;
		goto joined;
	}

	/* All ids are taken. */
	if (g->members > PORTSTEER_MAX_ID) {
		err = -ENOMEM;
		goto unlock;
	}
	/* There is room for every member, so that select can't fail. */
	if (g->members >= ps_group_set(g)->cap) {
		if (!larger || larger->cap <= g->members) {
			want = 2 * g->members;
			spin_unlock_bh(&ps_lock);
			goto again;
		}
		ps_group_grow(g, larger);
		larger = NULL;
	}
	err = ps_group_enroll(g, m);
	if (err)
		goto unlock;

joined:
	WRITE_ONCE(m->left, false);
	if (how->by_rule)
		m->by_rule = true;
	if (ps_sock_selectable(sk))
		ps_group_select(m);
	ps_group_changed(ps_member_group(m));
	err = 0;
unlock:
	spin_unlock_bh(&ps_lock);
out:
	kvfree(larger);
	if (fresh)
		ps_group_free(fresh);
	return err;
}

/**
 * ps_group_leave() - undo ps_group_join(); the last one disbands the group
 * @m: perhaps in no group
 *
 * Context: any, under ps_lock.
 */
void ps_group_leave(struct ps_member *m)
{
	struct ps_group *g = ps_member_group(m);

	lockdep_assert_held(&ps_lock);
	if (!g)
		return;
	trace_leave(g, m);
	ps_peer_release(m);
	ps_group_unselect(m);
	xa_erase(&g->ids, m->id);
	if (m->handle)
		xa_erase(&g->handles, m->handle);
	WRITE_ONCE(m->handle, 0);
	ps_sysfs_left(g, m);
	g->picked_gone += atomic64_xchg(&m->picked, 0);
	atomic64_set(&m->migrated_in, 0);
	atomic64_set(&m->migrated_out, 0);
	m->id = PS_NO_ID;
	m->by_rule = false;
	RCU_INIT_POINTER(m->group, NULL);
	WRITE_ONCE(g->members, g->members - 1);
	if (g->members)
		ps_group_changed(g);
	else
		ps_group_disband(g);
}

static bool ps_group_on_port(const struct ps_group *g, const struct net *net,
			     u8 proto, u16 port)
{
	return g->key.net == net && g->key.proto == proto &&
	       g->key.port == port;
}

/**
 * ps_group_for_port() - do something with the groups of a port
 * @net: namespace
 * @proto: IPPROTO_TCP or IPPROTO_UDP
 * @port: host order
 * @fn: called under ps_lock; must not disband the group
 * @arg: for it
 *
 * Context: process, without ps_lock.
 */
void ps_group_for_port(const struct net *net, u8 proto, u16 port,
		       void (*fn)(struct ps_group *g, const void *arg),
		       const void *arg)
{
	struct ps_group *g;

	spin_lock_bh(&ps_lock);
	hash_for_each_possible(ps_groups, g, port_node,
			       ps_port_key(net, proto, port))
		if (ps_group_on_port(g, net, proto, port))
			fn(g, arg);
	spin_unlock_bh(&ps_lock);
}

/**
 * ps_groups_outdate() - what all indexes are made of has changed
 *
 * Context: process, without ps_lock.
 */
void ps_groups_outdate(void)
{
	struct ps_group *g;
	int bucket;

	spin_lock_bh(&ps_lock);
	hash_for_each(ps_groups, bucket, g, port_node) {
		atomic_inc(&g->version);
		ps_group_changed(g);
	}
	spin_unlock_bh(&ps_lock);
}

/*
 * Lets go of members that only a rule brought in, of @room at most. Returns how
 * many more there is room for.
 */
static u32 ps_group_release_adopted(struct ps_group *g, u32 room)
{
	struct ps_member *m;
	unsigned long id;

	lockdep_assert_held(&ps_lock);
	xa_for_each(&g->ids, id, m) {
		if (!m->by_rule)
			continue;
		if (!room)
			break;
		room--;
		m->by_rule = false;
		if (m->wish_join)
			continue;
		/* The last one takes the group with it, a grace period later. */
		ps_group_leave(m);
		ps_member_drop_if_idle(m);
	}
	return room;
}

/**
 * ps_group_release_rule() - a rule is gone: let go of what it adopted
 * @net: namespace
 * @proto: IPPROTO_TCP or IPPROTO_UDP
 * @port: host order
 *
 * Some at a time: each costs as much as there are others in its group, and
 * packets wait meanwhile.
 *
 * Context: process, may sleep; without ps_lock.
 */
void ps_group_release_rule(const struct net *net, u8 proto, u16 port)
{
	struct hlist_node *tmp;
	struct ps_group *g;
	u32 room;

	do {
		room = PS_RELEASE_BATCH;
		/* Keeps a group that disbands in the walk. */
		rcu_read_lock();
		spin_lock_bh(&ps_lock);
		hash_for_each_possible_safe(ps_groups, g, tmp, port_node,
					    ps_port_key(net, proto, port)) {
			if (!room)
				break;
			if (ps_group_on_port(g, net, proto, port))
				room = ps_group_release_adopted(g, room);
		}
		spin_unlock_bh(&ps_lock);
		rcu_read_unlock();
		cond_resched();
	} while (!room);
}

/**
 * ps_group_selectable() - how many members could be picked now
 * @g: the group
 *
 * Context: any, RCU.
 */
u32 ps_group_selectable(const struct ps_group *g)
{
	const struct ps_set *set = rcu_dereference_check(g->set,
						lockdep_is_held(&ps_lock));
	u32 n = ps_set_count(set);
	u32 usable = 0;
	u32 i;

	for (i = 0; i < n; i++)
		usable += ps_member_usable(ps_set_member(set, i), g);
	return usable;
}

/**
 * ps_group_picked() - what policies gave all members, also those that left
 * @g: the group
 *
 * Context: any, RCU.
 */
u64 ps_group_picked(struct ps_group *g)
{
	u64 sum = READ_ONCE(g->picked_gone);
	XA_STATE(xas, &g->ids, 0);
	struct ps_member *m;

	/* A tenth of what xa_for_each() costs, with ps_lock held perhaps. */
	rcu_read_lock();
	xas_for_each(&xas, m, PORTSTEER_MAX_ID)
		if (!xas_retry(&xas, m))
			sum += atomic64_read(&m->picked);
	rcu_read_unlock();
	return sum;
}
