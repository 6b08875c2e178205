/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Members with a peer: a UDP socket that is connect()ed gets that one's
 * datagrams, and no others.
 */
#ifndef PS_PEER_H
#define PS_PEER_H

#include <linux/rhashtable.h>
#include <linux/sched.h>

struct ps_member;
struct sk_buff;
struct sock;

extern struct rhltable ps_peers;
extern struct task_struct *ps_peer_learner;

struct sock *ps_peer_search(const struct sock *sk, u32 hash,
			    const struct sk_buff *skb);
void ps_peer_learn(u32 hash);
bool ps_peer_sent(const struct sock *sk, const struct sk_buff *skb);

/**
 * ps_peer_find() - the connected member that a packet is for
 * @sk: a socket of the kernel's group that it has come to
 * @hash: the kernel's, of its 4-tuple
 * @skb: the packet, or NULL
 *
 * Context: softirq or process, RCU.
 * Return: NULL if there is none in that group.
 */
static inline struct sock *ps_peer_find(const struct sock *sk, u32 hash,
					const struct sk_buff *skb)
{
	if (likely(!atomic_read(&ps_peers.ht.nelems)))
		return NULL;
	return ps_peer_search(sk, hash, skb);
}

/* Is it we who look up, to see the hash? Context: softirq or process. */
static inline bool ps_peer_learns(const struct sk_buff *skb)
{
	return unlikely(!skb) && READ_ONCE(ps_peer_learner) == current;
}

bool ps_peer_add(struct sock *sk);
void ps_peer_drop(struct ps_member *m);
void ps_peer_release(struct ps_member *m);
int ps_peers_init(void);
void ps_peers_stop(void);
void ps_peers_exit(void);

#endif /* PS_PEER_H */
