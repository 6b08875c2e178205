#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Round robin is exact, and only what starts something takes a turn: a SYN, a
datagram. DESIGN.md 2.3 and 2.4."""
import socket
import subprocess

from lib import kernel, link, net, ns, packet, ps, stats, tap
from lib.net import INET, INET6, Pool, combinations
from lib.tap import equal, ok, test

UDP_GRO = 104


def in_turn(reached, members):
    """Are any neighbours of the sequence different members?"""
    return all(len(set(reached[i:i + members])) == members
               for i in range(len(reached) - members + 1))


def check_group(text, servers, address, count=400, **how):
    """count of them over servers, exactly even, strictly in turn."""
    before = ps.group(servers[0])
    reached = net.burst(servers, address, count, **how)
    even = [count // len(servers)] * len(servers)
    equal(net.counts(reached, len(servers)), even, f"{text}: exactly even")
    ok(in_turn(reached, len(servers)), f"{text}: in turn", reached)
    group = ps.group(servers[0])
    equal([now - then for now, then in zip(group.picked(), before.picked())],
          even, f"{text}: so count the members")
    equal((group["picked"] - before["picked"], group["fallbacks"]),
          (count, 0), f"{text}: so counts the group")


@test
def exact():
    """400 over 4 are 100 each"""
    for text, kind, family in combinations():
        for addr in (net.WILDCARD[family], net.LOOPBACK[family]):
            with Pool() as pool:
                port = net.port()
                servers = pool.servers(4, kind, family, port, ps.member("rr"),
                                       addr=addr)
                check_group(f"{text} {addr}", servers,
                            (net.LOOPBACK[family], port))


@test
def one_client_socket():
    """400 datagrams of one flow are dealt out too"""
    for family in net.FAMILIES:
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(4, "udp", family, port, ps.member("rr"))
            check_group(f"udp {net.FAMILY_NAMES[family]}", servers,
                        (net.LOOPBACK[family], port),
                        through=pool.new("udp", family))


@test
def dual_stack():
    """one [::] group, reached over both families by turns"""
    net.need_ipv6()
    for kind in net.TYPES:
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(4, kind, INET6, port, ps.member("rr"))
            reached = []
            # 400 pairs' halves: an odd number each, so that neither family
            # alone could come out even
            for family, count in ((INET, 101), (INET6, 99), (INET, 97),
                                  (INET6, 103)):
                reached += net.burst(servers, (net.LOOPBACK[family], port),
                                     count)
            equal(net.counts(reached, 4), [100] * 4, f"{kind}: exactly even")
            ok(in_turn(reached, 4), f"{kind}: in turn", reached)
            equal(ps.group(servers[0]).picked(), [100] * 4, f"{kind}: counted")


@test
def other_groups_turns():
    """groups of one port don't take each other's turns"""
    net.need_ipv6()
    for kind in net.TYPES:
        with Pool() as pool:
            port = net.port()
            wild = pool.servers(4, kind, INET, port, ps.member("rr"))
            local = pool.servers(2, kind, INET, port, ps.member("rr"),
                                 addr="127.0.0.1")
            six = pool.servers(2, kind, INET6, port, ps.member("rr"))
            reached = {"local": [], "wild": [], "six": []}
            for _ in range(20):
                reached["local"] += net.burst(local, ("127.0.0.1", port), 1)
                reached["wild"] += net.burst(wild, ("127.0.0.2", port), 1)
                reached["six"] += net.burst(six, ("::1", port), 1)
            equal([net.counts(reached["local"], 2),
                   net.counts(reached["wild"], 4),
                   net.counts(reached["six"], 2)],
                  [[10, 10], [5] * 4, [10, 10]], kind)


@test
def comings_and_goings():
    """exact again after each change of the group"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            servers = pool.servers(4, kind, family, port, ps.member("rr"))
            net.burst(servers, address, 6)
            servers.pop(1).close()
            equal(net.counts(net.burst(servers, address, 60), 3), [20] * 3,
                  f"{text}: one left")
            servers.append(pool.server(kind, family, port, ps.member()))
            servers.append(pool.server(kind, family, port, ps.member()))
            equal(net.counts(net.burst(servers, address, 100), 5), [20] * 5,
                  f"{text}: two came")
            servers[0].close()
            equal(net.counts(net.burst(servers[1:], address, 40), 4), [10] * 4,
                  f"{text}: the first left")


