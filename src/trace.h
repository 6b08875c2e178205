/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints portsteer:join, leave, pick and migrate, for perf and bpftrace.
 * An IPv4 address is shown as ::ffff:a.b.c.d.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM portsteer

#if !defined(PS_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define PS_TRACE_H

#include <linux/tracepoint.h>

#include "group.h"
#include "name.h"

DECLARE_EVENT_CLASS(portsteer_member,
		    TP_PROTO(const struct ps_group *g,
			     const struct ps_member *m),
		    TP_ARGS(g, m),
		    TP_STRUCT__entry(__field(u32, netns)
				     __field(u8, proto)
				     __field(u16, port)
				     __array(u8, addr, sizeof(struct in6_addr))
				     __field(int, dev)
				     __field(u32, id)
				     __field(u32, members)),
		    TP_fast_assign(__entry->netns = g->key.net->ns.inum;
				   __entry->proto = g->key.proto;
				   __entry->port = g->key.port;
				   ps_key_addr6(&g->key, __entry->addr);
				   __entry->dev = g->key.dev;
				   __entry->id = READ_ONCE(m->id);
				   __entry->members = READ_ONCE(g->members);),
		    TP_printk("netns=%u proto=%u addr=%pI6c dev=%d port=%u id=%u members=%u",
			      __entry->netns, __entry->proto, __entry->addr,
			      __entry->dev, __entry->port, __entry->id,
			      __entry->members)
);

/* A socket has become a member of a group. */
DEFINE_EVENT(portsteer_member, join,
	     TP_PROTO(const struct ps_group *g, const struct ps_member *m),
	     TP_ARGS(g, m)
);

/* A member leaves its group; it is still counted. */
DEFINE_EVENT(portsteer_member, leave,
	     TP_PROTO(const struct ps_group *g, const struct ps_member *m),
	     TP_ARGS(g, m)
);

/* A policy has given a member a new connection, or a datagram. */
DEFINE_EVENT(portsteer_member, pick,
	     TP_PROTO(const struct ps_group *g, const struct ps_member *m),
	     TP_ARGS(g, m)
);

/* A connection of a listener that goes is given to another member. */
TRACE_EVENT(migrate,
	    TP_PROTO(const struct ps_group *g, const struct ps_member *from,
		     const struct ps_member *to),
	    TP_ARGS(g, from, to),
	    TP_STRUCT__entry(__field(u32, netns)
			     __field(u16, port)
			     __field(u32, from)
			     __field(u32, to)),
	    TP_fast_assign(__entry->netns = g->key.net->ns.inum;
			   __entry->port = g->key.port;
			   __entry->from = READ_ONCE(from->id);
			   __entry->to = READ_ONCE(to->id);),
	    TP_printk("netns=%u port=%u from=%u to=%u", __entry->netns,
		      __entry->port, __entry->from, __entry->to)
);

#endif /* PS_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
