#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# The form of the listener lookups, which portsteer itself doesn't call, as
# compiler options; like src/compat/probe.sh.
#
# usage: probe.sh KERNEL_SOURCE

set -eu

listener() {
	tr '\n\t' '  ' < "$1/include/net/inet_hashtables.h" |
		grep -o '__inet_lookup_listener([^;{]*' | grep -q "$2"
}

if listener "$1" '(const struct net'; then
	echo '-DPSB_TCP_CONST_NET'
fi
if listener "$1" inet_hashinfo; then
	echo '-DPSB_TCP_HASHINFO'
fi
