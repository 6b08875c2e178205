// SPDX-License-Identifier: GPL-2.0
/*
 * The settings of members and groups: what values they take, what they do.
 */
#include <linux/cpumask.h>
#include <linux/limits.h>
#include <linux/rcupdate.h>

#include "flow.h"
#include "group.h"
#include "policy/quic.h"
#include "rank.h"
#include "setting.h"

/**
 * ps_setting_valid() - may a setting have this value?
 * @opt: PORTSTEER_...
 * @value: any number
 *
 * Context: any.
 */
bool ps_setting_valid(int opt, s64 value)
{
	switch (opt) {
	case PORTSTEER_JOIN:
		return value == 0 || value == 1;
	case PORTSTEER_WEIGHT:
		return value >= 1 && value <= PORTSTEER_MAX_WEIGHT;
	case PORTSTEER_CPU:
		return value == -1 ||
		       (value >= 0 && value < nr_cpu_ids && cpu_possible(value));
	case PORTSTEER_STATE:
		return value >= PORTSTEER_ACTIVE &&
		       value <= PORTSTEER_DRAINING;
	case PORTSTEER_ID:
		return value >= 0 && value <= PORTSTEER_MAX_ID;
	case PORTSTEER_GENERATION:
	case PORTSTEER_AFFINITY:
		return value >= 0 && value <= INT_MAX;
	case PORTSTEER_WORKING_GENERATION:
		return value >= -1 && value <= INT_MAX;
	case PORTSTEER_RX_QUEUE:
		return value >= -1 && value <= U16_MAX;
	case PS_SETTING_FLOWS:
		return value >= 1 && value <= PS_FLOWS_MAX;
	case PS_SETTING_QUIC_OFFSET:
		return value >= 0 && value < PS_QUIC_CID_MAX;
	case PS_SETTING_QUIC_LENGTH:
		return value >= 1 && value <= PS_QUIC_LENGTH_MAX;
	default:
		return false;
	}
}

static u32 ps_wish_bit(int opt)
{
	switch (opt) {
	case PORTSTEER_WEIGHT:
		return PS_WISH_WEIGHT;
	case PORTSTEER_CPU:
		return PS_WISH_CPU;
	case PORTSTEER_RX_QUEUE:
		return PS_WISH_RX_QUEUE;
	case PORTSTEER_STATE:
		return PS_WISH_STATE;
	case PORTSTEER_GENERATION:
		return PS_WISH_GENERATION;
	case PORTSTEER_WORKING_GENERATION:
		return PS_WISH_WORKING_GENERATION;
	case PORTSTEER_AFFINITY:
		return PS_WISH_AFFINITY;
	default:
		return 0;
	}
}

/**
 * ps_member_wished() - has a program set it for a socket?
 * @m: the socket
 * @opt: PORTSTEER_..., one with a number
 *
 * Context: any, under ps_lock.
 */
bool ps_member_wished(const struct ps_member *m, int opt)
{
	if (opt == PORTSTEER_ID)
		return m->wish_id != PS_NO_ID;
	return m->wishes & ps_wish_bit(opt);
}

/**
 * ps_member_setting() - a setting of a member, or a wish of a socket
 * @m: a member, or ps_member_wished()
 * @opt: PORTSTEER_...
 *
 * Context: any, under ps_lock.
 */
int ps_member_setting(const struct ps_member *m, int opt)
{
	const struct ps_group *g = ps_member_group(m);

	switch (opt) {
	case PORTSTEER_WEIGHT:
		return m->weight;
	case PORTSTEER_CPU:
		return m->cpu;
	case PORTSTEER_RX_QUEUE:
		return m->rx_queue;
	case PORTSTEER_STATE:
		return m->state;
	case PORTSTEER_GENERATION:
		return m->generation;
	case PORTSTEER_ID:
		return g ? m->id : m->wish_id;
	case PORTSTEER_WORKING_GENERATION:
		return g ? ps_group_setting(g, opt) :
			   m->wish_working_generation;
	case PORTSTEER_AFFINITY:
		return g ? ps_group_setting(g, opt) : (int)m->wish_affinity;
	default:
		return -1;
	}
}

/**
 * ps_member_set() - change a setting of a member, or wish for one
 * @m: a member, or a socket with wishes only
 * @opt: PORTSTEER_...: a member's own; also a group's while in none
 * @value: ps_setting_valid()
 *
 * Context: process, under ps_lock.
 * Return: 0, or for an id -EEXIST if a member of the group has it, or -ENOMEM;
 * then nothing has changed.
 */
int ps_member_set(struct ps_member *m, int opt, int value)
{
	const struct ps_group *g = ps_member_group(m);
	int err;

	switch (opt) {
	case PORTSTEER_WEIGHT:
		WRITE_ONCE(m->weight, value);
		break;
	case PORTSTEER_CPU:
		WRITE_ONCE(m->cpu, value);
		break;
	case PORTSTEER_RX_QUEUE:
		WRITE_ONCE(m->rx_queue, value);
		break;
	case PORTSTEER_STATE:
		WRITE_ONCE(m->state, value);
		break;
	case PORTSTEER_GENERATION:
		WRITE_ONCE(m->generation, value);
		break;
	case PORTSTEER_ID:
		err = g ? ps_group_renumber(m, value) : 0;
		if (err)
			return err;
		m->wish_id = value;
		return 0;
	case PORTSTEER_WORKING_GENERATION:
		m->wish_working_generation = value;
		break;
	case PORTSTEER_AFFINITY:
		m->wish_affinity = value;
		break;
	}
	m->wishes |= ps_wish_bit(opt);
	if (!g)
		return 0;
	if (opt == PORTSTEER_STATE || opt == PORTSTEER_GENERATION)
		ps_group_place(m);
	else
		ps_group_reweigh(m);
	return 0;
}

