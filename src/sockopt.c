// SPDX-License-Identifier: GPL-2.0
/*
 * The private socket options, through the kernel's interface for a module's:
 * reached for options that the kernel doesn't know, without the socket lock.
 */
#include <linux/netfilter.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <net/sock_reuseport.h>

#include "exclusive.h"
#include "group.h"
#include "hook.h"
#include "member_table.h"
#include "rules.h"
#include "setting.h"
#include "sockopt.h"

#define PS_OPT_MIN PORTSTEER_JOIN
#define PS_OPT_MAX (PORTSTEER_AFFINITY + 1)

/* The value of an option, read from user space before anything is changed. */
union ps_value {
	int num;
	const struct ps_policy *policy;
	struct ps_secret secret;
};

static bool ps_supported(const struct sock *sk, u16 family)
{
	return sk->sk_family == family &&
	       ((sk->sk_type == SOCK_STREAM &&
		 sk->sk_protocol == IPPROTO_TCP) ||
		(sk->sk_type == SOCK_DGRAM &&
		 sk->sk_protocol == IPPROTO_UDP));
}

static bool ps_bound(const struct sock *sk)
{
	return READ_ONCE(sk->sk_num);
}

/*
 * Was @sk bound with SO_REUSEPORT? The flag alone may have been set since. For
 * a TCP socket that doesn't listen yet listen() asks again, so there it's good.
 */
static bool ps_bound_shared(const struct sock *sk)
{
	if (!sk->sk_reuseport)
		return false;
	if (sk->sk_protocol == IPPROTO_TCP && sk->sk_state == TCP_CLOSE)
		return true;
	return rcu_access_pointer(sk->sk_reuseport_cb);
}

/* Does the kernel's own group hold sockets of somebody else (fchown())? */
static bool ps_native_mixed(const struct sock *sk)
{
	const struct sock_reuseport *reuse;
	bool mixed = false;
	u16 i, n;

	rcu_read_lock();
	reuse = rcu_dereference(sk->sk_reuseport_cb);
	if (reuse) {
		n = READ_ONCE(reuse->num_socks);
		/* Pairs with smp_wmb() in the kernel's reuseport_add_sock(). */
		smp_rmb();
		for (i = 0; i < n && !mixed; i++)
			mixed = !uid_eq(READ_ONCE(reuse->socks[i])->sk_uid,
					sk->sk_uid);
	}
	rcu_read_unlock();
	return mixed;
}

/*
 * Can @sk have a wish, or become a member? A TCP socket only while it could
 * still listen; a bound one only if it shares its port.
 */
static bool ps_may_join(const struct sock *sk)
{
	if (sk->sk_protocol == IPPROTO_TCP && sk->sk_state != TCP_CLOSE &&
	    sk->sk_state != TCP_LISTEN)
		return false;
	return !ps_bound(sk) || ps_bound_shared(sk);
}

/*
 * What we know of @sk, kept from being forgotten: a rule may be deleted while
 * the option is being set. To be undone by ps_unhold().
 */
static struct ps_member *ps_hold(struct sock *sk)
{
	struct ps_member *m;

	spin_lock_bh(&ps_lock);
	m = ps_member_find_locked(sk);
	if (m)
		m->busy = true;
	spin_unlock_bh(&ps_lock);
	return m;
}

/* Forgets @m if it has, or the option has come to, nothing. */
static void ps_unhold(struct ps_member *m)
{
	spin_lock_bh(&ps_lock);
	m->busy = false;
	ps_member_drop_if_idle(m);
	spin_unlock_bh(&ps_lock);
}

static int ps_join(struct sock *sk, struct ps_member *m)
{
	const struct ps_join how = { .bound_before = true };
	bool wished = m->wish_join;
	int err;

	WRITE_ONCE(m->wish_join, true);
	if (!ps_bound(sk)) {
		/* At once, so that it stays when the module is unloaded. */
		if (!sk->sk_reuseport) {
			sk->sk_reuseport = 1;
			m->gave_reuseport = true;
		}
		return 0;
	}
	if (ps_native_mixed(sk))
		err = -EPERM;
	else
		err = ps_group_join(sk, &how, GFP_KERNEL_ACCOUNT);
	/* Its key comes into force now, as in bind(). */
	if (!err && m->secret.len && ps_exclusive_strangers(sk, &m->secret)) {
		spin_lock_bh(&ps_lock);
		ps_group_leave(m);
		spin_unlock_bh(&ps_lock);
		err = -EADDRINUSE;
	}
	if (err)
		WRITE_ONCE(m->wish_join, wished);
	return err;
}

