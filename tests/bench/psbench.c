// SPDX-License-Identifier: GPL-2.0
/*
 * Counts what a socket lookup costs, in instructions: in a machine of qemu
 * -icount shift=0 the time stamp counter advances by one an instruction.
 *
 * A command written to /proc/psbench is run at once, in the network namespace
 * of the writer; reading gives its result:
 *
 *	lookup tcp4|tcp6|udp4|udp6 PORT packet|ack|new|none COUNT
 *		-> total instructions, lookups that found a socket
 *	close COUNT
 *		-> median of the instructions that closing a socket takes
 *
 * A lookup is called at the kernel function's entry, as the kernel does, so it
 * passes whatever ftrace has put there. Its packet is a SYN or a datagram that
 * is about to be delivered; "ack" is a SYN-cookie's ACK; "none" a lookup
 * without a packet. Each comes from another port, and from another address when
 * ports are used up; always from the same ones, but those of "new", which come
 * from where none has come from before. The same loop is run once more around an empty function
 * and subtracted: what's left is the lookup without the call itself.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/sort.h>
#include <linux/static_call.h>
#include <linux/tcp.h>
#include <linux/uaccess.h>
#include <linux/udp.h>
#include <net/inet6_hashtables.h>
#include <net/inet_hashtables.h>
#include <net/tcp.h>
#include <net/udp.h>

#include "compat/lookup.h"
#include "tcp_lookup.h"

/* Every lookup comes in through lo, from port PSB_SPORT on. */
#define PSB_DIF		1
#define PSB_SPORT	20000
#define PSB_SPORTS	32768
#define PSB_SADDR	0x0a630002		/* 10.99.0.2 and up */
#define PSB_NEW		1000	/* from that one on: of "new" */
#define PSB_DADDR	htonl(INADDR_LOOPBACK)

static const struct in6_addr psb_saddr6 = {
	.s6_addr = { 0xfd, 0x63, [15] = 2 }
};

static const struct in6_addr psb_daddr6 = IN6ADDR_LOOPBACK_INIT;

static DEFINE_MUTEX(psb_mutex);	/* one measurement at a time */
static char psb_result[64];
static struct sk_buff *psb_skb;	/* the packet; data at its transport header */

struct psb_cost {
	u64 instructions;
	u32 found;
};

struct psb_job {
	struct net *net;
#ifdef PSB_TCP_HASHINFO
	struct inet_hashinfo *hashinfo;
#endif
#ifdef PS_UDP_TABLE
	struct udp_table *udptable;
#endif
	struct sk_buff *skb;	/* or NULL */
	int doff;
	u16 port;
	u32 count;
	u32 first;		/* of the source addresses */
	__be32 saddr;
	struct in6_addr saddr6;
};

static u32 psb_used;		/* source addresses that "new" has used */

/* Makes the packet, and what is looked up, come from an address. */
static void psb_set_source(struct psb_job *job, u32 number)
{
	job->saddr = htonl(PSB_SADDR + number);
	job->saddr6 = psb_saddr6;
	job->saddr6.s6_addr32[2] = htonl(number);
	if (ip_hdr(psb_skb)->version == 6)
		ipv6_hdr(psb_skb)->saddr = job->saddr6;
	else
		ip_hdr(psb_skb)->saddr = job->saddr;
}

/*
 * Does a lookup @job->count times. Inlined with its @lookup, so that nothing
 * stands between the loop and the call.
 */
static __always_inline void
psb_loop(struct psb_job *job, struct psb_cost *cost,
	 struct sock *(*lookup)(const struct psb_job *job, __be16 sport))
{
	__be16 *source = (__be16 *)psb_skb->data;
	unsigned long flags;
	u32 i, found = 0;
	u64 start;

	rcu_read_lock();
	local_irq_save(flags);
	start = rdtsc_ordered();
	for (i = 0; i < job->count; i++) {
		__be16 sport = htons(PSB_SPORT + i % PSB_SPORTS);

		if (i % PSB_SPORTS == 0)
			psb_set_source(job, job->first + i / PSB_SPORTS);
		*source = sport;
		found += !!lookup(job, sport);
	}
	cost->instructions = rdtsc_ordered() - start;
	cost->found = found;
	local_irq_restore(flags);
	rcu_read_unlock();
}

