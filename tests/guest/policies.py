#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=600
"""What each policy gives to whom: shares, weights, loads, mappings. Case 6 and
case 9. What depends on CPUs is in cpu.py, on sleep in idle.py."""
import fcntl
import itertools
import os
import random
import select
import socket
import struct
import subprocess

from lib import net, packet, proc, ps, stats, tap
from lib.net import INET, Pool, combinations
from lib.tap import Skip, equal, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
MANY = 2000 if QUICK else 10000

SEED = "20563a0b0c0d0e0f2056320563205632"
TCP_DEFER_ACCEPT = 9

TUNSETIFF = 0x400454ca
IFF_TUN, IFF_NO_PI, IFF_MULTI_QUEUE = 0x0001, 0x1000, 0x0100


def even(text, shares, low, high):
    """Nobody has fewer or more than that."""
    ok(low <= min(shares) and max(shares) <= high, text, shares)


def differ_by_one(text, shares):
    even(text, shares, max(shares) - 1, max(shares))


def chance(count, share):
    """What a member with that share gets of count, but once in a million."""
    spread = 5 * (count * share * (1 - share)) ** 0.5
    return count * share - spread, count * share + spread


def backlogs(sock):
    return [member["backlog"] for member in ps.group(sock).members]


# rr

@test
def rr_single_flow():
    """10,000 datagrams of one flow over 4 are 2500 each"""
    for family in net.FAMILIES:
        count = MANY if family == INET else MANY // 5
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(4, "udp", family, port, ps.member("rr"))
            equal(net.deal(servers, (net.LOOPBACK[family], port), count,
                           through=pool.new("udp", family)),
                  [count // 4] * 4, f"udp {net.FAMILY_NAMES[family]}")


@test
def rr_held():
    """64 held connections over 8 are 8 each"""
    for family in net.FAMILIES:
        text = f"tcp {net.FAMILY_NAMES[family]}"
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(8, "tcp", family, port, ps.member("rr"))
            clients = net.hold(pool, (net.LOOPBACK[family], port), 64)
            equal(net.take_all(servers, len(clients)), [8] * 8, text)


# Weights

@test
def weights_exact():
    """rr: 3 to 1 exactly, smoothly, and when weights change"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            servers = [pool.server(kind, family, port,
                                   ps.member("rr", weight=weight))
                       for weight in (3, 1)]
            reached = net.burst(servers, address, 40)
            equal(net.counts(reached, 2), [30, 10], f"{text}: 3 to 1")
            rounds = [sorted(reached[i:i + 4]) for i in range(0, 40, 4)]
            equal(rounds, [[0, 0, 0, 1]] * 10, f"{text}: in each round")
            for weights, want in (((1, 3), [10, 30]), ((2, 2), [20, 20]),
                                  ((65535, 65535), [20, 20]),
                                  ((1, 7), [5, 35])):
                for sock, weight in zip(servers, weights):
                    ps.set(sock, ps.WEIGHT, weight)
                equal(net.deal(servers, address, 40), want,
                      f"{text}: {weights}")
            servers.append(pool.server(kind, family, port,
                                       ps.member(weight=2)))
            equal(net.deal(servers, address, 100), [10, 70, 20],
                  f"{text}: a third one")


@test
def weights_by_chance():
    """hash, random and consistent: 3 to 1 but for chance"""
    ps.parameter("seed", SEED)
    for policy in ("hash", "random", "consistent"):
        for text, kind, family in combinations():
            with Pool() as pool:
                port = net.port()
                servers = [pool.server(kind, family, port,
                                       ps.member(policy, weight=weight))
                           for weight in (3, 1)]
                shares = net.deal(servers, (net.LOOPBACK[family], port), 200)
                low, high = chance(200, 0.75)
                ok(sum(shares) == 200 and low <= shares[0] <= high,
                   f"{text} {policy}", shares)


@test
def weights_of_load():
    """least: three times the weight, three times the load"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            servers = [pool.server(kind, family, port,
                                   ps.member("least", weight=weight))
                       for weight in (3, 1)]
            load(pool, kind, address, 40)
            shares = net.take_all(servers, 40)
            ok(sum(shares) == 40 and abs(shares[0] - 30) <= 1,
               f"{text}: held", shares)
            equal(net.counts(net.burst(servers, address, 40), 2), [30, 10],
                  f"{text}: and turns where there is no load")


# random

