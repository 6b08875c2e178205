#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""tools/testing/selftests/net: 24,000 sockets on one port, 80 on each of 300
addresses or all on one."""
# guest: mem=3072 timeout=3000 file=build/kselftests
from lib.ksft import Test, Way, main

main(
    Test("net/stress_reuseport_listen.sh", (("tcp", 443),), ways=(
        Way(joins=24000),)),
    Test("net/bind_bhash.sh", (("tcp", 443),), ways=(Way(joins=24001),)))
