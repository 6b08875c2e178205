#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=1200 mem=2048 allow="Call Trace:"
"""Memory cgroups: what is charged to whom, and what happens in a full one. The
kernel logs whom it kills for want of memory with a call trace."""
import os
import resource
import time

from lib import cgroup, net, proc, ps, tap
from lib.net import INET, Pool
from lib.tap import equal, ok, test

QUICK = not os.environ.get("PS_FULL")
COUNT = 200 if QUICK else 2000		# sockets to be charged
ROOM = 2 if QUICK else 16		# MB of a small cgroup

MB = 1 << 20
LO = "127.0.0.1"


def whole():
    """What is half made: groups without members, members without a
    directory, directories without either."""
    table = ps.table()
    wrong = [name for name, group in table.items()
             if group["members"] != len(group.members) or not group.members]
    root = "/sys/class/portsteer"
    for name, group in table.items():
        try:
            have = sorted(map(int, os.listdir(f"{root}/{name}/members")))
        except FileNotFoundError:
            have = None
        if have != sorted(group.ids()):
            wrong.append((name, have))
    return wrong + sorted(set(table) ^ set(ps.sysfs_names()))


class Tenant:
    """A process in a cgroup of its own that does what it is asked."""

    def __init__(self, pool, name):
        self.cgroup = cgroup.Cgroup(name)
        pool.callback(self.cgroup.close)
        self.child = pool.enter_context(proc.Child(self._serve))
        self.cgroup.add(self.child.pid)
        self.child.ask(("found", "udp", 0, net.port()))
        self.child.ask(("close",))
        self.start = self.cgroup.used()

    @staticmethod
    def _serve(link):
        """Founds groups and joins them, until told to close."""
        resource.setrlimit(resource.RLIMIT_NOFILE, (200000, 200000))
        pool = Pool()
        socks = []
        while True:
            what, *args = link.recv()
            error = None
            if what == "close":
                pool.close()
                socks.clear()
            elif what == "policy":
                error = tap.error_of(ps.set_policy, socks[0], *args)
            elif what == "affinity":
                # of one after the other, until one can't have it
                for done, sock in enumerate(socks):
                    error = tap.error_of(ps.set, sock, ps.AFFINITY, *args)
                    if error:
                        error = (done, error, ps.get(sock, ps.AFFINITY))
                        break
            else:
                kind, count, port = args
                option = net.reuseport if what == "plain" else ps.member("rr")
                for number in range(count):
                    step = number if what == "found" else 0
                    error = tap.error_of(lambda: socks.append(pool.server(
                        kind, INET, port, option, backlog=8,
                        addr=f"127.2.{step // 250}.{step % 250 + 1}")))
                    if error:
                        break
            link.send(error)

    def ask(self, *question):
        return self.child.ask(question, 300)

    def grown(self):
        """In octets, since it began."""
        return self.cgroup.used() - self.start

    def kernel(self):
        """Octets of kernel memory; they are counted up every two seconds."""
        time.sleep(2.5)
        return self.cgroup.kernel()

    def given_back(self, before, grown):
        """A third of what it had grown by, at most, is still charged."""
        return proc.wait_for(
            lambda: self.cgroup.kernel() - before < grown / 3, 30)


@test
def charged():
    """groups and members are charged to who makes them, and given back"""
    with Pool() as pool:
        one, other = Tenant(pool, "one"), Tenant(pool, "other")
        equal(other.ask("join", "udp", 10, net.port()), None, "one has ten")
        theirs = other.grown()
        for kind in net.TYPES:
            each = {}
            for what in "plain", "join", "found":
                before = one.kernel()
                equal(one.ask(what, kind, COUNT, net.port()), None,
                      f"{kind}: {COUNT} to {what}")
                each[what] = (one.kernel() - before) // COUNT
                equal(whole(), [], f"{kind} {what}: all is whole")
                one.ask("close")
                ok(one.given_back(before, COUNT * each[what]),
                   f"{kind} {what}: given back",
                   one.cgroup.kernel() - before)
            tap.diag(f"{kind}: octets each {each}")
            ok(each["join"] > each["plain"] + 300 and
               each["found"] > each["join"] + 500,
               f"{kind}: members and groups are charged", each)
        ok(abs(other.grown() - theirs) < MB, "the other one's are as before",
           other.grown() - theirs)


def ends(one, *question):
    """What an impossible question gets: an errno, or "killed"."""
    try:
        return one.ask(*question)
    except EOFError:
        return "killed"


@test
def small_cgroup():
    """who wants more than its cgroup has is refused or killed, alone"""
    for what, kind in (("found", "tcp"), ("found", "udp"), ("join", "tcp"),
                       ("join", "udp")):
        text = f"{what} {kind}"
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(2, kind, INET, port, ps.member("rr"))
            other, one = Tenant(pool, "other"), Tenant(pool, "small")
            other.ask("join", kind, 4, port)
            one.cgroup.limit(one.cgroup.used() + ROOM * MB)
            error = ends(one, what, kind, 1 << 16, net.port())
            ok(error in ("ENOMEM", "ENOBUFS", "killed"), f"{text}: {error}")
            equal(one.cgroup.killed() > 0, error == "killed",
                  f"{text}: the cgroup says so, too")
            # Who was killed takes its sockets along in its own time.
            ok(proc.wait_for(lambda: not whole(), 60),
               f"{text}: nothing is half made", whole())
            equal((other.cgroup.killed(), other.ask("policy", "hash")),
                  (0, None), f"{text}: the other one lives")
            equal(net.counts(net.burst(servers, (LO, port), 4), 2), [2, 2],
                  f"{text}: and we are served")
        ok(proc.wait_for(lambda: not ps.table(), 60), f"{text}: all gone",
           len(ps.table()))


@test
def flows_in_small_cgroup():
    """tables of flows are refused, and nobody is killed"""
    with Pool() as pool:
        one = Tenant(pool, "flows")
        one.ask("found", "udp", 20, net.port())
        one.cgroup.limit(one.cgroup.used() + 16 * MB)
        done, error, value = one.ask("affinity", 60)
        equal((error, value), ("ENOMEM", 0),
              f"{done} of 20 groups have tables of 2 MB, the next one none")
        ok(4 <= done <= 8, "as many as fit", done)
        equal(one.cgroup.killed(), 0, "nobody is killed")
        affine = [group["affinity"] for group in ps.table().values()]
        equal((affine.count(60), affine.count(0)), (done, 20 - done),
              "who was refused has none")
        one.cgroup.limit("max")
        equal(one.ask("affinity", 60), None, "with more room all have")
        ok(one.grown() > 38 * MB, "and it is charged", one.grown())


@test
def indexes_in_small_cgroup():
    """a policy goes on without its table, and nobody is killed for it"""
    with Pool() as pool:
        one = Tenant(pool, "indexes")
        port = net.port()
        one.ask("found", "udp", 64, port)
        one.cgroup.limit(one.cgroup.used() + MB // 2)
        # 32 KB each; it is an operator who asks for it, in another cgroup.
        for name in ps.table():
            ps.sysfs_write(f"/sys/class/portsteer/{name}/policy", "consistent")
        equal({group["policy"] for group in ps.table().values()},
              {"consistent"}, "64 groups have got the policy")
        equal(one.cgroup.killed(), 0, "nobody is killed")
        for step in range(1, 65):
            net.client("udp", (f"127.2.0.{step}", port)).close()
        equal([group["picked"] for group in ps.table().values()], [1] * 64,
              "and each picks")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=600)