@test
def random_flows():
    """random: uniform, and datagrams of one flow go everywhere"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(4, kind, family, port, ps.member("random"))
            shares = net.deal(servers, (net.LOOPBACK[family], port), 400,
                              through=pool.new(kind, family)
                              if kind == "udp" else None)
            ok(sum(shares) == 400 and stats.uniform(shares), text, shares)


# least

def load(pool, kind, address, count, size=1):
    """Connections or datagrams that stay where they are."""
    if kind == "tcp":
        net.hold(pool, address, count)
        return
    sender = pool.new(kind, net.INET6 if ":" in address[0] else INET)
    for _ in range(count):
        sender.sendto(b"x" * size, address)


@test
def least_queued():
    """connections and bytes that wait are spread evenly"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(8, kind, family, port, ps.member("least"))
            load(pool, kind, (net.LOOPBACK[family], port), 100)
            if kind == "tcp":
                differ_by_one(f"{text}: as /proc says", backlogs(servers[0]))
            shares = net.take_all(servers, 100)
            equal(sum(shares), 100, f"{text}: all arrived")
            differ_by_one(f"{text}: 100 over 8", shares)


@test
def least_goes_where_it_is_empty():
    """a member that falls behind gets nothing until the others do"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            servers = pool.servers(4, kind, family, port, ps.member("least"))
            for sock in servers[1:]:
                ps.set(sock, ps.STATE, ps.DRAINING)
            load(pool, kind, address, 20)
            for sock in servers[1:]:
                ps.set(sock, ps.STATE, ps.ACTIVE)
            equal(net.counts(net.burst(servers[1:], address, 60), 3),
                  [20] * 3, f"{text}: 60 over the other three, in turn")
            load(pool, kind, address, 60)
            equal(net.take_all(servers, 80), [20] * 4, f"{text}: leveled out")


@test
def least_by_bytes():
    """UDP: the size of what is queued counts, not the number"""
    for family in net.FAMILIES:
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            servers = pool.servers(4, "udp", family, port, ps.member("least"))
            load(pool, "udp", address, 1, 30000)
            load(pool, "udp", address, 30)
            shares = sorted(net.take_all(servers, 31))
            equal(shares, [1, 10, 10, 10],
                  f"udp {net.FAMILY_NAMES[family]}: one large, 30 small")


def defer_accept(sock):
    sock.setsockopt(socket.IPPROTO_TCP, TCP_DEFER_ACCEPT, 60)


@test
def least_half_open():
    """a burst of handshakes that aren't done yet is spread evenly"""
    for family in net.FAMILIES:
        text = f"tcp {net.FAMILY_NAMES[family]}"
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(8, "tcp", family, port, ps.member("least"),
                                   defer_accept)
            clients = net.hold(pool, (net.LOOPBACK[family], port), 100)
            equal(backlogs(servers[0]), [0] * 8,
                  f"{text}: none can be accepted yet")
            picked = ps.group(servers[0]).picked()
            equal(sum(picked), 100, f"{text}: 100 SYNs")
            differ_by_one(f"{text}: 100 over 8", picked)
            for client in clients:
                client.send(b"x")
            equal(net.take_all(servers, 100), picked,
                  f"{text}: accepted where they were begun")


@test
def least_of_many():
    """more members than are compared: the best of several"""
    with Pool() as pool:
        port = net.port()
        servers = pool.servers(100, "tcp", INET, port, ps.member("least"))
        net.hold(pool, ("127.0.0.1", port), 400)
        shares = net.take_all(servers, 400)
        # The most of 400 over 100 by chance alone is 10 or 11.
        ok(sum(shares) == 400 and max(shares) <= 7, "400 over 100", shares)


# Case 9

def accepting(link, port, family, policy):
    with net.server("tcp", family, port, ps.member(policy),
                    backlog=16) as sock:
        sock.setblocking(True)
        link.send("up")
        while True:
            sock.accept()[0].close()


def stuck(link, port, family, policy, first):
    """A worker that never accepts, or only once."""
    with net.server("tcp", family, port, ps.member(policy),
                    backlog=16) as sock:
        sock.setblocking(True)
        link.send("up")
        if first:
            sock.accept()[0].close()
            link.send("accepted")
        link.recv()


def hang(child, address):
    """Connect until the worker that accepts once has done so."""
    for _ in range(200):
        net.client("tcp", address).close()
        if child.link.poll(0.02):
            return child.get()
    raise TimeoutError("the policy never chose it")


def connect_in_turn(address, count):
    """How many of them time out."""
    late = 0
    for _ in range(count):
        with socket.socket(net.INET6 if ":" in address[0] else INET) as sock:
            sock.settimeout(0.3)
            try:
                sock.connect(address)
            except OSError:
                late += 1
                continue
            # Until a worker closes it, which the stuck one doesn't: three can
            # keep up with one client, but not on a host that is busy.
            select.select([sock], [], [], 0.2)
    return late