/**
 * ps_member_set_excludes() - can a change take a member out of what is chosen?
 * @opt: PORTSTEER_...
 *
 * Then ps_setting_await() has to follow.
 */
bool ps_member_set_excludes(int opt)
{
	/* Without affinity a live flow is no longer kept where it is. */
	return opt == PORTSTEER_STATE || opt == PORTSTEER_GENERATION ||
	       opt == PORTSTEER_WORKING_GENERATION || opt == PORTSTEER_AFFINITY;
}

/**
 * ps_group_setting() - a number that is a group's
 * @g: the group
 * @opt: PORTSTEER_WORKING_GENERATION, PORTSTEER_AFFINITY or PS_SETTING_...
 *
 * Context: any.
 */
int ps_group_setting(const struct ps_group *g, int opt)
{
	switch (opt) {
	case PORTSTEER_AFFINITY:
		return READ_ONCE(g->affinity);
	case PS_SETTING_FLOWS:
		return READ_ONCE(g->flow_room);
	case PS_SETTING_QUIC_OFFSET:
		return PS_QUIC_OFFSET(READ_ONCE(g->quic));
	case PS_SETTING_QUIC_LENGTH:
		return PS_QUIC_LENGTH(READ_ONCE(g->quic));
	default:
		return READ_ONCE(g->working_generation);
	}
}

/* A connection ID has to have room for both. */
static int ps_group_set_quic(struct ps_group *g, int opt, int value)
{
	int offset, length, err = 0;

	spin_lock_bh(&ps_lock);
	offset = PS_QUIC_OFFSET(g->quic);
	length = PS_QUIC_LENGTH(g->quic);
	if (opt == PS_SETTING_QUIC_OFFSET)
		offset = value;
	else
		length = value;
	if (offset + length > PS_QUIC_CID_MAX)
		err = -EINVAL;
	else
		WRITE_ONCE(g->quic, PS_QUIC_PLACE(offset, length));
	spin_unlock_bh(&ps_lock);
	return err;
}

/* Needs a table of flows where it wasn't needed before. */
static int ps_group_set_flows(struct ps_group *g, int opt, int value)
{
	int err;

	/* Before, for afterwards it would be too late to fail. */
	if (opt == PORTSTEER_AFFINITY ? value > 0 : value >= 0) {
		err = ps_flows_reserve(g);
		if (err)
			return err;
	}
	if (opt == PORTSTEER_WORKING_GENERATION) {
		err = ps_group_set_working_generation(g, value);
	} else {
		spin_lock_bh(&ps_lock);
		WRITE_ONCE(g->affinity, value);
		err = g->members ? 0 : -ENOENT;
		spin_unlock_bh(&ps_lock);
	}
	/*
	 * Lets go of a table that isn't needed any more. The one reserved may
	 * have been seen as such before its time: then it is asked for again.
	 */
	if (ps_flows_update(g)) {
		spin_lock_bh(&ps_lock);
		ps_group_changed(g);
		spin_unlock_bh(&ps_lock);
	}
	return err;
}

/**
 * ps_group_set() - change a number that is a group's
 * @g: the group; the caller holds a reference
 * @opt: PORTSTEER_WORKING_GENERATION, PORTSTEER_AFFINITY or PS_SETTING_...
 * @value: ps_setting_valid()
 *
 * Context: process, may sleep.
 * Return: 0, -ENOMEM, -ENOENT if the group has disbanded, -EINVAL if it doesn't
 * go with another setting. On error nothing has changed.
 */
int ps_group_set(struct ps_group *g, int opt, int value)
{
	switch (opt) {
	case PS_SETTING_FLOWS:
		return ps_flows_set_room(g, value);
	case PS_SETTING_QUIC_OFFSET:
	case PS_SETTING_QUIC_LENGTH:
		return ps_group_set_quic(g, opt, value);
	default:
		return ps_group_set_flows(g, opt, value);
	}
}

/**
 * ps_group_set_policy() - choose the policy of a group
 * @g: the group
 * @policy: what its packets will be steered by
 *
 * Packets under way use the old or the new one: policies are static, and an
 * index says whose it is.
 *
 * Context: any, under ps_lock.
 */
void ps_group_set_policy(struct ps_group *g, const struct ps_policy *policy)
{
	lockdep_assert_held(&ps_lock);
	/* Pairs with rcu_dereference() in lookup.c. */
	rcu_assign_pointer(g->policy, policy);
	WRITE_ONCE(g->explicit_policy, true);
	ps_group_changed(g);
}

/**
 * ps_setting_await() - until no packet goes by what was before
 *
 * A packet that was looking for a socket when a member began to drain may have
 * chosen it already; after this it has got there.
 *
 * Context: process, may sleep, no locks.
 */
void ps_setting_await(void)
{
	synchronize_rcu_expedited();
}
