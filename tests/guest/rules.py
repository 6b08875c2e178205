#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""/sys/class/portsteer/rules: servers that know nothing of portsteer."""
import os
import socket

from lib import net, ns, proc, ps, tap
from lib.net import INET, INET6, Pool, combinations
from lib.tap import equal, fails, ok, test

UDPLITE = 136

MALFORMED = [
    "\n", " ", "\n\n", "add", "add\n", "add tcp", "add tcp 80", "add 80 tcp",
    "add 80 policy=rr", "add tcp policy=rr", "add sctp 80 policy=rr",
    "add TCP 80 policy=rr", "add tcp6 80 policy=rr", "add tc 80 policy=rr",
    "add tcp 0 policy=rr", "add tcp 65536 policy=rr", "add tcp -1 policy=rr",
    "add tcp 4 43 policy=rr", "add tcp 4294967376 policy=rr",
    "add tcp 18446744073709551696 policy=rr", "add tcp http policy=rr",
    "add tcp 80x policy=rr", "add tcp 8.0 policy=rr", "add tcp 80 policy",
    "add tcp 80 policy=", "add tcp 80 policy=nonsense", "add tcp 80 policy=RR",
    "add tcp 80 policy=r", "add tcp 80 policy=rr,hash", "add tcp 80 =rr",
    "add tcp 80 rr", "add tcp 80 polic=rr", "add tcp 80 policy=rr colour=red",
    "add tcp 80 colour=red policy=rr", "add tcp 80 policy=rr extra",
    "add tcp 80 policy=rr policy=rr", "add tcp 80 policy=rr policy=hash",
    "add tcp 80 policy==rr", "add,tcp,80,policy=rr", "addtcp 80 policy=rr",
    "ad tcp 80 policy=rr", "ADD tcp 80 policy=rr", "tcp 80 policy=rr",
    "nonsense", "del", "del tcp", "del 9", "del sctp 9", "del tcp 0",
    "del tcp 65536", "del tcp -9", "del tcp 9x", "del tcp 9 extra",
    "delete tcp 9", "clear now", "clear tcp 9", "clea", "clearx",
    "add tcp 80 policy=" + "r" * 300, "add tcp 80 policy=" + "r" * 4000,
    "add tcp " + "8" * 300 + " policy=rr", "x" * 4000, "x" * 10000,
    b"add tcp 80\0 policy=rr", b"add tcp 80 policy=rr\0junk",
    b"add tcp 80 policy=rr\0\0", b"\0add tcp 80 policy=rr", b"\0", b"clear\0x",
    b"add tcp 80 policy=\xff\xfe",
]


@test
def malformed():
    """each is EINVAL and changes nothing"""
    ps.rule("add tcp 9 policy=rr")
    before = ps.rules()
    for text in MALFORMED:
        shown = text[:40]
        fails("EINVAL", f"{shown!r}, {len(text)} bytes", ps.rule, text)
        if ps.rules() != before:
            ok(False, f"{shown!r} changes nothing", ps.rules())
            ps.rule("clear")
            ps.rule("add tcp 9 policy=rr")
    ps.rule("")
    equal(ps.rules(), [("tcp", 9, "rr")], "nothing has changed")


@test
def read_back():
    """one rule a line; add, replace, del, clear"""
    equal(ps.rules(), [], "none at first")
    ps.rule("add tcp 443 policy=rr")
    ps.rule("add udp 443 policy=hash\n")
    ps.rule("add tcp 1 policy=hash\n")
    ps.rule("add udp 65535 policy=rr")
    equal(sorted(ps.rules()), [("tcp", 1, "hash"), ("tcp", 443, "rr"),
                               ("udp", 443, "hash"), ("udp", 65535, "rr")],
          "added")
    ps.rule("add tcp 443 policy=hash")
    equal([r for r in ps.rules() if r[:2] == ("tcp", 443)],
          [("tcp", 443, "hash")], "a second one for a port replaces the first")
    for text in ("del tcp 444", "del udp 1", "del tcp 65535"):
        fails("ENOENT", text, ps.rule, text)
    equal(len(ps.rules()), 4, "and deletes nothing")
    ps.rule("del tcp 443")
    fails("ENOENT", "deleting twice", ps.rule, "del tcp 443")
    equal(sorted(ps.rules()), [("tcp", 1, "hash"), ("udp", 443, "hash"),
                               ("udp", 65535, "rr")], "del takes one")
    ps.rule("clear")
    equal(ps.rules(), [], "clear takes all")
    ps.rule("clear\n")
    equal(ps.rules(), [], "also none")