static void ps_leave(struct sock *sk, struct ps_member *m)
{
	struct ps_rule rule;

	spin_lock_bh(&ps_lock);
	WRITE_ONCE(m->wish_join, false);
	if (ps_member_group(m)) {
		ps_group_leave(m);
		ps_member_reset(m);
		/* Else the rule's next look at its port would bring it back. */
		WRITE_ONCE(m->left, ps_rule_find(sock_net(sk), sk->sk_protocol,
						 READ_ONCE(sk->sk_num), &rule));
	}
	if (m->gave_reuseport && !ps_bound(sk))
		sk->sk_reuseport = 0;
	m->gave_reuseport = false;
	spin_unlock_bh(&ps_lock);
}

/* What every member of a group shares. */
static bool ps_of_group(int opt)
{
	return opt == PORTSTEER_POLICY || opt == PORTSTEER_AFFINITY ||
	       opt == PORTSTEER_WORKING_GENERATION;
}

static int ps_set_policy(struct ps_member *m, const struct ps_policy *policy)
{
	struct ps_group *g;
	int err = 0;

	spin_lock_bh(&ps_lock);
	g = ps_member_group(m);
	if (!g)
		m->wish_policy = policy;
	else if (g->locked)
		err = -EPERM;
	else
		ps_group_set_policy(g, policy);
	spin_unlock_bh(&ps_lock);
	return err;
}

/* A number of the group's, or a wish for one if there is no group yet. */
static int ps_set_group_number(struct ps_member *m, int opt, int num)
{
	struct ps_group *g;
	int err;

	do {
		err = 0;
		spin_lock_bh(&ps_lock);
		g = ps_member_group(m);
		if (!g)
			err = ps_member_set(m, opt, num);
		else if (g->locked)
			err = -EPERM;
		else
			ps_group_get(g);	/* it has a member */
		spin_unlock_bh(&ps_lock);
		if (!g || err)
			return err;
		err = ps_group_set(g, opt, num);
		ps_group_put(g);
		/* A rule's deletion took the socket out of it: a wish, then. */
	} while (err == -ENOENT);
	return err;
}

static int ps_set_number(struct ps_member *m, int opt, int num)
{
	int err;

	if (ps_of_group(opt))
		return ps_set_group_number(m, opt, num);
	spin_lock_bh(&ps_lock);
	err = ps_member_set(m, opt, num);
	spin_unlock_bh(&ps_lock);
	return err;
}

static void ps_set_secret(struct ps_member *m, const struct ps_secret *secret)
{
	spin_lock_bh(&ps_lock);
	m->secret = *secret;
	spin_unlock_bh(&ps_lock);
}

/* Under the socket lock, with the hooks armed. */
static int ps_set_locked(struct sock *sk, int opt, const union ps_value *val)
{
	struct ps_member *m = ps_hold(sk);
	int err = 0;

	if (opt == PORTSTEER_JOIN && !val->num) {
		if (m) {
			ps_leave(sk, m);
			ps_unhold(m);
		}
		return 0;
	}

	if ((!(m && rcu_access_pointer(m->group)) && !ps_may_join(sk)) ||
	    (opt == PORTSTEER_KEY && ps_bound(sk))) {
		if (m)
			ps_unhold(m);
		return -EINVAL;
	}
	/* A new one is nobody else's: who adopts waits for the socket lock. */
	if (!m)
		m = ps_member_get(sk, GFP_KERNEL_ACCOUNT);
	if (IS_ERR(m))
		return PTR_ERR(m);

	switch (opt) {
	case PORTSTEER_JOIN:
		err = ps_join(sk, m);
		break;
	case PORTSTEER_POLICY:
		err = ps_set_policy(m, val->policy);
		break;
	case PORTSTEER_KEY:
		ps_set_secret(m, &val->secret);
		break;
	default:
		err = ps_set_number(m, opt, val->num);
		break;
	}
	ps_unhold(m);
	return err;
}

