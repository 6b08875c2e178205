#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=600
"""Datagrams that come in an unusual way, or to an unusual group: connected
members (case 8), trains, fragments, extension headers, early demux, ICMP
errors. All octets arrive, under each policy, with affinity and without."""
import os
import select
import socket

from lib import kernel, link, net, ps, tap
from lib.net import INET, INET6, Pool
from lib.tap import equal, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
# One that goes by the flow, one by turns, one by load, one by the packet.
POLICIES = ("hash", "rr", "least", "quic") if QUICK else ps.POLICIES

UDP_SEGMENT, UDP_GRO = 103, 104
IP_RECVERR, IPV6_RECVERR = 11, 25
IPV6_ADDRFORM = 1
IPV6_RECVHOPOPTS, IPV6_HOPOPTS = 53, 54
IPV6_RECVDSTOPTS, IPV6_DSTOPTS = 58, 59

# Those that give something to all members, wherever packets come from.
EVEN = ("hash", "rr", "random", "least", "consistent", "quic")


def variants(policies=POLICIES):
    """(text, family, options of a member, policy, affinity)"""
    for policy in policies:
        for affinity in (0, 60):
            for family in net.FAMILIES:
                yield (f"{policy}{' affinity' if affinity else ''} "
                       f"{net.FAMILY_NAMES[family]}", family,
                       ps.member(policy, affinity=affinity), policy, affinity)


def clients(pool, family, count):
    """Unconnected senders whose ports differ."""
    socks = [pool.new("udp", family) for _ in range(count)]
    for sock in socks:
        sock.bind((net.WILDCARD[family], 0))
    return socks


def send(watch, sock, address, data=b"x"):
    """The index of who got just that, else what came."""
    sock.sendto(data, address)
    got = watch.receive()
    return got[0] if got and got[1] == data else got


def flows(watch, socks, address, rounds):
    """For each sender: who got its datagrams."""
    reached = [[] for _ in socks]
    for number in range(rounds):
        for i, sock in enumerate(socks):
            reached[i].append(send(watch, sock, address,
                                   b"%d %d" % (i, number)))
    return reached


def stayed(reached):
    """Is each sender's list one member's?"""
    return all(len(set(one)) == 1 for one in reached)


# Case 8

# Divisible by three.
SENDERS, ROUNDS = (36, 1) if QUICK else (60, 5)


