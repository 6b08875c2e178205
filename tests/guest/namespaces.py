#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Acceptance case 12: who may share a port, and namespaces that share none."""
import os
import subprocess

from lib import net, ns, proc, ps, tap
from lib.net import INET, INET6, Pool, combinations
from lib.tap import equal, fails, ok, test


def error_of_bind(kind, family, port, *prepare):
    """The errno of a bind, for another process to find out."""
    def attempt():
        net.server(kind, family, port, *prepare).close()
    return tap.error_of(attempt)


@test
def another_uid():
    """EADDRINUSE at bind, whoever is first"""
    for text, kind, family in combinations():
        port = net.port()
        with Pool() as pool:
            sock = pool.server(kind, family, port, ps.member("rr"))
            for how, prepare in (("JOIN", ps.member()),
                                 ("SO_REUSEPORT", net.reuseport)):
                equal(proc.as_nobody(error_of_bind, kind, family, port,
                                     prepare), "EADDRINUSE",
                      f"{text}: {how} by another uid")
            equal(ps.info(sock).members, 1, f"{text}: nobody has joined")

        port = net.port()

        def theirs(link):
            proc.become_nobody()
            with net.server(kind, family, port, ps.member("rr")):
                link.send("bound")
                link.recv()

        with proc.Child(theirs) as child:
            child.get()
            for how, prepare in (("JOIN", ps.member()),
                                 ("SO_REUSEPORT", net.reuseport)):
                equal(error_of_bind(kind, family, port, prepare),
                      "EADDRINUSE", f"{text}: {how} by root")
            host = "[::]" if family == INET6 else "0.0.0.0"
            equal(ps.table()[f"{kind}:{host}:{port}"]["members"], 1,
                  f"{text}: nor has root")

        equal(proc.as_nobody(error_of_bind, kind, family, net.port(),
                             ps.member("rr")), None,
              f"{text}: another uid may have a group of its own")


@test
def given_away():
    """JOIN of a bound socket that belongs to another uid now: EPERM"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            member = pool.server(kind, family, port, ps.member("rr"))
            sock = pool.server(kind, family, port, net.reuseport)
            os.fchown(sock.fileno(), proc.NOBODY, -1)
            fails("EPERM", f"{text}: JOIN", ps.join, sock)
            equal((ps.get(sock, ps.JOIN), ps.info(member).members), (0, 1),
                  f"{text}: nothing changed")
            os.fchown(sock.fileno(), 0, -1)
            ps.join(sock)
            equal(ps.info(member).members, 2, f"{text}: given back it joins")


class Site:
    """Two members for each protocol and family on one port of a namespace."""

    def __init__(self, port):
        self.space = ns.Namespace()
        self.pool = Pool()
        self.port = port
        with self.space:
            self.groups = [
                (text, family, self.pool.servers(2, kind, family, port,
                                                 ps.member("rr")))
                for text, kind, family in combinations()]

    def serves(self):
        """All that is sent in this namespace arrives here, two by two."""
        with self.space:
            return all(net.counts(net.burst(
                servers, (net.LOOPBACK[family], self.port), 4), 2) == [2, 2]
                for _, family, servers in self.groups)

    def queues(self):
        """What waits unasked for in any of its queues."""
        with net.Watch([s for _, _, g in self.groups for s in g]) as watch:
            return watch.take(0.1)

    def table(self):
        with self.space:
            return ps.table()

    def close(self):
        self.pool.close()
        self.space.close()


@test
def two_namespaces():
    """same address and port: nothing crosses, one may go, 20 times"""
    port = net.port()
    stays = Site(port)
    names = {ps.name(servers[0]) for _, _, servers in stays.groups}
    equal(set(stays.table()), names, "the first one's groups")
    failures = []
    for turn in range(20):
        goes = Site(port)
        checks = {
            "the second has its groups": set(goes.table()) == names,
            "with two members each": all(g["members"] == 2
                                         for g in goes.table().values()),
            "the second serves": goes.serves(),
            "nothing reached the first": stays.queues() is None,
            "the first serves": stays.serves(),
            "nothing reached the second": goes.queues() is None,
            "this one's table is empty": ps.table() == {},
        }
        goes.close()
        checks["the first serves without the second"] = stays.serves()
        checks["and has its groups"] = set(stays.table()) == names
        failures += [f"{turn}: {text}" for text, good in checks.items()
                     if not good]
    ok(not failures, "20 times", "\n".join(failures))
    picked = {g["picked"] for g in stays.table().values()}
    equal(picked, {20 * 2 * 4}, "the first one counted its own and no others")
    stays.close()
    equal(ps.table(), {}, "nothing is left here")
    ok(ps.disarmed(), "the hooks are disarmed", ps.hooks())


@test
def killed_with_namespace():
    """a process dies and takes its namespace along, 20 times"""
    port = net.port()

    def inside(link):
        site = Site(port)
        link.send(site.serves())
        link.recv()

    with Pool() as pool:
        here = pool.servers(2, "tcp", INET, port, ps.member("rr"))
        served = []
        for _ in range(20):
            with proc.Child(inside) as child:
                served.append(child.get())
            shares = net.counts(net.burst(here, ("127.0.0.1", port), 4), 2)
            served.append(shares == [2, 2])
        ok(all(served), "both serve each time", served)
        equal(ps.info(here[0]).members, 2, "this one's group is whole")
    ok(ps.disarmed(), "the hooks are disarmed", ps.hooks())


@test
def foreign_process():
    """a socket's own namespace counts, not that of who holds it"""
    port = net.port()
    home, away = ns.Namespace(), ns.Namespace()
    with Pool() as pool:
        with home:
            sock = pool.new("tcp", INET)
        with away:
            ps.member("rr", 5)(sock)
            sock.bind(("0.0.0.0", port))
            sock.listen()
            equal(ps.table(), {}, "not in the caller's table")
            equal(ps.get(sock, ps.ID), 5, "but a member")
        with home:
            equal(list(ps.table()), [ps.name(sock)], "in its own table")
        with away:
            ps.rule(f"add tcp {port} policy=hash")
        equal(ps.policy(sock), "rr", "another namespace's rule isn't for it")
    home.close()
    away.close()


@test
def really_gone():
    """a namespace with groups and rules dies when it should"""
    space = ns.Namespace()
    done = subprocess.run(["ip", "link", "add", "psgone", "type", "veth",
                           "peer", "name", "psin"], capture_output=True,
                          text=True)
    if done.returncode:
        space.close()
        raise tap.Skip(f"no veth: {done.stderr.strip()}")
    subprocess.run(["ip", "link", "set", "psin", "netns",
                    f"/proc/self/fd/{space.fileno()}"], check=True,
                   pass_fds=[space.fileno()])
    with Pool() as pool, space:
        for _, kind, family in combinations():
            port = net.port()
            ps.rule(f"add {kind} {port} policy=rr")
            pool.servers(2, kind, family, port, net.reuseport)
            pool.servers(2, kind, family, net.port(), ps.member("rr"))
            ps.member("rr")(pool.new(kind, family))
    space.close()
    # The kernel removes a veth pair when either end's namespace dies.
    gone = proc.wait_for(
        lambda: not os.path.exists("/sys/class/net/psgone"), 20)
    ok(gone, "no reference keeps it")
    if not gone:
        subprocess.run(["ip", "link", "del", "psgone"], check=False)


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module)
