#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=600
"""Exclusive groups: who doesn't know a group's key shares its port nowhere.
DESIGN.md 2.1, KEY."""
import socket

from lib import net, ns, proc, ps, tap
from lib.net import INET, INET6, Pool, combinations
from lib.tap import equal, fails, ok, test

KEY = b"k" * 32

# A socket's place: family, address and what else makes it overlap or not.
ANY4, LO4, OTHER4 = (INET, "0.0.0.0"), (INET, "127.0.0.1"), (INET, "127.0.0.2")
ANY6, LO6 = (INET6, "::"), (INET6, "::1")
MAPPED, ANY_MAPPED = (INET6, "::ffff:127.0.0.1"), (INET6, "::ffff:0.0.0.0")
ONLY6 = (INET6, "::", net.v6only)

OVERLAPPING = [
    (ANY4, ANY4), (ANY4, LO4), (LO4, LO4), (ANY6, ANY6), (ANY6, LO6),
    (LO6, LO6), (ANY6, LO4), (ANY6, ANY4), (ANY6, MAPPED), (MAPPED, MAPPED),
    (MAPPED, LO4), (MAPPED, ANY4), (ONLY6, ONLY6), (ONLY6, LO6),
    (ONLY6, ANY6), (ANY_MAPPED, ANY_MAPPED), (ANY_MAPPED, MAPPED),
    (ANY_MAPPED, LO4), (ANY_MAPPED, ANY4), (ANY_MAPPED, ANY6),
]
APART = [
    (LO4, OTHER4), (LO4, LO6), (ANY4, LO6), (ONLY6, ANY4), (ONLY6, LO4),
    (ONLY6, MAPPED), (LO6, MAPPED), (MAPPED, OTHER4), (ANY_MAPPED, LO6),
    (ANY_MAPPED, ONLY6),
]

KEYED = ps.member(key=KEY)
# Sockets that don't know the key.
OTHERS = {
    "SO_REUSEPORT": (net.reuseport,),
    "member without a key": (ps.member(),),
    "another key": (ps.member(key=b"K" * 32),),
    "part of the key": (ps.member(key=KEY[:31]),),
    "a key but no JOIN": (net.reuseport, lambda s: ps.set(s, ps.KEY, KEY)),
}


def place(pool, kind, where, port, *prepare):
    """A server there, with those options."""
    family, addr, *more = where
    return pool.server(kind, family, port, *prepare, *more, addr=addr)


def both_ways(pairs):
    return pairs + [(two, one) for one, two in pairs if one is not two]


def show(*places):
    return " + ".join(addr + (" v6only" if more else "")
                      for _, addr, *more in places)


def members():
    return sum(group["members"] for group in ps.table().values())


@test
def refused():
    """whoever comes second to an overlapping address, with or without a key"""
    net.need_ipv6()
    for kind in net.TYPES:
        for number, (one, two) in enumerate(both_ways(OVERLAPPING)):
            # Every kind of other for one address, two by turns elsewhere.
            others = list(OTHERS.items())
            if one is not two:
                others = (others + others)[number % 5:][:2]
            for what, other in others:
                for first, second, text in (
                        ((KEYED,), other, f"key, then {what}"),
                        (other, (KEYED,), f"{what}, then key")):
                    with Pool() as pool:
                        port = net.port()
                        place(pool, kind, one, port, *first)
                        before = members()
                        fails("EADDRINUSE", f"{kind} {show(one, two)}: {text}",
                              place, pool, kind, two, port, *second)
                        if members() != before:
                            ok(False, "and changes nothing", ps.table())


@test
def apart():
    """addresses that no packet can be for both of"""
    net.need_ipv6()
    for kind in net.TYPES:
        for number, (one, two) in enumerate(both_ways(APART)):
            for what, other in (list(OTHERS.items()) * 2)[number % 5:][:2]:
                with Pool() as pool:
                    port = net.port()
                    place(pool, kind, one, port, KEYED)
                    equal(tap.error_of(place, pool, kind, two, port, *other),
                          None, f"{kind} {show(one, two)}: key, then {what}")


@test
def same_key():
    """who knows it may come, also to overlapping addresses"""
    net.need_ipv6()
    for kind in net.TYPES:
        for one, two in OVERLAPPING:
            with Pool() as pool:
                port = net.port()
                place(pool, kind, one, port, KEYED)
                equal((tap.error_of(place, pool, kind, two, port, KEYED),
                       members()), (None, 2), f"{kind} {show(one, two)}")