def check_connected(text, servers, address, policy, affinity, peer, others):
    """servers[1] gets peer's 50 and none else, the other three the others'."""
    picked = ps.group(servers[0])["picked"]
    with net.Watch(servers) as watch:
        before = flows(watch, others, address, 1)
        servers[1].connect(peer.getsockname())
        info = ps.info(servers[1])
        equal((info.members, info.selectable), (4, 3),
              f"{text}: not selectable")
        equal([send(watch, peer, address, b"%d" % i) for i in range(50)],
              [1] * 50, f"{text}: its peer's 50")
        reached = flows(watch, others, address, ROUNDS)
        equal([send(watch, peer, address, b"%d" % i) for i in range(50)],
              [1] * 50, f"{text}: its peer's next 50")
        total = SENDERS * ROUNDS
        shares = net.counts(sum(reached, []), 4)
        equal((sum(shares), shares[1]), (total, 0),
              f"{text}: {total} of others over the other three")
        if policy == "rr" and not affinity:
            equal(shares, [total // 3, 0, total // 3, total // 3],
                  f"{text}: exactly even")
        elif policy in EVEN:
            # Of so many flows, or datagrams: no chance is that bad.
            ok(min(shares[0], *shares[2:]) > 0, f"{text}: each has some",
               shares)
        if affinity:
            ok(stayed(reached), f"{text}: flows stay", reached)
            equal([r[0] for r, b in zip(reached, before) if b != [1]],
                  [b[0] for b in before if b != [1]],
                  f"{text}: those of the other three have not moved")
        # The peer's come by the connection, not by the policy.
        equal(ps.group(servers[0])["picked"] - picked, total + SENDERS,
              f"{text}: what the policy has given")
        net.disconnect(servers[1])
        equal(ps.info(servers[1]).selectable, 4,
              f"{text}: selectable once it has no peer")
        again = flows(watch, others, address, 1)
        if affinity:
            equal([one[0] for one in again], [one[0] for one in reached],
                  f"{text}: flows are where they were")
        fresh = net.burst(servers, address, 60)
        if policy in EVEN:
            equal(set(fresh), {0, 1, 2, 3}, f"{text}: it has its share again")
        equal(watch.rest(), [], f"{text}: none came twice")


@test
def connected_member():
    """case 8: a member that has a peer, on an address and on all of them"""
    for text, family, member, policy, affinity in variants():
        host = net.LOOPBACK[family]
        addrs = (host, net.WILDCARD[family])
        more = policy == "rr" or policy == "quic" and not QUICK
        for addr in addrs if more else addrs[:1]:
            with Pool() as pool:
                port = net.port()
                peer = pool.server("udp", family, net.port(), addr=host)
                check_connected(
                    f"{text} {addr}",
                    pool.servers(4, "udp", family, port, member, addr=addr),
                    (host, port), policy, affinity, peer,
                    clients(pool, family, SENDERS))


@test
def early_demux():
    """from a device: the kernel may find a connected socket before we do"""
    with Pool() as outer:
        cable = link.Cable(outer)
        for early in (1, 0):
            with cable.space:
                with open("/proc/sys/net/ipv4/udp_early_demux", "w") as file:
                    file.write(str(early))	# it goes with the namespace
            for text, family, member, policy, affinity in variants(
                    ("hash", "rr") if early or not QUICK else ("rr",)):
                with Pool() as pool:
                    port = net.port()
                    peer = pool.server("udp", family, net.port(),
                                       addr=cable.near[family])
                    others = clients(pool, family, SENDERS)
                    with cable.space:
                        check_connected(
                            f"{text} early_demux={early}",
                            pool.servers(4, "udp", family, port, member,
                                         addr=cable.far[family]),
                            (cable.far[family], port), policy, affinity, peer,
                            others)


@test
def mapped_peer():
    """an IPv6 member with an IPv4 peer, also when it becomes an IPv4 socket"""
    net.need_ipv6()
    for policy in POLICIES:
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(4, "udp", INET6, port, ps.member(policy),
                                   addr="::ffff:127.0.0.1")
            peer = pool.server("udp", net.INET, net.port(), addr="127.0.0.1")
            others = clients(pool, net.INET, 12)
            servers[1].connect(("::ffff:127.0.0.1", peer.getsockname()[1]))
            with net.Watch(servers) as watch:
                for what in (policy, f"{policy} IPV6_ADDRFORM"):
                    if what != policy:
                        servers[1].setsockopt(socket.IPPROTO_IPV6,
                                              IPV6_ADDRFORM, socket.AF_INET)
                    equal([send(watch, peer, ("127.0.0.1", port), b"%d" % i)
                           for i in range(20)], [1] * 20, f"{what}: its peer's")
                    reached = sum(flows(watch, others, ("127.0.0.1", port), 3),
                                  [])
                    ok(set(reached) <= {0, 2, 3},
                       f"{what}: others' go by the policy", reached)
                net.disconnect(servers[1])
                reached = sum(flows(watch, others, ("127.0.0.1", port), 3), [])
                ok(set(reached) <= {0, 1, 2, 3},
                   f"{policy}: none is lost when it has no peer any more",
                   reached)
                equal(watch.rest(), [], f"{policy}: and none came twice")


@test
def alone_with_peers():
    """all members have peers: strangers' datagrams have nowhere to go"""
    for text, family, member, _, _ in variants():
        host = net.LOOPBACK[family]
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(3, "udp", family, port, member, addr=host)
            peers = [pool.server("udp", family, net.port(), addr=host)
                     for _ in servers]
            for sock, peer in zip(servers, peers):
                sock.connect(peer.getsockname())
            with net.Watch(servers) as watch:
                equal([send(watch, peer, (host, port)) for peer in peers * 5],
                      [0, 1, 2] * 5, f"{text}: each its own")
                with net.new("udp", family) as stranger:
                    stranger.connect((host, port))
                    stranger.send(b"x")
                    tap.fails("ECONNREFUSED", f"{text}: nobody is there",
                              stranger.recv, 10)
                equal(watch.rest(), [], f"{text}: and got it")


# Trains

# Over a device, by UDP_GRO sockets, from UDP_SEGMENT ones?
WAYS = ((True, True, False), (False, False, True), (True, True, True),
        (False, True, True), (True, False, True), (True, False, False))
TRAINS, PACKETS, SIZE, LAST = 2, 20, 500, 123
ALL = (PACKETS - 1) * SIZE + LAST


def set_option(option, value):
    return lambda sock: sock.setsockopt(socket.IPPROTO_UDP, option, value)


def train(client, number):
    """Packets that say whose and which they are; the last one is short."""
    packets = [b"%02d %04d %02d " % (client, number, i) + os.urandom(SIZE - 11)
               for i in range(PACKETS)]
    packets[-1] = packets[-1][:LAST]
    return packets


def cut(data):
    """What UDP_GRO has put together, in packets again."""
    return [data[i:i + SIZE] for i in range(0, len(data), SIZE)]


def collect(watch, size):
    """[(index, packet)] until so many octets have come."""
    got = []
    while size > 0 and (came := watch.receive(5)):
        got += [(came[0], packet) for packet in cut(came[1])]
        size -= len(came[1])
    return got


def lo_segments():
    """Does lo want trains cut up? That of 5.10 does."""
    with Pool() as pool:
        plain = pool.server("udp", net.INET, net.port(),
                            set_option(UDP_GRO, 1))
        sender = pool.new("udp", net.INET)
        set_option(UDP_SEGMENT, SIZE)(sender)
        sender.sendto(bytes(2 * SIZE), plain.getsockname())
        return len(plain.recv(3 * SIZE)) == SIZE


def send_train(sock, packets, address):
    if sock.getsockopt(socket.IPPROTO_UDP, UDP_SEGMENT):
        sock.sendto(b"".join(packets), address)
    else:
        for packet in packets:
            sock.sendto(packet, address)


def check_trains(text, servers, address, affinity, socks, segmented):
    """Each sender sends trains; all arrive, one sender's in order where
    they come as such (segmented)."""
    sent = {}
    owners = {}
    with net.Watch(servers) as watch:
        for number in range(TRAINS):
            for i, sock in enumerate(socks):
                packets = train(i, number)
                sent[i] = packets
                # A sender that goes to another CPU may overtake itself.
                with kernel.on_cpu(0):
                    send_train(sock, packets, address)
            got = collect(watch, ALL * len(socks))
            for i, packets in sent.items():
                mine = [(j, packet) for j, packet in got
                        if packet.startswith(b"%02d " % i)]
                if affinity or segmented:
                    # by one member: so they are in order as well
                    whole = [packet for _, packet in mine] == packets
                    owners.setdefault(i, set()).update(j for j, _ in mine)
                else:
                    whole = sorted(p for _, p in mine) == sorted(packets)
                if not whole:
                    ok(False, f"{text}: train {number} of {i}", mine)
                if segmented and len({j for j, _ in mine}) != 1:
                    ok(False, f"{text}: one train, one member",
                       [j for j, _ in mine])
            if len(got) != PACKETS * len(socks):
                ok(False, f"{text}: all packets", len(got))
        if affinity:
            ok(all(len(one) == 1 for one in owners.values()),
               f"{text}: each flow on one member", owners)
        equal(watch.rest(), [], f"{text}: all that was sent, once")
    group = ps.group(servers[0])
    total = len(socks) * TRAINS
    ok(group["fallbacks"] == 0 and
       total <= group["picked"] <= total * PACKETS and
       group["picked"] == sum(group.picked()),
       f"{text}: counted", group)


@test
def trains():
    """UDP_SEGMENT, GRO and UDP_GRO, over lo and over a device"""
    cuts = lo_segments()
    with Pool() as outer:
        cable = link.Cable(outer)
        for text, family, member, policy, affinity in variants():
            thorough = policy in (("rr", "quic") if QUICK else
                                  ("hash", "rr", "quic"))
            count = (1, 2) if QUICK else (3, 6)
            for far, receive, segmented in WAYS[:count[thorough]]:
                options = [member]
                if receive:
                    options.append(set_option(UDP_GRO, 1))
                what = (f"{text} {'a device' if far else 'lo'}"
                        f"{' UDP_GRO' if receive else ''}"
                        f"{' UDP_SEGMENT' if segmented else ''}")
                with Pool() as pool:
                    port = net.port()
                    # few enough that no queue overflows
                    socks = clients(pool, family, 4)
                    for sock in socks:
                        if segmented:
                            set_option(UDP_SEGMENT, SIZE)(sock)
                    with cable.space if far else Pool():
                        servers = pool.servers(4, "udp", family, port,
                                               *options)
                        check_trains(what, servers,
                                     (cable.far[family] if far else
                                      net.LOOPBACK[family], port), affinity,
                                     socks, segmented and
                                     not (cuts and not far))


# Fragments and extension headers

def reassembled(family):
    if family == INET6:
        return kernel.snmp6("Ip6ReasmOKs")
    return kernel.snmp("Ip", "ReasmOKs")


def check_alike(text, watch, socks, address, policy, affinity, one, other):
    """one(i) and other(i) are sent by turns; flows stay, rr goes round."""
    reached = [[] for _ in socks]
    order = []
    for make in (one, other, other, one):
        for i, sock in enumerate(socks):
            order.append(make(i, sock))
            reached[i].append(order[-1])
    ok(set(order) <= {0, 1, 2, 3}, f"{text}: all octets arrive", order)
    if affinity or policy in ("hash", "consistent", "quic"):
        ok(stayed(reached), f"{text}: flows stay", reached)
    elif policy == "rr":
        equal(net.counts(order, 4), [len(socks)] * 4, f"{text}: exactly even")
    equal(watch.rest(), [], f"{text}: none came twice")


@test
def fragments():
    """20 kB over a link of 1500, between datagrams that fit"""
    with Pool() as outer:
        cable = link.Cable(outer)
        for text, family, member, policy, affinity in variants(
                ("rr", "quic") if QUICK else POLICIES):
            with Pool() as pool:
                port = net.port()
                address = (cable.far[family], port)
                socks = clients(pool, family, 8)
                with cable.space:
                    servers = pool.servers(4, "udp", family, port, member)
                    before = reassembled(family)
                    with net.Watch(servers) as watch:
                        check_alike(
                            text, watch, socks, address, policy, affinity,
                            lambda i, sock: send(watch, sock, address,
                                                 os.urandom(20000)),
                            lambda i, sock: send(watch, sock, address))
                        equal(reassembled(family) - before, 16,
                              f"{text}: they did come in fragments")
                        equal(ps.group(servers[0])["picked"], 32,
                              f"{text}: each counted once")
                # a connected member's peer sends such ones as well
                peer = pool.server("udp", family, net.port(),
                                   addr=cable.near[family])
                with cable.space:
                    servers[1].connect(peer.getsockname())
                    with net.Watch(servers) as watch:
                        equal([send(watch, peer, address, os.urandom(20000))
                               for _ in range(4)], [1] * 4,
                              f"{text}: a peer's")


PADDING = bytes([0, 0, 1, 4, 0, 0, 0, 0])


def with_headers(watch, servers, sock, address, kinds):
    """Send a datagram with such headers; who got it with all of them."""
    sock.sendmsg([b"headers"], [(socket.IPPROTO_IPV6, kind, PADDING)
                                for kind in kinds], 0, address)
    # not watch.receive(): that leaves the headers out
    readable = select.select(servers, [], [], 20)[0]
    if len(readable) != 1:
        return None
    data, extra, _, _ = readable[0].recvmsg(100, 1000)
    if data != b"headers" or {kind for _, kind, _ in extra} != set(kinds):
        return None
    return servers.index(readable[0])


def tell_headers(sock):
    for option in (IPV6_RECVHOPOPTS, IPV6_RECVDSTOPTS):
        sock.setsockopt(socket.IPPROTO_IPV6, option, 1)


@test
def extension_headers():
    """hop-by-hop and destination options before the UDP header"""
    net.need_ipv6()
    for text, family, member, policy, affinity in variants():
        if family != INET6:
            continue
        for kinds in ((IPV6_HOPOPTS, IPV6_DSTOPTS), (IPV6_HOPOPTS,),
                      (IPV6_DSTOPTS,))[:1 if QUICK else 3]:
            what = f"{text} {'+'.join(map(str, kinds))}"
            with Pool() as pool:
                port = net.port()
                address = ("::1", port)
                servers = pool.servers(4, "udp", INET6, port, member,
                                       tell_headers, addr="::1")
                with net.Watch(servers) as watch:
                    check_alike(
                        what, watch, clients(pool, INET6, 8), address, policy,
                        affinity,
                        lambda i, sock: with_headers(watch, servers, sock,
                                                     address, kinds),
                        lambda i, sock: send(watch, sock, address))
                    peer = pool.server("udp", INET6, net.port(), addr="::1")
                    servers[1].connect(peer.getsockname())
                    equal([with_headers(watch, servers, peer, address, kinds)
                           for _ in range(4)], [1] * 4, f"{what}: a peer's")


# ICMP errors

def recverr(sock):
    if sock.family == INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)