@test
def stuck_worker():
    """case 9: one of four never accepts, 400 connects, no time-out"""
    for policy in ("least", "idle"):
        for family, first in zip((*net.FAMILIES, INET), (False, False, True)):
            port = net.port()
            address = (net.LOOPBACK[family], port)
            text = f"{policy} {net.FAMILY_NAMES[family]}, stuck " + \
                ("after its first" if first else "from the start")
            with proc.Child(stuck, port, family, policy, first) as one:
                one.get()
                with Pool() as pool:
                    if first:
                        hang(one, address)
                    for _ in range(3):
                        child = proc.Child(accepting, port, family, policy)
                        pool.push(child)
                        child.get()
                    equal(connect_in_turn(address, 400), 0, text)
                    name = f"tcp:{net.WILDCARD[INET]}:{port}" \
                        if family == INET else f"tcp:[::]:{port}"
                    tap.diag(ps.table()[name].picked())


# consistent: case 6

class Flows:
    """Clients that keep their addresses, and who serves them."""

    def __init__(self, pool, kind, family, port, count):
        self.kind = kind
        self.target = (net.LOOPBACK[family], port)
        self._sources = [(net.LOOPBACK[family], 20000 + i)
                         for i in range(count)]
        if kind == "udp":
            self._clients = [pool.new(kind, family) for _ in self._sources]
            for sock, source in zip(self._clients, self._sources):
                sock.bind(source)

    def served(self, servers):
        """For each flow the id of the member that it comes to."""
        ids = [ps.get(sock, ps.ID) for sock in servers]
        if self.kind == "tcp":
            return [ids[i] for i in net.burst(
                servers, self.target, len(self._sources),
                source=self._sources.__getitem__)]
        found = []
        with net.Watch(servers) as watch:
            for sock in self._clients:
                sock.sendto(b"x", self.target)
                found.append(ids[watch.take()])
        return found


def consistent_kinds(flows):
    """So many in UDP; TCP, which costs more, with fewer."""
    for text, kind, family in combinations():
        yield text, kind, family, flows if kind == "udp" else flows // 4


def moves(before, after):
    return [(old, new) for old, new in zip(before, after) if old != new]


@test
def consistent_moves():
    """case 6: closing moves no other flow, adding only to the newcomer"""
    ps.parameter("seed", SEED)
    for text, kind, family, count in consistent_kinds(400):
        with Pool() as pool:
            port = net.port()
            servers = [pool.server(kind, family, port,
                                   ps.member("consistent", id))
                       for id in range(8)]
            flows = Flows(pool, kind, family, port, count)
            all_eight = flows.served(servers)
            equal(flows.served(servers), all_eight, f"{text}: they stay")
            equal(set(all_eight), set(range(8)), f"{text}: all serve")

            gone = servers.pop(3)
            gone.close()
            seven = flows.served(servers)
            moved = moves(all_eight, seven)
            ok({old for old, _ in moved} == {3} and
               len(moved) == all_eight.count(3),
               f"{text}: closing one moves none but its own", moved)
            ok(len({new for _, new in moved}) > 2,
               f"{text}: and those to several", moved)

            servers.append(pool.server(kind, family, port,
                                       ps.member(id=200)))
            moved = moves(seven, flows.served(servers))
            equal({new for _, new in moved}, {200},
                  f"{text}: adding moves none but to the newcomer")
            ok(count // 20 <= len(moved) <= count * 75 // 400 or
               (count < 400 and 1 <= len(moved) <= 30),
               f"{text}: {len(moved)} of {count}", len(moved))


def mapping(kind, family, port, ids, count, weights=None):
    with Pool() as pool:
        servers = [pool.server(kind, family, port,
                               ps.member("consistent", id,
                                         weight=(weights or {}).get(id, 1)))
                   for id in ids]
        return Flows(pool, kind, family, port, count).served(servers)


