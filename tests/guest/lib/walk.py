# SPDX-License-Identifier: GPL-2.0
"""Calls of which every allocation fails once: what comes of each failure, and
what tests of such calls share. A run prints its seed; it is an argument of the
test's, for the same again."""
import collections
import contextlib
import itertools
import os
import random
import sys

from . import fault, net, proc, ps, tap
from .net import INET, Pool, combinations
from .tap import equal, ok

# Where a call makes hundreds of allocations, so many of them fail.
QUICK = not os.environ.get("PS_FULL")
POINTS = 12 if QUICK else 10000
SEED = int(sys.argv[1]) if len(sys.argv) > 1 else \
    random.SystemRandom().randrange(2**32)
tap.diag(f"seed {SEED}")


def some(kinds=net.TYPES):
    """Kinds and families; in the short form one of each kind, by chance."""
    every = [found for found in combinations() if found[1] in kinds]
    if not QUICK:
        return every
    choose = random.Random(SEED)
    return [choose.choice([found for found in every if found[1] == kind])
            for kind in kinds]


class Entry:
    """call() is to do something: done() tells that it is done, undone() that
    nothing of it is, after() what else has come of it, if that is wrong."""

    def __init__(self, call, done, *allowed, undone=None, after=None,
                 at_once=False):
        self.call = call
        self.done = done
        self.undone = undone or (lambda: not done())
        self.after = after or (lambda failed: ())
        # What may be put off for want of memory is done a second later.
        self.at_once = at_once
        self.allowed = ("ENOMEM",) + allowed


def state():
    """All that /proc shows."""
    return {name: (dict(group), group.members)
            for name, group in ps.table().items()}


def inconsistencies():
    for name, group in ps.table().items():
        if len(set(group.ids())) != group["members"]:
            yield f"{name}: {dict(group)}, ids {group.ids()}"
        if group["selectable"] > group["members"]:
            yield f"{name}: {dict(group)}"


def attempt(nth, entry, number):
    """Let one allocation fail; (the errno, was it made, what is wrong)."""
    wrong = []
    before = state()
    error, left = nth.call(number, entry.call)
    if error:
        if error not in entry.allowed:
            wrong.append(error)
        if not entry.undone() or state() != before:
            wrong.append(f"{error}, but something has changed")
        again = tap.error_of(entry.call)
        if again:
            wrong.append(f"{again} on trying again after {error}")
    elif entry.at_once and not entry.done():
        wrong.append("not done, yet no error")
    if not proc.wait_for(entry.done, 10):
        wrong.append(f"{error or 'no error'}, and it's never done")
    wrong += inconsistencies()
    wrong += entry.after(not left)
    return error, left, [f"allocation {number}: {text}" for text in wrong]


def walk(text, prepare, numbers=None):
    """prepare(pool) makes an entry: let its first allocation fail, its second…
    until it makes no more."""
    nth = fault.Nth()
    before = set(ps.table())
    outcomes, trouble = collections.Counter(), []
    for number in numbers or itertools.count(1):
        with Pool() as pool:
            error, left, wrong = attempt(nth, prepare(pool), number)
        if not proc.wait_for(lambda: set(ps.table()) == before):
            wrong.append(f"left behind: {ps.table()}")
        trouble += wrong
        if left:
            break
        outcomes[error or "done"] += 1
    nth.close()
    told = ", ".join(f"{count} {name}" for name, count in outcomes.items())
    ok(not trouble, f"{text}: {told or 'no allocation'}",
       "\n".join(trouble[:12]))
    return sum(outcomes.values())


def spread(begin, end):
    """All of these, or as many as there is time for, and what comes behind."""
    step = max(1, -(-(end - begin) // POINTS))
    offset = random.Random(SEED).randrange(step)
    return itertools.chain(range(begin + offset, end, step),
                           itertools.count(end))


@contextlib.contextmanager
def armed():
    """All hooks are: arming them has a test of its own."""
    with Pool() as pool:
        pool.server("tcp", INET, net.port(), ps.member())
        pool.server("udp", INET, net.port(), ps.member(), addr="127.0.0.1"
                    ).connect(("127.0.0.1", 9))
        yield


# What more than one of them does

def value_of(sock, option):
    with contextlib.suppress(OSError):
        return ps.policy(sock).encode() if option == ps.POLICY else \
            ps.get(sock, option)
    return None


OPTIONS = (("WEIGHT", 3), ("CPU", 1), ("STATE", ps.STANDBY), ("ID", 7),
           ("GENERATION", 2), ("WORKING_GENERATION", 1), ("RX_QUEUE", 1),
           ("AFFINITY", 60), ("POLICY", b"rr"))


def connect(family, host):
    """A member gets a peer: what that sends comes to it, all else doesn't."""
    def prepare(pool):
        port = net.port()
        peer = pool.server("udp", family, net.port(),
                           addr=net.LOOPBACK[family])
        servers = pool.servers(3, "udp", family, port, ps.member("rr"),
                               addr=host)
        address = (net.LOOPBACK[family], port)

        def after(_failed):
            reached = net.burst(servers, address, 3, through=peer)
            if reached != [1] * 3:
                yield f"the peer's datagrams came to {reached}"
            shares = net.counts(net.burst(servers, address, 4), 3)
            if shares != [2, 0, 2]:
                yield f"the others' {shares}"
        # IPv6 without memory for a route has none.
        return Entry(lambda: servers[1].connect(peer.getsockname()),
                     lambda: ps.info(servers[0]).selectable == 2, "ENOBUFS",
                     "ENETUNREACH", after=after)
    return prepare


def serves(text):
    with Pool() as pool:
        for name, kind, family in combinations():
            port = net.port()
            servers = pool.servers(2, kind, family, port, ps.member("rr"))
            address = (net.LOOPBACK[family], port)
            equal(net.counts(net.burst(servers, address, 4), 2), [2, 2],
                  f"{text}: {name}")
