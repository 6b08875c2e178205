#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Looks into a kernel's headers and prints, as compiler options, which of the
# forms that we know they have: stable series take changes of later ones, so
# the version number alone can't tell.
#
# usage: probe.sh KERNEL_SOURCE

set -eu

inc=$1/include
flags=

# has HEADER REGEX: is there a line like that?
has() {
	grep -Eqs "$2" "$inc/$1"
}

# proto HEADER FUNCTION REGEX: is the function's declaration like that?
proto() {
	tr '\n\t' '  ' < "$inc/$1" | grep -Eo "[ *]$2\([^;{]*" |
		grep -Eqs "$3"
}

# body HEADER REGEX REGEX: has the block that the first one opens a line like
# the second?
body() {
	sed -n "/$2/,/^}/p" "$inc/$1" | grep -Eqs "$3"
}

# flag NAME: our macro NAME is to be defined.
flag() {
	flags="$flags -D$1"
}

# ftrace: registers of a callback
has linux/ftrace.h 'struct ftrace_regs' && flag PS_HAVE_FTRACE_REGS
has linux/ftrace.h 'FTRACE_OPS_FL_RECURSION_SAFE' &&
	flag PS_HAVE_FTRACE_RECURSION_SAFE

# tasks
has linux/sched.h 'unsigned int[[:space:]]+__state;' && flag PS_TASK_STATE

# small things
[ -e "$inc/linux/hex.h" ] && flag PS_HAVE_HEX_H

# UDP lookups
proto net/udp.h __udp4_lib_lookup '\(const struct net' &&
	flag PS_UDP_CONST_NET
proto net/udp.h __udp4_lib_lookup 'udp_table' && flag PS_UDP_TABLE

# leaving
has net/sock_reuseport.h 'reuseport_stop_listen_sock' &&
	flag PS_HAVE_STOP_LISTEN

has net/sock_reuseport.h 'reuseport_migrate_sock' && flag PS_HAVE_MIGRATE

# the kernel's socket tables
has net/inet_connection_sock.h 'icsk_listen_portaddr_node;' ||
	flag PS_LHASH2_NULLS
body net/inet_hashtables.h '^struct inet_bind_bucket {' 'bhash2;' &&
	flag PS_BHASH2_OWNERS
has net/netns/ipv4.h 'struct inet_hashinfo|hashinfo;' &&
	flag PS_TCP_TABLE_PER_NET
has net/netns/ipv4.h 'udp_table' && flag PS_UDP_TABLE_PER_NET

# device classes
has linux/device/class.h 'const struct class \*class, const struct class_attr' &&
	flag PS_CLASS_CONST
body linux/device/class.h '^struct class {' 'namespace\)\(const struct device' &&
	flag PS_CLASS_CONST_DEVICE
body linux/device/class.h '^struct class {' 'struct module' &&
	flag PS_CLASS_HAS_OWNER
body linux/device/class.h '^struct class {' 'struct ns_common.*namespace' &&
	flag PS_CLASS_NS_COMMON
body linux/device/class.h '^struct class {' 'class_release\)\(const' &&
	flag PS_CLASS_CONST_RELEASE
body linux/kobject.h '^struct kobj_type {' 'get_ownership\)\(const' &&
	flag PS_KOBJECT_CONST

echo "-DPS_PROBED$flags"