@test
def many_rules():
    """as many as the file can show, then a clear error"""
    wanted = []
    for port in range(2000, 2400):
        error = tap.error_of(ps.rule, f"add tcp {port} policy=rr")
        if error:
            break
        wanted.append(("tcp", port, "rr"))
    # A sysfs file ends at a page; a rule that it can't show is refused.
    ok(error in (None, "ENOSPC", "E2BIG"), f"{len(wanted)} rules, then {error}")
    ok(len(wanted) >= 50, "room for 50 at least")
    equal(sorted(ps.rules()), wanted, "all are read back")
    ps.rule("add tcp 2000 policy=hash")
    equal(len(ps.rules()), len(wanted), "replacing one still works")
    ps.rule("clear")
    equal(ps.rules(), [], "and cleared")


@test
def later_binds():
    """sockets that bind after the rule"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            ps.rule(f"add {kind} {port} policy=rr")
            equal(ps.table(), {}, f"{text}: a rule alone makes no group")
            servers = pool.servers(4, kind, family, port, net.reuseport)
            equal(net.counts(net.burst(servers, (net.LOOPBACK[family], port),
                                       40), 4), [10] * 4, f"{text}: steered")
            group = ps.group(servers[0])
            equal((group["policy"], group["members"], group.picked()),
                  ("rr", 4, [10] * 4), f"{text}: seen in /proc")
            equal([ps.get(s, ps.JOIN) for s in servers], [1] * 4,
                  f"{text}: members like any")
            equal(sorted(ps.get(s, ps.ID) for s in servers), [0, 1, 2, 3],
                  f"{text}: with ids")


@test
def earlier_binds():
    """native groups that were there before, on all addresses of the port"""
    for kind in net.TYPES:
        with Pool() as pool:
            port = net.port()
            places = [(INET, "0.0.0.0", "127.0.0.9"),
                      (INET, "127.0.0.1", "127.0.0.1"),
                      (INET6, "::", None), (INET6, "::1", "::1"),
                      (INET6, "::ffff:127.0.0.2", "127.0.0.2")]
            groups = [pool.servers(2, kind, family, port, net.reuseport,
                                   addr=addr) for family, addr, _ in places]
            elsewhere = pool.servers(2, kind, INET, net.port(), net.reuseport)
            equal(ps.table(), {}, f"{kind}: strangers so far")
            ps.rule(f"add {kind} {port} policy=rr")
            equal(sorted(ps.table()), sorted(ps.name(g[0]) for g in groups),
                  f"{kind}: five groups at once")
            for servers, (_, addr, target) in zip(groups, places):
                group = ps.group(servers[0])
                equal((group["members"], group["policy"]), (2, "rr"),
                      f"{kind} {addr}: both members")
                if target:
                    equal(net.counts(net.burst(servers, (target, port), 20),
                                     2), [10, 10], f"{kind} {addr}: steered")
            ok(ps.group(elsewhere[0]) is None, f"{kind}: other ports aren't")


@test
def same_name():
    """groups that would share a name are told apart"""
    for kind in net.TYPES:
        with Pool() as pool:
            port = net.port()
            dual = pool.servers(2, kind, INET6, port, ps.member("rr"))
            only = pool.servers(2, kind, INET6, port, ps.member("hash"),
                                net.v6only)
            name = ps.name(dual[0])
            equal(sorted(ps.table()), [name, f"{name}~2"],
                  f"{kind}: dual and v6only")
            equal([ps.policy(dual[0]), ps.policy(only[0])], ["rr", "hash"],
                  f"{kind}: two groups they are")


@test
def bound_then_listening():
    """a TCP socket that was bound before the rule and listens after it"""
    for family in (INET, INET6):
        text = net.FAMILY_NAMES[family]
        with Pool() as pool:
            port = net.port()
            socks = [pool.new("tcp", family) for _ in range(3)]
            for sock in socks:
                net.reuseport(sock)
                sock.bind((net.WILDCARD[family], port))
                sock.setblocking(False)
            socks[0].listen()
            ps.rule(f"add tcp {port} policy=rr")
            for sock in socks[1:]:
                sock.listen()
            equal(net.counts(net.burst(socks, (net.LOOPBACK[family], port),
                                       30), 3), [10] * 3, f"{text}: steered")
            equal(ps.group(socks[0])["members"], 3, f"{text}: members")


@test
def not_adopted():
    """sockets without SO_REUSEPORT, other protocols, other ports"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port, later = net.port(), net.port()
            first = pool.server(kind, family, port)
            ps.rule(f"add {kind} {port} policy=rr")
            ps.rule(f"add {kind} {later} policy=rr")
            second = pool.server(kind, family, later)
            other = "udp" if kind == "tcp" else "tcp"
            pool.server(other, family, later, net.reuseport)
            pool.server(kind, family, net.port(), net.reuseport)
            equal(ps.table(), {}, f"{text}: no group")
            for sock in (first, second):
                equal(ps.get(sock, ps.JOIN), 0, f"{text}: JOIN reads 0")
                equal(net.burst([sock], (net.LOOPBACK[family],
                                         sock.getsockname()[1]), 5), [0] * 5,
                      f"{text}: it serves")
            fails("EADDRINUSE", f"{text}: and keeps its port to itself",
                  net.server, kind, family, port, net.reuseport)


