#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""tools/testing/selftests/bpf: programs that choose sockets of a group, where its
connections move to, and which address a packet is for."""
# guest: mem=2048 timeout=1200 file=build/kselftests
import os
import re
import sys

from lib import ksft
from lib.ksft import Test, Way


def besides(pattern, either="^$"):
    """All is as with the kernel alone but for the subtests whose name matches
    pattern, which fail; those that match `either` may."""
    def expect(alone, result):
        fail = {name for name in alone.subtests if re.search(pattern, name)}
        free = {name for name in alone.subtests if re.search(either, name)}
        # A test as a whole has the verdict of its worst subtest.
        fail |= {name.split("/")[0] for name in fail}
        want = {name: "FAIL" if name in fail else verdict
                for name, verdict in alone.subtests.items()}
        wrong = {name: f"{result.subtests.get(name)} instead of {want.get(name)}"
                 for name in {**want, **result.subtests}
                 if name not in free
                 and want.get(name) != result.subtests.get(name)}
        if not fail:
            return f"no subtest's name matches {pattern}"
        return f"{wrong}\n{result.tail()}" if wrong else ""
    return expect


def not_asked(alone, result):
    """Everything moves where it should without the program's being asked."""
    complaints = {line.split(":FAIL:")[1].split(" unexpected")[0]
                  for line in result.lines if ":FAIL:" in line}
    if complaints == {"count in BPF prog"}:
        return ""
    return f"complaints: {complaints}\n{result.tail(80)}"


BPF = "bpf/test_progs -t"
LOOKUP = ("tcp", 7007), ("udp", 7007), ("tcp", 8008), ("udp", 8008)

if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 1):
    print("1..0 # SKIP test_progs is that of 6.1, older kernels can't run all of it")
    sys.exit()

INSTEAD = "a rule's policy takes the place of programs that choose, no others"

ksft.main(
    # A cookie's ACK isn't for a policy to choose but goes by hash: one in 32 to
    # the socket that the test wants.
    Test(f"{BPF} select_reuseport/*TCP*", chosen="tcp", ways=(
        Way(INSTEAD, expect=besides("test_pass$", either="test_syncookie$")),)),
    Test(f"{BPF} select_reuseport/*UDP*", chosen="udp", ways=(
        Way(INSTEAD, expect=besides("test_pass$")),)),
    Test(f"{BPF} migrate_reuseport", chosen="tcp", ways=(
        Way("migrate=0 leaves migration to the program",
            "policy=rr migrate=0"),
        Way("a rule moves all of it, unasked", expect=not_asked))),
    Test(f"{BPF} sk_lookup", LOOKUP, ways=(
        Way(INSTEAD, expect=besides("redir (with|and) reuseport")),)))