static int ps_read_int(sockptr_t arg, unsigned int len, int opt, int *num)
{
	if (len < sizeof(*num))
		return -EINVAL;
	if (copy_from_sockptr(num, arg, sizeof(*num)))
		return -EFAULT;
	return ps_setting_valid(opt, *num) ? 0 : -EINVAL;
}

static int ps_read_secret(sockptr_t arg, unsigned int len,
			  struct ps_secret *secret)
{
	memset(secret, 0, sizeof(*secret));
	if (!len || len > sizeof(secret->bytes))
		return -EINVAL;
	if (copy_from_sockptr(secret->bytes, arg, len))
		return -EFAULT;
	secret->len = len;
	return 0;
}

/* Like TCP_CONGESTION: need not end in a NUL. */
static int ps_read_policy(sockptr_t arg, unsigned int len, union ps_value *val)
{
	char name[PORTSTEER_POLICY_LEN + 1] = "";

	if (!len)
		return -EINVAL;
	if (copy_from_sockptr(name, arg, min_t(size_t, len, sizeof(name) - 1)))
		return -EFAULT;
	val->policy = ps_policy_find(name);
	return val->policy ? 0 : -EINVAL;
}

static int ps_read_value(int opt, sockptr_t arg, unsigned int len,
			 union ps_value *val)
{
	switch (opt) {
	case PORTSTEER_POLICY:
		return ps_read_policy(arg, len, val);
	case PORTSTEER_KEY:
		return ps_read_secret(arg, len, &val->secret);
	case PORTSTEER_INFO:
	case PORTSTEER_VERSION:
		return -EINVAL;	/* to be read only */
	default:
		return ps_read_int(arg, len, opt, &val->num);
	}
}

static int ps_set(struct sock *sk, u16 family, int opt, sockptr_t arg,
		  unsigned int len)
{
	union ps_value val;
	int err;

	if (!ps_supported(sk, family))
		return -EOPNOTSUPP;
	err = ps_read_value(opt, arg, len, &val);
	if (err)
		return err;

	/* Outside the socket lock; what comes of it keeps its own hold. */
	err = ps_hooks_get();
	if (err)
		return err;
	lock_sock(sk);
	err = ps_set_locked(sk, opt, &val);
	release_sock(sk);
	if (!err && ps_member_set_excludes(opt) && ps_member_known(sk))
		ps_setting_await();
	ps_hooks_put();
	memzero_explicit(&val, sizeof(val));
	return err;
}

static int ps_set_v4(struct sock *sk, int opt, sockptr_t arg, unsigned int len)
{
	return ps_set(sk, AF_INET, opt, arg, len);
}

static int ps_set_v6(struct sock *sk, int opt, sockptr_t arg, unsigned int len)
{
	return ps_set(sk, AF_INET6, opt, arg, len);
}

static void ps_fill_info(const struct ps_member *m, struct ps_group *g,
			 struct portsteer_info *info)
{
	const struct ps_policy *policy;

	policy = rcu_dereference_protected(g->policy,
					   lockdep_is_held(&ps_lock));
	info->size = sizeof(*info);
	info->id = m->id;
	info->state = m->state;
	info->weight = m->weight;
	info->cpu = ps_member_cpu(m);
	info->rx_queue = m->rx_queue;
	info->generation = m->generation;
	info->working_generation = g->working_generation;
	info->members = g->members;
	info->selectable = ps_group_selectable(g);
	strscpy(info->policy, policy->name, sizeof(info->policy));
	info->picked = atomic64_read(&m->picked);
	info->migrated_in = atomic64_read(&m->migrated_in);
	info->migrated_out = atomic64_read(&m->migrated_out);
	info->fallbacks = atomic64_read(&g->fallbacks);
}

/* What a getsockopt() answers with. */
union ps_answer {
	int num;
	char policy[PORTSTEER_POLICY_LEN];
	struct portsteer_info info;
};