def errors(servers):
    """How many errors each has been told; takes them."""
    found = [0] * len(servers)
    for i, sock in enumerate(servers):
        try:
            while True:
                sock.recvmsg(100, 1000, socket.MSG_ERRQUEUE)
                found[i] += 1
        except BlockingIOError:
            pass
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return found


def unreachable(servers, family, count):
    """Each sends to closed ports; how many errors each got, by sender."""
    shares = []
    for sock in servers:
        told = [0] * len(servers)
        for _ in range(count):
            sock.sendto(b"x", (net.LOOPBACK[family], net.port()))
            told = [a + b for a, b in zip(told, errors(servers))]
        shares.append(told)
    return shares


@test
def icmp_errors():
    """port unreachable is told to one socket, as in stock"""
    count = 3 if QUICK else 20

    def run(family, *prepare):
        """How many errors there are of each one's datagrams; then who is told
        when one with a peer sends; what the policy has given."""
        with Pool() as pool:
            servers = pool.servers(4, "udp", family, net.port(), *prepare,
                                   recverr, addr=net.LOOPBACK[family])
            told = [sum(one) for one in unreachable(servers, family, count)]
            servers[1].connect((net.LOOPBACK[family], net.port()))
            mine = []
            for _ in range(count):
                servers[1].send(b"x")
                mine.append(errors(servers))
            group = ps.group(servers[0]) if ps.loaded() else {"picked": 0}
            return told, mine, group["picked"]

    ps.unload()
    stock = {family: run(family, net.reuseport) for family in net.FAMILIES}
    ps.load()
    for family in net.FAMILIES:
        equal(stock[family], ([count] * 4, [[0, 1, 0, 0]] * count, 0),
              f"{net.FAMILY_NAMES[family]}: in stock none is lost")
    for text, family, member, _, _ in variants(
            ("rr", "quic") if QUICK else POLICIES):
        equal(run(family, member), stock[family],
              f"{text}: as in stock, and an error is no datagram")


