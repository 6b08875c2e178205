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
    """{cache: (objects in use, objects in a slab)}"""
    if not os.path.exists("/sys/kernel/slab"):
        raise tap.Skip("no /sys/kernel/slab")
    _drain()
    with open("/proc/slabinfo") as file:
        rows = [line.split() for line in file.readlines()[2:]]
    return {row[0]: (int(row[1]), int(row[4])) for row in rows}


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
        caches = objects()
        self.objects = {name: used for name, (used, _) in caches.items()}
        self.in_slab = {name: size for name, (_, size) in caches.items()}
        self.percpu = percpu()

    def growth(self, since):
        """{cache: more objects than since}; what hasn't changed is left out."""
        names = self.objects.keys() | since.objects.keys()
        found = {n: self.objects.get(n, 0) - since.objects.get(n, 0)
                 for n in names}
        found["percpu"] = self.percpu - since.percpu
        return {name: more for name, more in found.items() if more}


def excess(usage, since, shared, percpu_octets):
    """That part of usage.growth(since) that is too much."""
    def allowed(name):
        if EXACT.fullmatch(name):
            return 0
        if name == "percpu":
            return percpu_octets
        # A slab that a CPU has taken meanwhile counts as full.
        return shared + 2 * usage.in_slab.get(name, 0) \
            if SHARED.fullmatch(name) else None
    return {name: more for name, more in usage.growth(since).items()
            if allowed(name) is not None and more > allowed(name)}


def settle(since, *limits, timeout=120):
    """Wait until nothing is in use that wasn't before, but for the limits;
    (usage, growth, what of that is too much in the end)."""
    def look():
        found.append(Usage())
        return not excess(found[-1], since, *limits)
    found = []
    end = time.monotonic() + timeout
    while not look() and time.monotonic() < end:
        time.sleep(1)
    usage = found[-1]
    return usage, usage.growth(since), excess(usage, since, *limits)