@test
def consistent_remade():
    """the mapping is the ids', weights' and seed's, however it came about"""
    ports = {text: net.port() for text, _, _ in combinations()}
    ids = [0, 1, 2, 3, 7, 100, 5000, 65535]
    weights = {7: 3, 5000: 2}
    ps.unload()
    ps.load(seed=SEED)
    first = {}
    for text, kind, family, count in consistent_kinds(100):
        first[text] = mapping(kind, family, ports[text], ids, count)
        shuffled = random.Random(6).sample(ids, len(ids))
        equal(mapping(kind, family, ports[text], shuffled, count), first[text],
              f"{text}: ids in another order")
        heavy = mapping(kind, family, ports[text], ids, count, weights)
        equal(mapping(kind, family, ports[text], shuffled, count, weights),
              heavy, f"{text}: so with weights")
        ok({new for _, new in moves(first[text], heavy)} <= set(weights),
           f"{text}: more weight only draws flows to itself")
    ps.unload()
    ps.load(seed=SEED)
    for text, kind, family, count in consistent_kinds(100):
        equal(mapping(kind, family, ports[text], ids, count), first[text],
              f"{text}: the module was loaded anew, seed the same")
    ps.parameter("seed", SEED[::-1])
    for text, kind, family, count in consistent_kinds(100):
        ok(mapping(kind, family, ports[text], ids, count) != first[text],
           f"{text}: another seed, another mapping")
    ps.parameter("seed", SEED)
    for text, kind, family, count in consistent_kinds(100):
        equal(mapping(kind, family, ports[text], ids, count), first[text],
              f"{text}: the seed written")


@test
def consistent_while_it_changes():
    """states, generations and comings and goings give the same mapping"""
    ps.parameter("seed", SEED)
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            servers = [pool.server(kind, family, port,
                                   ps.member("consistent", id))
                       for id in range(5)]
            flows = Flows(pool, kind, family, port, 40)
            before = flows.served(servers)
            ps.set(servers[2], ps.STATE, ps.DRAINING)
            moved = moves(before, flows.served(servers))
            equal(({old for old, _ in moved}, len(moved)),
                  ({2}, before.count(2)), f"{text}: draining moves its own")
            ps.set(servers[2], ps.STATE, ps.ACTIVE)
            extra = pool.server(kind, family, port, ps.member(id=77))
            extra.close()
            ps.set(servers[4], ps.ID, 50)
            ps.set(servers[4], ps.ID, 4)
            for policy in ("rr", "consistent"):
                ps.set_policy(servers[0], policy)
            equal(flows.served(servers), before, f"{text}: all as before")


@test
def one_flow():
    """hash and consistent: a flow's datagrams stay together"""
    for policy in ("hash", "consistent"):
        for family in net.FAMILIES:
            with Pool() as pool:
                port = net.port()
                servers = pool.servers(4, "udp", family, port,
                                       ps.member(policy))
                found = set()
                for _ in range(20):
                    shares = net.deal(servers, (net.LOOPBACK[family], port),
                                      20, through=pool.new("udp", family))
                    found.add(tuple(sorted(shares)))
                equal(found, {(0, 0, 0, 20)},
                      f"udp {net.FAMILY_NAMES[family]} {policy}: 20 flows")


# rxqueue

class Tun:
    """A device whose receive queues are our descriptors."""

    NAME = b"psq"
    HERE = {INET: "10.77.0.1", net.INET6: "fd77::1"}
    THERE = {INET: "10.77.0.2", net.INET6: "fd77::2"}

    def __init__(self, pool, queues):
        subprocess.run(["modprobe", "tun"], capture_output=True)
        self._sources = itertools.count(20000)
        self._queues = []
        for _ in range(queues):
            try:
                fd = os.open("/dev/net/tun", os.O_RDWR)
            except OSError as error:
                raise Skip(f"no tun device: {error.strerror}")
            pool.callback(os.close, fd)
            fcntl.ioctl(fd, TUNSETIFF, struct.pack(
                "16sH22x", self.NAME, IFF_TUN | IFF_NO_PI | IFF_MULTI_QUEUE))
            self._queues.append(fd)
        name = self.NAME.decode()
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
        for family in net.FAMILIES:
            more = ["/24"] if family == INET else ["/64", "nodad"]
            subprocess.run(["ip", "addr", "add", "dev", name,
                            self.HERE[family] + more[0], *more[1:]],
                           check=True)

    def send(self, kind, family, port, queue, count):
        """As many flows that begin, on that queue."""
        for _ in range(count):
            # Once only: a SYN of the same is none of a new connection.
            source = (self.THERE[family], next(self._sources))
            target = (self.HERE[family], port)
            data = packet.udp(source, target) if kind == "udp" else \
                packet.tcp(source, target, packet.SYN)
            os.write(self._queues[queue], data)