@test
def connected_mapped_and_device():
    """a connected member's peer and its errors stay its own: of an IPv4-mapped
    address, and bound to a device after connect()"""
    mapped = "::ffff:127.0.0.1"
    for text, family, addr, device in (
            ("IPv4", INET, "127.0.0.1", None),
            ("mapped", INET6, mapped, None),
            ("IPv4, device", INET, "127.0.0.1", b"lo"),
            ("IPv6, device", INET6, "::1", b"lo"),
            ("mapped, device", INET6, mapped, b"lo")):
        with Pool() as pool:
            port = net.port()
            first = pool.server("udp", family, port, ps.member("rr"), addr=addr)
            own = pool.server("udp", family, port, ps.member(), addr=addr)
            pool.servers(2, "udp", family, port, ps.member(), addr=addr)
            peer = pool.server("udp", family, net.port(), addr=addr)
            own.connect(peer.getsockname()[:2])
            if device:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
            got = 0
            for _ in range(10):
                peer.sendto(b"x", (addr, port))
                if select.select([own], [], [], 2)[0]:
                    got += len(own.recv(8))
            equal(got, 10, f"{text}: has its peer's datagrams")
            peer.close()
            own.send(b"x")
            select.select([own], [], [], 2)
            tap.fails("ECONNREFUSED", f"{text}: hears that its peer has gone",
                      own.recv, 8)
            equal(ps.group(first)["selectable"], 3, f"{text}: isn't picked")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module)