@test
def serves():
    """a keyed group is steered like any"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(4, kind, family, port,
                                   ps.member("rr", key=KEY))
            equal(net.counts(net.burst(servers, (net.LOOPBACK[family], port),
                                       40), 4), [10] * 4, text)


@test
def afterwards():
    """who was refused can bind another port, and keeps its wishes"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            place(pool, kind, (family, net.WILDCARD[family]), port, KEYED)
            for what, prepare in (*OTHERS.items(), ("plain", ())):
                sock = pool.new(kind, family)
                for option in prepare:
                    option(sock)
                shares = sock.getsockopt(socket.SOL_SOCKET,
                                         socket.SO_REUSEPORT)
                joins = ps.get(sock, ps.JOIN)
                for _ in range(2):
                    fails("EADDRINUSE", f"{text}, {what}", sock.bind,
                          (net.WILDCARD[family], port))
                equal((sock.getsockname()[1], ps.get(sock, ps.JOIN),
                       sock.getsockopt(socket.SOL_SOCKET,
                                       socket.SO_REUSEPORT)),
                      (0, joins, shares), f"{text}, {what}: is as it was")
                free = net.port()
                sock.bind((net.WILDCARD[family], free))
                if kind == "tcp":
                    sock.listen()
                sock.setblocking(False)
                equal((net.burst([sock], (net.LOOPBACK[family], free), 3),
                       ps.group(sock) is not None), ([0] * 3, bool(joins)),
                      f"{text}, {what}: binds another port and serves")


@test
def in_its_life():
    """a key dies with its group, not with its founder"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port, where = net.port(), (family, net.WILDCARD[family])
            founder = place(pool, kind, where, port, KEYED)
            second = place(pool, kind, where, port, KEYED)
            founder.close()
            fails("EADDRINUSE", f"{text}: the founder has gone",
                  place, pool, kind, where, port, net.reuseport)
            third = place(pool, kind, where, port, KEYED)
            second.close()
            ps.leave(third)
            equal(ps.table(), {}, f"{text}: the last member leaves")
            third.close()
            unkeyed = place(pool, kind, where, port, ps.member())
            fails("EADDRINUSE", f"{text}: then the port is like any",
                  place, pool, kind, where, port, KEYED)
            unkeyed.close()
            place(pool, kind, where, port, ps.member(key=b"new"))
            fails("EADDRINUSE", f"{text}: another key",
                  place, pool, kind, where, port, KEYED)


@test
def not_listening():
    """TCP sockets that are bound but don't listen count as well"""
    for family in net.FAMILIES:
        text = net.FAMILY_NAMES[family]
        address = net.WILDCARD[family]

        def bound(pool, port, *prepare):
            sock = pool.new("tcp", family)
            for option in prepare:
                option(sock)
            sock.bind((address, port))
            return sock

        for what, prepare in (
                *OTHERS.items(),
                ("SO_REUSEADDR", (net.reuseaddr,)),
                ("both", (net.reuseaddr, net.reuseport))):
            with Pool() as pool:
                port = net.port()
                bound(pool, port, KEYED, net.reuseaddr)
                fails("EADDRINUSE", f"{text}: key, then {what}",
                      bound, pool, port, *prepare)
                port = net.port()
                bound(pool, port, *prepare)
                fails("EADDRINUSE", f"{text}: {what}, then key",
                      bound, pool, port, KEYED, net.reuseaddr)


@test
def stopped_listening():
    """shutdown() and listen() again: the key holds all the time"""
    for family in net.FAMILIES:
        text = net.FAMILY_NAMES[family]
        where = (family, net.WILDCARD[family])
        with Pool() as pool:
            port = net.port()
            sock = place(pool, "tcp", where, port, KEYED)
            sock.shutdown(socket.SHUT_RDWR)
            fails("EADDRINUSE", f"{text}: while it doesn't listen",
                  place, pool, "tcp", where, port, net.reuseport)
            sock.listen()
            fails("EADDRINUSE", f"{text}: when it does again",
                  place, pool, "tcp", where, port, net.reuseport)
            equal(tap.error_of(place, pool, "tcp", where, port, KEYED), None,
                  f"{text}: who knows the key comes in")


@test
def at_listen():
    """a client's socket on the port that turns into a server"""
    for family in net.FAMILIES:
        text, host = net.FAMILY_NAMES[family], net.LOOPBACK[family]
        with Pool() as pool:
            port, elsewhere = net.port(), net.port()
            server = pool.server("tcp", family, elsewhere)
            sock = pool.new("tcp", family)
            net.reuseport(sock)
            sock.bind((host, port))
            sock.connect((host, elsewhere))
            error = tap.error_of(place, pool, "tcp", (family, host), port,
                                 KEYED)
            equal(error, None, f"{text}: a connection doesn't share the port")
            net.disconnect(sock)
            fails("EADDRINUSE", f"{text}: listen()", sock.listen)
            equal(members(), 1, f"{text}: it's no member")
            server.close()


