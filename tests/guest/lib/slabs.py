# SPDX-License-Identifier: GPL-2.0
"""What the kernel's memory is used for, when all that is free has been given
back."""
import glob
import os
import re
import time

from . import ns, tap

SYS_MEMBARRIER = 324
MEMBARRIER_GLOBAL = 1

# Each socket, request and namespace is one object there, exactly.
EXACT = re.compile(r"(TCP|UDP|request_sock_TCP|tw_sock_TCP)(v6)?|net_namespace|"
                   r"sock_inode_cache")
# All that the module allocates is there, and what everything else does as well.
SHARED = re.compile(r"(dma-|rcl-)?kmalloc-.*|kernfs_node_cache")


def grace_period():
    """Until what was being read by anybody isn't any more."""
    ns.check(ns.libc.syscall(SYS_MEMBARRIER, MEMBARRIER_GLOBAL, 0, 0))


def _write(path, text):
    with open(path, "w") as file:
        file.write(text)


def _drain():
    """Let go of what is free but counts as used."""
    # Kernels with "net: defer final 'struct net' free in netns dismantle" free
    # the namespaces that have died when the next one does.
    ns.Namespace().close()
    grace_period()
    _write("/proc/sys/vm/drop_caches", "3")
    # Free objects in CPUs' own slabs.
    for path in {os.path.realpath(p) for p in glob.glob("/sys/kernel/slab/*")}:
        _write(f"{path}/shrink", "1")


def objects():
    """{cache: objects in use}"""
    if not os.path.exists("/sys/kernel/slab"):
        raise tap.Skip("no /sys/kernel/slab")
    _drain()
    with open("/proc/slabinfo") as file:
        return {line.split()[0]: int(line.split()[1])
                for line in file.readlines()[2:]}


def percpu():
    """Octets, by whole pages."""
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("Percpu:"):
                return int(line.split()[1]) << 10
    raise KeyError("Percpu")


class Usage:
    """At one moment."""

    def __init__(self):
        self.objects = objects()
        self.percpu = percpu()

    def growth(self, since):
        """{cache: more objects than since}; what hasn't changed is left out."""
        names = self.objects.keys() | since.objects.keys()
        found = {n: self.objects.get(n, 0) - since.objects.get(n, 0)
                 for n in names}
        found["percpu"] = self.percpu - since.percpu
        return {name: more for name, more in found.items() if more}


def excess(growth, shared, percpu_octets):
    """That part of a growth that is too much."""
    def allowed(name):
        if EXACT.fullmatch(name):
            return 0
        if name == "percpu":
            return percpu_octets
        return shared if SHARED.fullmatch(name) else None
    return {name: more for name, more in growth.items()
            if allowed(name) is not None and more > allowed(name)}


def settle(since, *limits, timeout=120):
    """Wait until nothing is in use that wasn't before; (usage, growth,
    what of it is too much in the end)."""
    def look():
        found.append(Usage())
        return not excess(found[-1].growth(since), *limits)
    found = []
    end = time.monotonic() + timeout
    while not look() and time.monotonic() < end:
        time.sleep(1)
    growth = found[-1].growth(since)
    return found[-1], growth, excess(growth, *limits)