@test
def udp_lite():
    """shares UDP's code, not its ports"""
    port = net.port()
    ps.rule(f"add udp {port} policy=rr")
    try:
        sock = socket.socket(INET, socket.SOCK_DGRAM, UDPLITE)
    except OSError as error:
        raise tap.Skip(error.strerror)
    with sock:
        net.reuseport(sock)
        sock.bind(("127.0.0.1", port))
        equal(ps.table(), {}, "not adopted at bind")
        ps.rule(f"add udp {port} policy=hash")
        equal(ps.table(), {}, "nor by a later rule")


@test
def letting_go():
    """del leaves those alone that joined by themselves"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            adopted = pool.servers(2, kind, family, port, net.reuseport)
            ps.rule(f"add {kind} {port} policy=rr")
            own = pool.server(kind, family, port, ps.member())
            adopted.append(pool.server(kind, family, port, net.reuseport))
            equal(ps.group(own)["members"], 4, f"{text}: four members")
            ps.rule(f"del {kind} {port}")
            equal([ps.get(s, ps.JOIN) for s in adopted], [0] * 3,
                  f"{text}: the adopted ones are strangers again")
            equal((ps.get(own, ps.JOIN), ps.group(own)["members"]), (1, 1),
                  f"{text}: the one that joined isn't")
            reached = net.burst([own, *adopted], address, 40)
            ok(None not in reached, f"{text}: all serve", reached)
            own.close()
            equal(ps.table(), {}, f"{text}: the group goes with it")

            ps.rule(f"add {kind} {port} policy=rr")
            equal(net.counts(net.burst(adopted, address, 30), 3), [10] * 3,
                  f"{text}: adopted again")
            ps.rule("clear")
            equal((ps.table(), ps.get(adopted[0], ps.JOIN)), ({}, 0),
                  f"{text}: clear lets go too")


@test
def operator_wins():
    """a rule beats the application's wish"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            sock = pool.server(kind, family, port, ps.member("hash"))
            ps.rule(f"add {kind} {port} policy=rr")
            equal(ps.policy(sock), "rr", f"{text}: of a group that is there")
            ps.rule(f"add {kind} {port} policy=hash")
            equal(ps.policy(sock), "hash", f"{text}: another rule at once")
            port = net.port()
            ps.rule(f"add {kind} {port} policy=rr")
            sock = pool.server(kind, family, port, ps.member("hash"))
            equal(ps.policy(sock), "rr", f"{text}: of a group to come")