@test
def late_join():
    """JOIN after bind"""
    for text, kind, family in combinations():
        where = (family, net.WILDCARD[family])

        def knows(sock):
            ps.set(sock, ps.KEY, KEY)

        with Pool() as pool:
            port = net.port()
            alone = place(pool, kind, where, port, net.reuseport, knows)
            ps.join(alone)
            fails("EADDRINUSE", f"{text}: a key that came into force by JOIN",
                  place, pool, kind, where, port, net.reuseport)
            port = net.port()
            late = place(pool, kind, where, port, net.reuseport, knows)
            stranger = place(pool, kind, where, port, net.reuseport)
            fails("EADDRINUSE", f"{text}: a stranger shares the port",
                  ps.join, late)
            equal((ps.get(late, ps.JOIN), ps.group(late)), (0, None),
                  f"{text}: nothing changed")
            stranger.close()
            ps.join(late)
            equal(ps.get(late, ps.JOIN), 1, f"{text}: when it has gone")


@test
def by_rule():
    """a rule doesn't open a keyed group, nor close an open one"""
    for text, kind, family in combinations():
        where = (family, net.WILDCARD[family])
        with Pool() as pool:
            port = net.port()
            sock = place(pool, kind, where, port, KEYED)
            for flags in ("", " force=1"):
                ps.rule(f"add {kind} {port} policy=rr{flags}")
                for what, prepare in (*OTHERS.items(), ("plain", ())):
                    fails("EADDRINUSE", f"{text}{flags}: {what}",
                          place, pool, kind, where, port, *prepare)
            equal(ps.group(sock)["members"], 1, f"{text}: one member")
            equal(tap.error_of(place, pool, kind, where, port, KEYED), None,
                  f"{text}: who knows the key comes in")
            port = net.port()
            ps.rule(f"add {kind} {port} policy=rr")
            place(pool, kind, where, port, net.reuseport)
            fails("EADDRINUSE", f"{text}: a key among adopted ones",
                  place, pool, kind, where, port, KEYED)


@test
def other_users():
    """a key opens nothing that the kernel keeps closed"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            place(pool, kind, (family, net.WILDCARD[family]), port, KEYED)

            def attempt(*prepare):
                return tap.error_of(lambda: net.server(
                    kind, family, port, *prepare).close())

            for what, prepare in (("the key", (KEYED,)),
                                  ("no key", (ps.member(),))):
                equal(proc.as_nobody(attempt, *prepare), "EADDRINUSE",
                      f"{text}: another uid with {what}")


@test
def other_namespaces():
    """and other protocols: ports of their own"""
    space = ns.Namespace()
    try:
        for text, kind, family in combinations():
            where = (family, net.WILDCARD[family])
            with Pool() as pool:
                port = net.port()
                place(pool, kind, where, port, KEYED)
                other = "udp" if kind == "tcp" else "tcp"
                with space:
                    errors = [tap.error_of(place, pool, kind, where, port,
                                           *prepare)
                              for prepare in ((ps.member(),),
                                              (net.reuseport,))]
                errors.append(tap.error_of(place, pool, other, where, port,
                                           ps.member(key=b"other")))
                equal(errors, [None] * 3, text)
    finally:
        space.close()


@test
def any_port():
    """bind to port 0 finds a free one, keyed or not"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            place(pool, kind, (family, net.WILDCARD[family]), port, KEYED)
            socks = [place(pool, kind, (family, net.WILDCARD[family]), 0,
                           *prepare) for prepare in
                     ((KEYED,), (net.reuseport,), (ps.member(),), ())]
            ports = {s.getsockname()[1] for s in socks}
            ok(len(ports) == 4 and port not in ports, text, ports)


@test
def racing():
    """two processes at once: never both a keyed member and a stranger"""
    for text, kind, family in combinations():
        def bind(link, *prepare):
            while True:
                port = link.recv()
                try:
                    sock = net.server(kind, family, port, *prepare)
                except OSError:
                    sock = None
                link.send(sock is not None)
                link.recv()
                if sock:
                    sock.close()
                link.send("closed")

        with proc.Child(bind, KEYED) as one, \
                proc.Child(bind, net.reuseport) as two:
            outcomes = []
            for _ in range(20):
                port = net.port()
                for child in (one, two):
                    child.link.send(port)
                outcomes.append((one.get(), two.get()))
                for child in (one, two):
                    child.ask("close")
            ok((True, True) not in outcomes, f"{text}: 20 times", outcomes)


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module)