/*
 * Returns the size of the answer or an errno. @m and @g may be NULL.
 */
static int ps_get_locked(const struct ps_member *m, struct ps_group *g, int opt,
			 union ps_answer *answer)
{
	const struct ps_policy *policy;

	lockdep_assert_held(&ps_lock);
	switch (opt) {
	case PORTSTEER_JOIN:
		answer->num = g || (m && m->wish_join);
		return sizeof(answer->num);
	case PORTSTEER_POLICY:
		if (!m)
			return -ENOENT;
		policy = g ? rcu_dereference_protected(g->policy,
						lockdep_is_held(&ps_lock)) :
			     m->wish_policy;
		if (!policy)
			return -ENOENT;
		strscpy(answer->policy, policy->name, sizeof(answer->policy));
		return sizeof(answer->policy);
	case PORTSTEER_INFO:
		if (!g)
			return -ENOENT;
		ps_fill_info(m, g, &answer->info);
		return sizeof(answer->info);
	case PORTSTEER_VERSION:
		answer->num = PORTSTEER_ABI_VERSION;
		return sizeof(answer->num);
	case PORTSTEER_KEY:
		return -EINVAL;	/* never readable */
	default:
		if (!m || (!g && !ps_member_wished(m, opt)))
			return -ENOENT;
		answer->num = ps_member_setting(m, opt);
		return sizeof(answer->num);
	}
}

/* Strings and structures may be cut short by the buffer, numbers may not. */
static bool ps_may_cut(int opt)
{
	return opt == PORTSTEER_POLICY || opt == PORTSTEER_INFO;
}

static int ps_get(struct sock *sk, u16 family, int opt, void __user *user,
		  int *len)
{
	union ps_answer answer = {};
	struct ps_member *m;
	int size;

	if (!ps_supported(sk, family))
		return -EOPNOTSUPP;

	spin_lock_bh(&ps_lock);
	m = ps_member_find_locked(sk);
	size = ps_get_locked(m, m ? ps_member_group(m) : NULL, opt, &answer);
	spin_unlock_bh(&ps_lock);
	if (size < 0)
		return size;

	if (*len < 0 || (*len < size && !ps_may_cut(opt)))
		return -EINVAL;
	*len = min(*len, size);
	return copy_to_user(user, &answer, *len) ? -EFAULT : 0;
}

static int ps_get_v4(struct sock *sk, int opt, void __user *user, int *len)
{
	return ps_get(sk, AF_INET, opt, user, len);
}

static int ps_get_v6(struct sock *sk, int opt, void __user *user, int *len)
{
	return ps_get(sk, AF_INET6, opt, user, len);
}

static struct nf_sockopt_ops ps_sockopts[] = {
	{
		.pf = PF_INET,
		.set_optmin = PS_OPT_MIN,
		.set_optmax = PS_OPT_MAX,
		.set = ps_set_v4,
		.get_optmin = PS_OPT_MIN,
		.get_optmax = PS_OPT_MAX,
		.get = ps_get_v4,
		.owner = THIS_MODULE,
	},
	{
		.pf = PF_INET6,
		.set_optmin = PS_OPT_MIN,
		.set_optmax = PS_OPT_MAX,
		.set = ps_set_v6,
		.get_optmin = PS_OPT_MIN,
		.get_optmax = PS_OPT_MAX,
		.get = ps_get_v6,
		.owner = THIS_MODULE,
	},
};

int ps_sockopt_init(void)
{
	unsigned int i;
	int err;

	for (i = 0; i < ARRAY_SIZE(ps_sockopts); i++) {
		err = nf_register_sockopt(&ps_sockopts[i]);
		if (err) {
			pr_err("socket options %d to %d are taken by another module (%d), not loading\n",
			       PS_OPT_MIN, PS_OPT_MAX - 1, err);
			while (i-- > 0)
				nf_unregister_sockopt(&ps_sockopts[i]);
			return err;
		}
	}
	return 0;
}

void ps_sockopt_exit(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ps_sockopts); i++)
		nf_unregister_sockopt(&ps_sockopts[i]);
}
