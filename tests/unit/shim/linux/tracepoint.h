/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SHIM_LINUX_TRACEPOINT_H
#define SHIM_LINUX_TRACEPOINT_H

/* Tracepoints that are always off. */
#define TP_PROTO(...) __VA_ARGS__
#define TP_ARGS(...)
#define DECLARE_EVENT_CLASS(name, ...) struct shim_event_##name
#define DEFINE_EVENT(class, name, proto, args)				\
	static inline void trace_##name(proto) {}			\
	struct shim_event_##name
#define TRACE_EVENT(name, proto, ...)					\
	static inline void trace_##name(proto) {}			\
	struct shim_event_##name

#endif /* SHIM_LINUX_TRACEPOINT_H */
