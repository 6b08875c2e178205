#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900 allow="Call Trace"
"""Every allocation fails once while hooks are armed, a namespace is made, the
module is loaded or unloaded. Needs a kernel with fault injection: a debug
kernel.

Where ftrace or a module gets no memory for code the kernel shows its stack, as
a warning: that alone is no complaint. All reports of faults say more."""
import collections
import itertools
import os

from lib import fault, net, ns, ps, tap
from lib.net import INET, Pool, combinations
from lib.tap import equal, ok, test
from lib.walk import QUICK, Entry, connect, serves, spread, value_of, walk

FINIT_MODULE, DELETE_MODULE = 313, 176		# system calls


def syscall(*args):
    ns.check(ns.libc.syscall(*args))


def walk_disarmed(text, prepare):
    """walk() with all hooks disarmed, over as many allocations as there is
    time for."""
    def disarmed(pool):
        if not ps.disarmed():
            raise RuntimeError(f"armed: {ps.hooks()}")
        return prepare(pool)

    with Pool() as pool:
        nth = fault.Nth()
        count, _ = nth.count(disarmed(pool).call)
        nth.close()
    tap.diag(f"{count} allocations")
    ok(walk(text, disarmed, spread(1, count)), "it takes memory")


@test
def arming():
    """the first wish arms all hooks, or none"""
    fault.need()

    def first_wish(pool):
        sock = pool.new("udp", INET)
        return Entry(lambda: ps.join(sock),
                     lambda: value_of(sock, ps.JOIN) == 1 and ps.hooks(),
                     # armed for nothing, they stay for half a second
                     undone=lambda: ps.disarmed() and
                     not value_of(sock, ps.JOIN), at_once=True)
    walk_disarmed("JOIN", first_wish)
    ok(ps.disarmed(), "disarmed", ps.hooks())


@test
def arming_for_peers():
    """the first connect() arms what is for peers, or does without"""
    fault.need()
    walk_disarmed("connect()", connect(INET, "127.0.0.1"))


def new_namespace():
    ns.unshare(ns.CLONE_NEWNET)


@test
def namespaces():
    """a network namespace is made whole, or isn't"""
    fault.need()
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    nth = fault.Nth()
    # The module was loaded last, so its part comes at the end. How many there
    # are before differs from one time to the next.
    total = min(nth.count(new_namespace)[0] for _ in range(3))
    ns.check(ns.libc.setns(home, ns.CLONE_NEWNET))
    tap.diag(f"{total} allocations")
    trouble, refused = [], 0
    for number in itertools.count(total - (30 if QUICK else 100)):
        error, left = nth.call(number, new_namespace)
        # Other parts of the kernel have errors of their own.
        if error not in (None, "ENOMEM", "ENOBUFS"):
            trouble.append(f"allocation {number}: {error}")
        if not error:
            if ps.table() != {}:
                trouble.append(f"allocation {number}: {ps.table()}")
            ns.check(ns.libc.setns(home, ns.CLONE_NEWNET))
        refused += bool(error)
        if left:
            break
    nth.close()
    os.close(home)
    ok(not trouble and refused, f"{refused} are refused",
       "\n".join(trouble[:12]))
    space = ns.Namespace()
    with space, Pool() as pool:
        port = net.port()
        servers = pool.servers(2, "tcp", INET, port, ps.member("rr"))
        equal(net.counts(net.burst(servers, ("127.0.0.1", port), 4), 2),
              [2, 2], "the next one is as it should be")
    space.close()


class Module:
    """insmod and rmmod as one system call each."""

    def __init__(self):
        self._fd = os.open(ps.KO, os.O_RDONLY)

    def load(self, parameters=b""):
        syscall(FINIT_MODULE, self._fd, parameters, 0)

    @staticmethod
    def unload():
        syscall(DELETE_MODULE, b"portsteer", os.O_NONBLOCK)

    def close(self):
        os.close(self._fd)


PATHS = ("/sys/module/portsteer", "/sys/class/portsteer",
         "/proc/net/portsteer")


def remains():
    """What there is of the module that isn't loaded."""
    return [path for path in PATHS if os.path.exists(path)] + \
        sorted(ps.hooks())


@test
def loading():
    """the module is loaded, or nothing of it is there"""
    fault.need()
    ps.unload()
    module, nth = Module(), fault.Nth()
    # The kernel's own part, before our first line runs: it ends where this
    # parameter is refused.
    before, error = nth.count(lambda: module.load(b"policy=nonsense"))
    equal(error, "EINVAL", "a bad parameter")
    total, _ = nth.count(module.load)
    module.unload()
    tap.diag(f"allocations {before} to {total}")
    trouble, outcomes = [], collections.Counter()
    for number in spread(before + 1, total):
        error, left = nth.call(number, module.load)
        outcomes[error] += not left
        if error not in (None, "ENOMEM"):
            trouble.append(f"allocation {number}: {error}")
        elif not error:
            module.unload()
        if remains():
            trouble.append(f"allocation {number}: {remains()}")
        if left:
            break
    ok(not trouble and outcomes["ENOMEM"], f"{sum(outcomes.values())} failures",
       "\n".join(trouble[:12]))
    nth.close()
    module.close()
    ps.load()
    serves("then it is loaded")


@test
def unloading():
    """the module goes, whatever fails"""
    fault.need()
    module, nth = Module(), fault.Nth()
    total, _ = nth.count(module.unload)
    tap.diag(f"{total} allocations")
    trouble, failures = [], 0
    for number in spread(1, total):
        with Pool() as pool:
            module.load()
            for _, kind, family in combinations():
                pool.servers(2, kind, family, net.port(), ps.member("rr"))
            error, left = nth.call(number, module.unload)
            if error or remains():
                trouble.append(f"allocation {number}: {error}, {remains()}")
        failures += not left
        if left:
            break
    ok(not trouble, f"{failures} failures", "\n".join(trouble[:12]))
    nth.close()
    module.close()
    ps.load()


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=3000)
