#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Acceptance cases 10 and 11: what portsteer leaves to the kernel."""
import itertools
import socket
import struct
import subprocess

from lib import kernel, net, ps, tap
from lib.net import INET, INET6, Pool
from lib.tap import equal, fails, ok, test

POLICIES = ("hash", "rr")
IP_ADD_MEMBERSHIP = 35
ROUNDS = 10


def received(watch, count, members):
    """What each member got of count datagrams to all of them."""
    got = [[] for _ in range(members)]
    for _ in range(count * members):
        came = watch.receive(2)
        if came is None:
            break
        got[came[0]].append(came[1])
    return got


def multicast_device():
    """A device for IPv6 multicast, which lo doesn't take; its index."""
    commands = ("ip link add psmc0 type veth peer name psmc1",
                "ip link set psmc1 up", "ip link set psmc0 up",
                "ip addr add fd99::1/64 dev psmc0 nodad")
    for command in commands:
        done = subprocess.run(command.split(), capture_output=True, text=True)
        if done.returncode:
            raise tap.Skip(f"{command}: {done.stderr.strip()}")
    return socket.if_nametoindex("psmc0")


def join_multicast(sock, family, address, device):
    if family == INET:
        sock.setsockopt(socket.IPPROTO_IP, IP_ADD_MEMBERSHIP,
                        socket.inet_aton(address) +
                        socket.inet_aton("127.0.0.1"))
    else:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP,
                        socket.inet_pton(INET6, address) +
                        struct.pack("I", device))


def sender(pool, family, device):
    sock = pool.new("udp", family)
    if family == INET:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF,
                        socket.inet_aton("127.0.0.1"))
    else:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF,
                        device)
    return sock


@test
def multicast_and_broadcast():
    """reach every member every time; unicast reaches one"""
    device = multicast_device()
    targets = {
        INET: {"multicast": ("239.1.2.3",), "broadcast": ("127.255.255.255",)},
        INET6: {"multicast": ("ff02::4321", 0, device)},
    }
    for policy, affinity in itertools.product(ps.POLICIES, (0, 60)):
        for family in (INET, INET6):
            text = (f"{policy}{' affinity' if affinity else ''} "
                    f"{net.FAMILY_NAMES[family]}")
            with Pool() as pool:
                port = net.port()
                servers = pool.servers(4, "udp", family, port,
                                       ps.member(policy, affinity=affinity))
                for sock in servers:
                    join_multicast(sock, family,
                                   targets[family]["multicast"][0], device)
                through = sender(pool, family, device)
                watch = pool.enter_context(net.Watch(servers))
                for what, (host, *rest) in targets[family].items():
                    sent = [b"%d" % i for i in range(ROUNDS)]
                    # A sender that goes to another CPU may overtake itself.
                    with kernel.on_cpu(0):
                        for data in sent:
                            through.sendto(data, (host, port, *rest))
                    equal(received(watch, ROUNDS, 4), [sent] * 4,
                          f"{text}: {what}")
                reached = net.burst(servers, (net.LOOPBACK[family], port),
                                    ROUNDS)
                # nor is any left of those to all
                reached += watch.rest()
                ok(len(reached) == ROUNDS and None not in reached,
                   f"{text}: unicast sums to exactly {ROUNDS}", reached)
                equal(sum(ps.group(servers[0]).picked()), ROUNDS,
                      f"{text}: only unicast was the policy's")
    subprocess.run(["ip", "link", "del", "psmc0"], check=True)


# Case 11

PLACES = ((INET, "0.0.0.0"), (INET, "0.0.0.0"), (INET6, "::"),
          (INET, "127.0.0.1"), (INET6, "::ffff:127.0.0.2"))
TARGETS = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "::1")


def matrix(kind, *prepare):
    """{target: how many of 60 each of the places got}"""
    with Pool() as pool:
        port = net.port()
        servers = [pool.server(kind, family, port, *prepare, addr=addr)
                   for family, addr in PLACES]
        return {target: net.counts(net.burst(servers, (target, port), 60),
                                   len(servers)) for target in TARGETS}


def classes(result):
    """The same by address: the two on 0.0.0.0 are one."""
    return {target: [shares[0] + shares[1], *shares[2:]]
            for target, shares in result.items()}


@test
def address_classes():
    """which address wins is the kernel's business"""
    ps.unload()
    stock = {kind: classes(matrix(kind, net.reuseport)) for kind in net.TYPES}
    ps.load()
    for kind in net.TYPES:
        tap.diag(f"{kind} as stock: {stock[kind]}")
        for policy in POLICIES:
            result = matrix(kind, ps.member(policy))
            equal(classes(result), stock[kind], f"{kind} {policy}: as stock")
            if policy == "rr":
                equal(result["127.0.0.3"][:2], [30, 30],
                      f"{kind} {policy}: the two of a group in turn")
        # the order in which they bind must not matter to us either
        with Pool() as pool:
            port = net.port()
            servers = [pool.server(kind, family, port, ps.member("rr"),
                                   addr=addr)
                       for family, addr in reversed(PLACES)][::-1]
            result = {target: net.counts(net.burst(
                servers, (target, port), 60), 5) for target in TARGETS}
            equal(classes(result), stock[kind], f"{kind}: bound in reverse")