/*
 * A static call is a direct call, as the kernel's own is, and its target can
 * be changed: the kernel's function, or (@target is NULL) an empty one of the
 * same signature.
 */
#define PSB_LOOKUP(fn, params)						\
	static noinline notrace struct sock *psb_empty_##fn(params)	\
	{								\
		return NULL;						\
	}								\
	DEFINE_STATIC_CALL_NULL(psb_call_##fn, fn);			\
	static void psb_aim_##fn(void *target)				\
	{								\
		static_call_update(psb_call_##fn,			\
				   target ? (typeof(fn) *)target :	\
					    psb_empty_##fn);		\
	}

#define psb_call(fn) static_call(psb_call_##fn)

PSB_LOOKUP(__inet_lookup_listener, PSB_TCP4_PARAMS)
PSB_LOOKUP(inet6_lookup_listener, PSB_TCP6_PARAMS)
PSB_LOOKUP(__udp4_lib_lookup, PS_UDP4_PARAMS)
PSB_LOOKUP(__udp6_lib_lookup, PS_UDP6_PARAMS)

/* What the arguments of compat/lookup.h are called. */
#ifdef PSB_TCP_HASHINFO
#define PSB_TCP_HASHINFO_VAR struct inet_hashinfo *hashinfo = job->hashinfo
#else
#define PSB_TCP_HASHINFO_VAR
#endif
#ifdef PS_UDP_TABLE
#define PSB_UDP_TABLE struct udp_table *udptable = job->udptable
#else
#define PSB_UDP_TABLE
#endif

static __always_inline struct sock *psb_tcp4(const struct psb_job *job,
					     __be16 sport)
{
	PSB_TCP_HASHINFO_VAR;

	return psb_call(__inet_lookup_listener)(job->net, PSB_TCP_TABLE_ARG
						job->skb, job->doff,
						job->saddr, sport, PSB_DADDR,
						job->port, PSB_DIF, 0);
}

static __always_inline struct sock *psb_tcp6(const struct psb_job *job,
					     __be16 sport)
{
	PSB_TCP_HASHINFO_VAR;

	return psb_call(inet6_lookup_listener)(job->net, PSB_TCP_TABLE_ARG
					       job->skb, job->doff,
					       &job->saddr6, sport, &psb_daddr6,
					       job->port, PSB_DIF, 0);
}

static __always_inline struct sock *psb_udp4(const struct psb_job *job,
					     __be16 sport)
{
	PSB_UDP_TABLE;

	return psb_call(__udp4_lib_lookup)(job->net, job->saddr, sport,
					   PSB_DADDR, htons(job->port),
					   PSB_DIF, 0, PS_UDP_TABLE_ARG
					   job->skb);
}

static __always_inline struct sock *psb_udp6(const struct psb_job *job,
					     __be16 sport)
{
	PSB_UDP_TABLE;

	return psb_call(__udp6_lib_lookup)(job->net, &job->saddr6, sport,
					   &psb_daddr6, htons(job->port),
					   PSB_DIF, 0, PS_UDP_TABLE_ARG
					   job->skb);
}

static void psb_loop_tcp4(struct psb_job *job, struct psb_cost *cost)
{
	psb_loop(job, cost, psb_tcp4);
}

static void psb_loop_tcp6(struct psb_job *job, struct psb_cost *cost)
{
	psb_loop(job, cost, psb_tcp6);
}

static void psb_loop_udp4(struct psb_job *job, struct psb_cost *cost)
{
	psb_loop(job, cost, psb_udp4);
}

static void psb_loop_udp6(struct psb_job *job, struct psb_cost *cost)
{
	psb_loop(job, cost, psb_udp6);
}

static struct psb_kind {
	const char *name;
	const char *symbol;
	u8 proto;
	bool v6;
	void (*loop)(struct psb_job *job, struct psb_cost *cost);
	void (*aim)(void *target);	/* NULL: the empty function */
	void *entry;
} psb_kinds[] = {
	{ "tcp4", "__inet_lookup_listener", IPPROTO_TCP, false,
	  psb_loop_tcp4, psb_aim___inet_lookup_listener },
	{ "tcp6", "inet6_lookup_listener", IPPROTO_TCP, true,
	  psb_loop_tcp6, psb_aim_inet6_lookup_listener },
	{ "udp4", "__udp4_lib_lookup", IPPROTO_UDP, false,
	  psb_loop_udp4, psb_aim___udp4_lib_lookup },
	{ "udp6", "__udp6_lib_lookup", IPPROTO_UDP, true,
	  psb_loop_udp6, psb_aim___udp6_lib_lookup },
};

/* The ftrace site; what may stand before it (endbr64) does nothing. */
static int psb_resolve(struct psb_kind *kind)
{
	struct kprobe kp = {
		.symbol_name = kind->symbol,
		.flags = KPROBE_FLAG_DISABLED,
	};
	int err = register_kprobe(&kp);

	if (err) {
		pr_err("no function %s (%d)\n", kind->symbol, err);
		return err;
	}
	kind->entry = kp.addr;
	unregister_kprobe(&kp);
	return 0;
}

static void psb_make_ip(const struct psb_kind *kind, unsigned int payload)
{
	struct ipv6hdr *ip6;
	struct iphdr *ip;

	skb_reset_network_header(psb_skb);
	if (kind->v6) {
		psb_skb->protocol = htons(ETH_P_IPV6);
		ip6 = skb_put_zero(psb_skb, sizeof(*ip6));
		ip6->version = 6;
		ip6->hop_limit = 64;
		ip6->payload_len = htons(payload);
		ip6->nexthdr = kind->proto;
		ip6->daddr = psb_daddr6;
		skb_pull(psb_skb, sizeof(*ip6));
		return;
	}
	psb_skb->protocol = htons(ETH_P_IP);
	ip = skb_put_zero(psb_skb, sizeof(*ip));
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->ttl = 64;
	ip->tot_len = htons(sizeof(*ip) + payload);
	ip->protocol = kind->proto;
	ip->daddr = PSB_DADDR;
	skb_pull(psb_skb, sizeof(*ip));
}

static void psb_make_packet(const struct psb_kind *kind, u16 port, bool ack)
{
	struct tcphdr *th;
	struct udphdr *uh;

	skb_trim(psb_skb, 0);
	psb_skb->data = psb_skb->head;
	skb_reset_tail_pointer(psb_skb);
	skb_reserve(psb_skb, MAX_HEADER);

	if (kind->proto == IPPROTO_TCP) {
		psb_make_ip(kind, sizeof(*th));
		th = skb_put_zero(psb_skb, sizeof(*th));
		th->dest = htons(port);
		th->doff = sizeof(*th) / 4;
		th->syn = !ack;
		th->ack = ack;
	} else {
		psb_make_ip(kind, sizeof(*uh) + 4);
		uh = skb_put_zero(psb_skb, sizeof(*uh) + 4);
		uh->dest = htons(port);
		uh->len = htons(sizeof(*uh) + 4);
	}
	skb_reset_transport_header(psb_skb);
	psb_skb->dev = current->nsproxy->net_ns->loopback_dev;
	/* Policy rxqueue looks no further where none is recorded. */
	skb_record_rx_queue(psb_skb, 0);
}

/* As src/compat/walk.c finds them. */
static void psb_find_tables(struct psb_job *job)
{
#if defined(PSB_TCP_HASHINFO) && defined(PS_TCP_TABLE_PER_NET)
	job->hashinfo = job->net->ipv4.tcp_death_row.hashinfo;
#elif defined(PSB_TCP_HASHINFO)
	job->hashinfo = &tcp_hashinfo;
#endif
#if defined(PS_UDP_TABLE) && defined(PS_UDP_TABLE_PER_NET)
	job->udptable = job->net->ipv4.udp_table;
#elif defined(PS_UDP_TABLE)
	job->udptable = &udp_table;
#endif
}

/* On to addresses that weren't used, for "new" ones. */
static void psb_advance(struct psb_job *job, const char *packet)
{
	if (strcmp(packet, "new"))
		return;
	psb_used += DIV_ROUND_UP(job->count, PSB_SPORTS);
	job->first = PSB_NEW + psb_used;
}

static int psb_lookup(const char *name, u32 port, const char *packet, u32 count)
{
	struct psb_cost empty, cost;
	struct psb_kind *kind = NULL;
	struct psb_job job;
	int i;

	for (i = 0; i < ARRAY_SIZE(psb_kinds); i++)
		if (!strcmp(psb_kinds[i].name, name))
			kind = &psb_kinds[i];
	if (!kind || !port || port > U16_MAX || !count)
		return -EINVAL;

	psb_make_packet(kind, port, !strcmp(packet, "ack"));
	job.net = current->nsproxy->net_ns;
	psb_find_tables(&job);
	job.skb = strcmp(packet, "none") ? psb_skb : NULL;
	job.doff = sizeof(struct tcphdr);
	job.port = port;
	job.count = count;
	job.first = 0;

	/* The first round warms what is set up once: hash secrets and the like. */
	kind->aim(kind->entry);
	psb_advance(&job, packet);
	kind->loop(&job, &cost);
	psb_advance(&job, packet);
	kind->loop(&job, &cost);
	kind->aim(NULL);
	kind->loop(&job, &empty);

	snprintf(psb_result, sizeof(psb_result), "%lld %u\n",
		 (s64)(cost.instructions - empty.instructions), cost.found);
	return 0;
}

static int psb_compare(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/*
 * Closing may sleep, so interrupts stay on; the median is free of them. The
 * socket is fresh, so the kernel's own part is smaller than a connection's;
 * what a hook adds is the same.
 */
static int psb_close(u32 count)
{
	struct socket *sock;
	u64 *costs, start;
	int err = 0;
	u32 i;

	if (!count || count > 10000)
		return -EINVAL;
	costs = kvcalloc(count, sizeof(*costs), GFP_KERNEL);
	if (!costs)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		err = sock_create_kern(current->nsproxy->net_ns, AF_INET,
				       SOCK_STREAM, IPPROTO_TCP, &sock);
		if (err)
			goto out;
		start = rdtsc_ordered();
		sock->ops->release(sock);
		costs[i] = rdtsc_ordered() - start;
		module_put(sock->ops->owner);
		sock->ops = NULL;
		sock_release(sock);
	}
	sort(costs, count, sizeof(*costs), psb_compare, NULL);
	snprintf(psb_result, sizeof(psb_result), "%llu\n", costs[count / 2]);
out:
	kvfree(costs);
	return err;
}

static ssize_t psb_write(struct file *file, const char __user *buf, size_t len,
			 loff_t *pos)
{
	char text[64], kind[8], packet[8];
	u32 port, count;
	int err = -EINVAL;

	if (len >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, buf, len))
		return -EFAULT;
	text[len] = '\0';

	mutex_lock(&psb_mutex);
	if (sscanf(text, "lookup %7s %u %7s %u", kind, &port, packet,
		   &count) == 4)
		err = psb_lookup(kind, port, packet, count);
	else if (sscanf(text, "close %u", &count) == 1)
		err = psb_close(count);
	mutex_unlock(&psb_mutex);
	return err ? err : len;
}

static int psb_show(struct seq_file *seq, void *v)
{
	mutex_lock(&psb_mutex);
	seq_puts(seq, psb_result);
	mutex_unlock(&psb_mutex);
	return 0;
}

static int psb_open(struct inode *inode, struct file *file)
{
	return single_open(file, psb_show, NULL);
}

static const struct proc_ops psb_proc_ops = {
	.proc_open = psb_open,
	.proc_read = seq_read,
	.proc_write = psb_write,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

static int __init psb_init(void)
{
	int i, err;

	for (i = 0; i < ARRAY_SIZE(psb_kinds); i++) {
		err = psb_resolve(&psb_kinds[i]);
		if (err)
			return err;
	}
	psb_skb = alloc_skb(512, GFP_KERNEL);
	if (!psb_skb)
		return -ENOMEM;
	if (!proc_create("psbench", 0600, NULL, &psb_proc_ops)) {
		kfree_skb(psb_skb);
		return -ENOMEM;
	}
	return 0;
}

static void __exit psb_exit(void)
{
	remove_proc_entry("psbench", NULL);
	psb_skb->dev = NULL;
	kfree_skb(psb_skb);
}

module_init(psb_init);
module_exit(psb_exit);
MODULE_DESCRIPTION("Measures what socket lookups cost");
MODULE_LICENSE("GPL");