@test
def switching_under_traffic():
    """a running group changes its policy at once"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            servers = pool.servers(4, kind, family, port, net.reuseport)
            for policy in ("rr", "hash", "rr"):
                ps.rule(f"add {kind} {port} policy={policy}")
                shares = net.counts(net.burst(servers, address, 40), 4)
                ok(sum(shares) == 40 and (policy != "rr" or
                                          shares == [10] * 4),
                   f"{text}: {policy}", shares)


@test
def unprivileged():
    """the file can be written by nobody else than an administrator"""
    ps.rule("add tcp 9 policy=rr")
    for text in ("add tcp 80 policy=rr", "del tcp 9", "clear", "nonsense"):
        equal(proc.as_nobody(tap.error_of, ps.rule, text), "EPERM",
              f"{text!r} by another uid")

    def from_inside():
        # /sys is still that of the initial namespace here
        ns.unshare(ns.CLONE_NEWUSER | ns.CLONE_NEWNET)
        return tap.error_of(ps.rule, "clear")

    equal(proc.call(from_inside), "EPERM", "by root of a namespace below")
    equal(ps.rules(), [("tcp", 9, "rr")], "nothing has changed")


@test
def namespace_owner():
    """nobody, as root of its own namespaces, has rules of its own"""
    port = net.port()
    ps.rule(f"add udp {port} policy=hash")

    def inside(link):
        proc.become_nobody()
        ns.own_everything()
        link.send(ps.rules())
        ps.rule(f"add tcp {port} policy=rr")
        link.send(ps.rules())
        with Pool() as pool:
            servers = pool.servers(4, "tcp", INET, port, net.reuseport)
            link.send(net.counts(net.burst(servers, ("127.0.0.1", port), 40),
                                 4))
            link.send(list(ps.table()))
            link.recv()
            fails_with = tap.error_of(ps.rule, "nonsense")
            ps.rule("clear")
            link.send((fails_with, ps.rules()))

    with Pool() as pool, proc.Child(inside) as child:
        outside = pool.servers(4, "tcp", INET, port, net.reuseport)
        equal(child.get(), [], "sees none of ours")
        equal(child.get(), [("tcp", port, "rr")], "writes its own")
        equal(child.get(), [10] * 4, "which steers its servers")
        equal(child.get(), [f"tcp:0.0.0.0:{port}"], "in its table")
        equal(ps.rules(), [("udp", port, "hash")], "we don't see its rule")
        ok(ps.group(outside[0]) is None, "nor are our servers adopted")
        equal(child.ask("on"), ("EINVAL", []), "it clears its own")
        equal(ps.rules(), [("udp", port, "hash")], "ours stays")


@test
def dead_namespace():
    """rules and groups go with their namespace"""
    port = net.port()
    space = ns.Namespace()
    with space:
        ps.rule(f"add tcp {port} policy=rr")
        ps.rule(f"add udp {port} policy=rr")
    space.close()
    equal(ps.rules(), [], "no rule of it here")
    ok(ps.disarmed(), "the hooks are disarmed when it is gone", ps.hooks())


@test
def open_file():
    """the file read in pieces, and written through one descriptor"""
    fd = os.open(ps.rules_path(), os.O_RDWR)
    try:
        for text in (b"add tcp 90 policy=rr", b"add tcp 91 policy=rr",
                     b"del tcp 90"):
            os.pwrite(fd, text, 0)
        equal(ps.rules(), [("tcp", 91, "rr")], "three writes")
    finally:
        os.close(fd)


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module)