@test
def stranger_in_the_group():
    """who never joined keeps its native share; the rest goes round"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(3, kind, family, port, ps.member("rr"))
            servers.append(pool.server(kind, family, port, net.reuseport))
            shares = net.counts(net.burst(
                servers, (net.LOOPBACK[family], port), 400), 4)
            # A quarter of 400 by hash: 100, give or take 5 times 8.7.
            ok(56 <= shares[3] <= 144, f"{text}: the stranger's", shares)
            ok(max(shares[:3]) - min(shares[:3]) <= 1,
               f"{text}: the members'", shares)


# What is not the start of anything

def counters(family):
    """ICMP: (unreachable messages, errors that no socket wanted)."""
    if family == INET6:
        return (kernel.snmp6("Icmp6InDestUnreachs"),
                kernel.snmp6("Icmp6InErrors"))
    return (kernel.snmp("Icmp", "InDestUnreachs"),
            kernel.snmp("Icmp", "InErrors"))


@test
def icmp_errors():
    """an error's lookup has no packet that a turn could be for"""
    for family in net.FAMILIES:
        text = f"udp {net.FAMILY_NAMES[family]}"
        with Pool() as pool:
            member = (net.LOOPBACK[family], net.port())
            servers = pool.servers(4, "udp", family, member[1],
                                   ps.member("rr"))
            before = counters(family)

            def between(i):
                if i % 3 == 0:
                    packet.send_icmp_error(family, member,
                                           (net.LOOPBACK[family], 20000 + i))

            check_group(text, servers, member, 400, between=between)
            after = counters(family)
            equal((after[0] - before[0], after[1] - before[1]), (134, 0),
                  f"{text}: all errors arrived and found a socket")


@test
def stray_segments():
    """TCP segments other than a SYN"""
    for family in net.FAMILIES:
        text = f"tcp {net.FAMILY_NAMES[family]}"
        with Pool() as pool:
            address = (net.LOOPBACK[family], net.port())
            servers = pool.servers(4, "tcp", family, address[1],
                                   ps.member("rr"))
            kinds = (packet.ACK, packet.SYN | packet.ACK,
                     packet.FIN | packet.ACK, packet.RST, packet.FIN, 0)
            resets = kernel.snmp("Tcp", "OutRsts")
            errors = kernel.snmp("Tcp", "InErrs")

            def between(i):
                if i % 2:
                    packet.send_tcp(family,
                                    (net.LOOPBACK[family], 20000 + i),
                                    address, kinds[i // 2 % len(kinds)])

            check_group(text, servers, address, 400, between=between)
            ok(kernel.snmp("Tcp", "OutRsts") - resets >= 60,
               f"{text}: the strays were looked at, and reset")
            equal(kernel.snmp("Tcp", "InErrs") - errors, 0,
                  f"{text}: none had a bad checksum")


@test
def syn_cookies():
    """the SYN takes the turn, the cookie's ACK is placed by a hash"""
    with kernel.sysctl("net.ipv4.tcp_syncookies", 2):
        for family in net.FAMILIES:
            text = f"tcp {net.FAMILY_NAMES[family]}"
            with Pool() as pool:
                port = net.port()
                servers = pool.servers(4, "tcp", family, port,
                                       ps.member("rr"))
                reached = net.burst(servers, (net.LOOPBACK[family], port), 400)
                group = ps.group(servers[0])
                equal(group.picked(), [100] * 4, f"{text}: turns by SYN")
                equal(group["picked"], 400, f"{text}: one for each SYN")
                shares = net.counts(reached, 4)
                ok(sum(shares) == 400 and stats.uniform(shares),
                   f"{text}: accepted all, evenly", shares)


@test
def closed_port():
    """lookups that find nothing and traffic on other ports"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port, other, closed = net.port(), net.port(), net.port()
            servers = pool.servers(4, kind, family, port, ps.member("rr"))
            alone = pool.server(kind, family, other)

            def between(i):
                net.burst([alone], (net.LOOPBACK[family], other), 1)
                try:
                    net.client(kind, (net.LOOPBACK[family], closed)).close()
                except ConnectionRefusedError:
                    pass

            check_group(text, servers, (net.LOOPBACK[family], port), 40,
                        between=between)


@test
def gro():
    """GRO looks the socket up before the packet is delivered"""
    space = ns.Namespace()
    try:
        with Pool() as pool:
            link.veth("psgro0", "psgro1", space)
            pool.callback(subprocess.run, ["ip", "link", "del", "psgro0"])
            commands = ["ip link set psgro0 up",
                        "ip addr add 10.9.9.1/24 dev psgro0"]
            for command in commands:
                subprocess.run(command.split(), check=True)
            with space:
                for command in ("ip link set psgro1 up",
                                "ip addr add 10.9.9.2/24 dev psgro1"):
                    subprocess.run(command.split(), check=True)
                link.gro("psgro1")
                port = net.port()
                servers = pool.servers(4, "udp", INET, port, ps.member("rr"))
                for sock in servers:
                    sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
            sender = pool.new("udp", INET)
            sender.sendto(b"x", ("10.9.9.2", port))	# resolves the address
            with net.Watch(servers) as watch:
                first = watch.take()
                reached = [first]
                for _ in range(399):
                    sender.sendto(b"x", ("10.9.9.2", port))
                    reached.append(watch.take())
            equal(net.counts(reached, 4), [100] * 4, "exactly even")
            with space:
                equal(ps.group(servers[0]).picked(), [100] * 4, "counted once")
    finally:
        space.close()


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module)