@test
def rxqueue():
    """the member of the queue, in order without one, else by hash"""
    with Pool() as pool:
        tun = Tun(pool, 5)
        for text, kind, family in combinations():
            with Pool() as inner:
                port = net.port()
                servers = [inner.server(kind, family, port,
                                        ps.member("rxqueue", id))
                           for id in (3, 70, 500)]

                def shares(queue, count=6):
                    before = ps.group(servers[0]).picked()
                    tun.send(kind, family, port, queue, count)
                    proc.wait_for(lambda: sum(ps.group(servers[0]).picked()) -
                                  sum(before) >= count, 5)
                    return [now - then for now, then in
                            zip(ps.group(servers[0]).picked(), before)]

                def queues(*numbers):
                    for sock, number in zip(servers, numbers):
                        ps.set(sock, ps.RX_QUEUE, number)

                equal([shares(queue) for queue in range(5)],
                      [[6, 0, 0], [0, 6, 0], [0, 0, 6], [6, 0, 0],
                       [0, 6, 0]], f"{text}: in order")
                queues(4, 0, 2)
                equal([shares(queue) for queue in (0, 2, 4)],
                      [[0, 6, 0], [0, 0, 6], [6, 0, 0]],
                      f"{text}: each has its own")
                low, high = chance(120, 1 / 3)
                even(f"{text}: by hash on a queue that nobody has",
                     shares(1, 120), low, high)
                queues(-1, 0, -1)
                equal([shares(queue) for queue in range(4)],
                      [[0, 6, 0], [0, 0, 6], [6, 0, 0], [0, 0, 6]],
                      f"{text}: those without one share the rest in order")
                queues(1, 1, 2)
                found = shares(1, 120)
                ok(found[2] == 0 and sum(found) == 120 and min(found[:2]) > 20,
                   f"{text}: two that have the same share it", found)
                ps.set(servers[2], ps.STATE, ps.DRAINING)
                found = shares(2, 60)
                ok(found[2] == 0 and sum(found) == 60 and min(found[:2]) > 0,
                   f"{text}: while it drains, the others serve its queue",
                   found)


@test
def rxqueue_without_queues():
    """by hash where a device records none, as lo"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(4, kind, family, port, ps.member("rxqueue"))
            shares = net.deal(servers, (net.LOOPBACK[family], port), 200)
            ok(sum(shares) == 200 and stats.uniform(shares), text, shares)


# Phantom lookups

def phantom_of(kind, family, address):
    """A function that makes the kernel look up what no packet is for."""
    host = net.LOOPBACK[family]
    flags = (packet.ACK, packet.SYN | packet.ACK, packet.RST, packet.FIN)

    def udp(number):
        packet.send_icmp_error(family, address, (host, 20000 + number))

    def tcp(number):
        packet.send_tcp(family, (host, 20000 + number), address,
                        flags[number % len(flags)])

    return udp if kind == "udp" else tcp


@test
def phantoms():
    """ICMP errors and stray segments take no turns and are no picks"""
    for policy in ps.POLICIES:
        for text, kind, family in combinations():
            with Pool() as pool:
                port = net.port()
                address = (net.LOOPBACK[family], port)
                phantom = phantom_of(kind, family, address)
                servers = pool.servers(3, kind, family, port,
                                       ps.member(policy))
                reached = net.burst(servers, address, 15, between=phantom)
                group = ps.group(servers[0])
                equal((group["picked"], group["fallbacks"], group.picked()),
                      (15, 0, net.counts(reached, 3)), f"{text} {policy}")
                if policy in ("rr", "least"):
                    equal(group.picked(), [5] * 3,
                          f"{text} {policy}: turns go on")


@test
def abandoned_handshakes():
    """a SYN counts once, though its client resets at the SYN-ACK"""
    for family in net.FAMILIES:
        text, host = f"tcp {net.FAMILY_NAMES[family]}", net.LOOPBACK[family]
        with Pool() as pool:
            address = (host, net.port())
            servers = pool.servers(3, "tcp", family, address[1],
                                   ps.member("rr"))
            for number in range(30):
                # Nobody asked for the SYN-ACK: the kernel answers by RST.
                packet.send_tcp(family, (host, 21000 + number), address,
                                packet.SYN)
            ok(proc.wait_for(lambda: ps.group(servers[0])["picked"] >= 30, 5),
               f"{text}: 30 SYNs", ps.table())
            equal(ps.group(servers[0]).picked(), [10] * 3,
                  f"{text}: 10 each")
            equal(select.select(servers, [], [], 0.1)[0], [],
                  f"{text}: none is a connection")
            ps.set_policy(servers[0], "least")
            equal(net.deal(servers, address, 30), [10] * 3,
                  f"{text}: least doesn't count them any more")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=300)