@test
def some_are_strangers():
    """members and plain SO_REUSEPORT sockets side by side"""
    for kind in net.TYPES:
        for strangers in range(len(PLACES)):
            with Pool() as pool:
                port = net.port()
                servers = [pool.server(kind, family, port,
                                       net.reuseport if i == strangers
                                       else ps.member("rr"), addr=addr)
                           for i, (family, addr) in enumerate(PLACES)]
                result = {target: net.counts(net.burst(
                    servers, (target, port), 20), 5) for target in TARGETS}
                winners = {target: [i for i, n in enumerate(shares) if n]
                           for target, shares in classes(result).items()}
                # by family and address: the most specific that fits
                equal(winners, {"127.0.0.1": [2], "127.0.0.2": [3],
                                "127.0.0.3": [0], "::1": [1]},
                      f"{kind}: the {PLACES[strangers][1]} one is a stranger")


def on_lo(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")


def device_shares(kind, family, *prepare):
    """One server on any device, two on lo: shares, and the first two's name"""
    with Pool() as pool:
        port = net.port()
        servers = [pool.server(kind, family, port, *prepare, *more)
                   for more in ((), (on_lo,), (on_lo,))]
        shares = net.counts(net.burst(
            servers, (net.LOOPBACK[family], port), 20), 3)
        if ps.loaded():
            name = ps.name(servers[0])
            head, _, tail = name.rpartition(":")
            equal(sorted(ps.table()), sorted([name, f"{head}%lo:{tail}"]),
                  f"{kind} {net.FAMILY_NAMES[family]}: the groups' names")
        return shares


@test
def bound_device():
    """whether a socket bound to the device wins is the kernel's business"""
    # It does, but not for IPv6 over lo: hence no expectation of our own.
    ps.unload()
    stock = {text: device_shares(kind, family, net.reuseport)[0]
             for text, kind, family in net.combinations()}
    ps.load()
    for text, kind, family in net.combinations():
        shares = device_shares(kind, family, ps.member("rr"))
        equal(shares, [20, 0, 0] if stock[text] else [0, 10, 10], text)


@test
def connected_udp():
    """a connected stranger keeps its peer's datagrams"""
    for family in (INET, INET6):
        text = net.FAMILY_NAMES[family]
        host = net.LOOPBACK[family]
        with Pool() as pool:
            port = net.port()
            peer = pool.server("udp", family, net.port(), addr=host)
            servers = pool.servers(2, "udp", family, port, ps.member("rr"),
                                   addr=host)
            stranger = pool.server("udp", family, port, net.reuseport,
                                   addr=host)
            stranger.connect(peer.getsockname())
            everyone = [*servers, stranger]
            reached = net.burst(everyone, (host, port), 20, through=peer)
            equal(net.counts(reached, 3), [0, 0, 20], f"{text}: the peer's")
            reached = net.burst(everyone, (host, port), 20)
            equal(net.counts(reached, 3), [10, 10, 0], f"{text}: others'")


@test
def binds_in_the_way():
    """who may not share the port with a member"""
    plain, reuseaddr = (), (net.reuseaddr,)
    pairs = {"member + plain": ((ps.member(),), plain),
             "plain + member": (plain, (ps.member(),)),
             "SO_REUSEADDR + member": (reuseaddr, (ps.member(),)),
             "member + SO_REUSEADDR": ((ps.member(),), reuseaddr)}
    places = [(INET, "0.0.0.0", INET, "0.0.0.0"),
              (INET, "127.0.0.1", INET, "127.0.0.1"),
              (INET, "0.0.0.0", INET, "127.0.0.1"),
              (INET, "127.0.0.1", INET, "0.0.0.0"),
              (INET6, "::", INET6, "::"),
              (INET6, "::", INET6, "::1"),
              (INET6, "::1", INET6, "::"),
              (INET6, "::", INET, "127.0.0.1"),
              (INET, "127.0.0.1", INET6, "::"),
              (INET, "0.0.0.0", INET6, "::"),
              (INET6, "::ffff:127.0.0.1", INET, "127.0.0.1"),
              (INET, "127.0.0.1", INET6, "::ffff:127.0.0.1"),
              (INET6, "::ffff:127.0.0.1", INET, "0.0.0.0")]
    for kind in net.TYPES:
        for what, (first, second) in pairs.items():
            for one, addr, two, other in places:
                with Pool() as pool:
                    port = net.port()
                    sock = pool.server(kind, one, port, *first, addr=addr)
                    fails("EADDRINUSE", f"{kind} {what}, {addr} + {other}",
                          net.server, kind, two, port, *second, addr=other)
                    members = sum(g["members"] for g in ps.table().values())
                    if members != int(what.startswith("member")):
                        ok(False, "the loser leaves no member", ps.table())
                    sock.close()
        for one, addr, two, other in (
                (INET, "127.0.0.1", INET, "127.0.0.2"),
                (INET6, "::1", INET, "127.0.0.1")):
            with Pool() as pool:
                port = net.port()
                pool.server(kind, one, port, ps.member(), addr=addr)
                equal(tap.error_of(lambda: pool.server(
                    kind, two, port, addr=other)), None,
                    f"{kind}: {addr} and {other} don't meet")
        with Pool() as pool:
            port = net.port()
            pool.server(kind, INET6, port, ps.member(), net.v6only)
            equal(tap.error_of(lambda: pool.server(kind, INET, port)), None,
                  f"{kind}: a v6only member leaves 0.0.0.0 alone")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module)
