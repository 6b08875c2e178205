#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=600
"""Policy quic: who has its id in a packet's connection ID gets the packet,
whoever sends it; all else goes by hash, as under policy hash. The packets are
made by hand: only what stands in plain sight is looked at."""
import os
import random
import socket
import struct

from lib import link, net, ps, quic, tap
from lib.net import INET, INET6, Pool
from lib.tap import equal, fails, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
SENDERS = 12 if QUICK else 24
GARBAGE = 500 if QUICK else 5000

IDS = (0, 7, 258, 65535)
NOBODY = 300			# an id that none of them has
UDP_SEGMENT, UDP_GRO = 103, 104
SO_ZEROCOPY, MSG_ZEROCOPY = 60, 0x4000000
IPV6_HOPOPTS, IPV6_DSTOPTS = 54, 59


class Site:
    """A group with these ids, and senders whose ports differ."""

    def __init__(self, pool, family, policy="quic", ids=IDS, senders=SENDERS,
                 host=None, prepare=(), inside=None, **wishes):
        self.pool = pool
        self.family = family
        self.address = (host or net.LOOPBACK[family], net.port())
        with inside or pool.enter_context(Pool()):
            self.servers = [pool.server("udp", family, self.address[1],
                                        ps.member(policy, i, **wishes),
                                        *prepare)
                            for i in ids]
        self.watch = pool.enter_context(net.Watch(self.servers))
        self.ids = ids
        self.senders = [pool.new("udp", family) for _ in range(senders)]
        for sock in self.senders:
            sock.bind((net.WILDCARD[family], 0))

    def send(self, sender, packet):
        """The id of the member that it reached, whole; else what came."""
        sender.sendto(packet, self.address)
        return self.arrived(packet)

    def arrived(self, packet):
        got = self.watch.receive()
        return self.ids[got[0]] if got and got[1] == packet else got

    def all_send(self, make):
        """The ids that make() of each sender's number reached."""
        return [self.send(sock, make(i)) for i, sock in enumerate(self.senders)]

    def by_hash(self):
        """Where each sender's datagrams go under policy hash."""
        policy = ps.policy(self.servers[0])
        ps.set_policy(self.servers[0], "hash")
        homes = self.all_send(lambda i: b"plain")
        ps.set_policy(self.servers[0], policy)
        return homes

    def close(self, number):
        """The member of that id goes."""
        index = self.ids.index(number)
        self.servers.pop(index).close()
        self.ids = self.ids[:index] + self.ids[index + 1:]
        self.watch = self.pool.enter_context(net.Watch(self.servers))

    def server(self, number):
        return self.servers[self.ids.index(number)]

    def lost_nothing(self, text):
        """Nothing is queued that nobody asked for."""
        equal(self.watch.rest(), [], f"{text}: none came twice")


def sites(*args, **keywords):
    """(text, site) of each family."""
    for family in net.FAMILIES:
        with Pool() as pool:
            site = Site(pool, family, *args, **keywords)
            yield net.FAMILY_NAMES[family], site
            site.lost_nothing(net.FAMILY_NAMES[family])


def other_than(homes, ids=IDS):
    """For each sender an id that its hash doesn't lead to."""
    return [next(i for i in ids if i != home) for home in homes]


def named(number, *place):
    return quic.connection_id(number, *place)


# What names a member

def sources(family, count):
    """Addresses of this host, each another one."""
    if family == INET:
        return [f"127.0.9.{i + 1}" for i in range(count)]
    for i in range(count):
        link.ip(f"addr replace fd97::{i + 1}/128 dev lo nodad")
    return [f"fd97::{i + 1}" for i in range(count)]


@test
def clients_that_move():
    """8 of 8 clients stay with their member, from any port and address"""
    for text, site in sites(senders=8):
        hosts = sources(site.family, 8)
        stayed = 0
        for number, sock in enumerate(site.senders):
            version = (quic.V1, quic.V2)[number % 2]
            chosen = os.urandom(8)
            home = site.send(sock, quic.initial(chosen, version))
            reached = {site.send(sock, quic.initial(chosen, version)),
                       site.send(sock, quic.long(quic.ZERO_RTT, chosen,
                                                 version))}
            # What the server answered with: it is asked by that from now on.
            cid = named(home)
            reached.add(site.send(sock, quic.handshake(cid, version)))
            reached.add(site.send(sock, quic.short(cid)))
            for host in [sock.getsockname()[0]] * 4 + hosts:
                with net.new("udp", site.family) as moved:
                    moved.bind((host, 0))
                    reached.add(site.send(moved, quic.short(cid)))
                    # and by another connection ID of the same member
                    reached.add(site.send(moved, quic.short(named(home))))
            stayed += reached == {home} and home in IDS
        equal(stayed, 8, f"{text}: of 8 stayed")


@test
def named_members():
    """each id by each sender, in each kind of packet that has it"""
    kinds = {"1-RTT": quic.short, "Handshake of version 1": quic.handshake,
             "Handshake of version 2":
             lambda cid: quic.handshake(cid, quic.V2)}
    for text, site in sites():
        for what, make in kinds.items():
            wrong = [(number, i) for number in IDS for i, reached in enumerate(
                site.all_send(lambda _: make(named(number))))
                if reached != number]
            equal(wrong, [], f"{text}: {what}")
        cids = [named(IDS[i % 4], 1, 2, 3 + i % 18) for i in range(36)]
        for what, make in kinds.items():
            equal([site.send(site.senders[0], make(cid)) for cid in cids],
                  [IDS[i % 4] for i in range(36)],
                  f"{text}: {what}, connection IDs of 3 to 20 octets")
        counted = [m["picked"] for m in ps.group(site.servers[0]).members]
        equal(len(set(counted)), 1, f"{text}: counted alike")
        equal(sum(counted), 3 * (4 * SENDERS + 36), f"{text}: each once")


@test
def fixed_bit():
    """clients may send that bit as they like: RFC 9287"""
    for text, site in sites():
        for make in (quic.short, quic.handshake):
            want = [IDS[i % 4] for i in range(SENDERS)]

            def greased(i):
                packet = make(named(want[i]))
                return bytes([packet[0] & ~0x40]) + packet[1:]
            equal(site.all_send(greased), want, f"{text}: {make.__name__}")


# What names nobody

def nameless(number):
    """Packets that look as if they named a member, or should have."""
    cid = named(number)
    for version, v in ((quic.V1, "1"), (quic.V2, "2")):
        yield f"Initial of version {v}", quic.initial(cid, version)
        yield f"0-RTT of version {v}", quic.long(quic.ZERO_RTT, cid, version)
        yield f"Retry of version {v}", quic.long(quic.RETRY, cid, version)
        yield f"unknown id, version {v}", quic.handshake(named(NOBODY), version)
        yield f"empty connection ID, version {v}", quic.handshake(b"", version)
        yield f"too short a connection ID, version {v}", quic.handshake(
            cid[:2], version)
    yield "version negotiation", quic.negotiation(cid)
    for version in (quic.UNKNOWN, 0xff00001d, 2, 0xffffffff):
        for kind in quic.NUMBERS[quic.V1]:
            yield f"version {version:#x} {kind}", quic.long(kind, cid, version)
    yield "unknown id", quic.short(named(NOBODY))
    yield "nothing", b""
    yield "one octet", b"\x40"
    yield "one octet of a long packet", b"\xe0"
    yield "a DNS query", struct.pack("!6H", 0xc0de, 0x100, 1, 0, 0, 0) + \
        b"\0\0\1\0\1"


@test
def by_hash():
    """what has no id goes where hash takes its sender, and is not lost"""
    for text, site in sites():
        homes = site.by_hash()
        made = [list(nameless(number)) for number in other_than(homes)]
        for i, (what, _) in enumerate(made[0]):
            equal(site.all_send(lambda sender: made[sender][i][1]), homes,
                  f"{text}: {what}")


@test
def every_length():
    """a packet cut at 0 to 40 octets: by id from where the id is whole"""
    for text, site in sites(senders=4):
        homes = site.by_hash()
        others = other_than(homes)
        for what, make, whole in (("1-RTT", quic.short, 4),
                                  ("Handshake", quic.handshake, 9),
                                  ("Initial", quic.initial, None)):
            wrong = []
            for length in range(41):
                want = others if whole and length >= whole else homes
                got = site.all_send(
                    lambda i: make(named(others[i]))[:length])
                if got != want:
                    wrong.append((length, got, want))
            equal(wrong, [], f"{text}: {what}")
        # says that it is longer than it is, or than any may be
        for claimed in (3, 20, 21, 255):
            packet = quic.handshake(named(others[0]))
            packet = packet[:5] + bytes([claimed]) + packet[6:]
            for length in (6, 8, 9, 20, len(packet)):
                got = site.send(site.senders[0], packet[:length])
                equal(got, others[0] if 8 < length and claimed <= quic.CID_MAX
                      else homes[0], f"{text}: {length} octets, a connection "
                      f"ID of {claimed} announced")


@test
def garbage():
    """random octets of random length reach somebody, whole"""
    seed = random.SystemRandom().randrange(2 ** 32)
    choose = random.Random(seed)
    for text, site in sites():
        lost = []
        for i in range(GARBAGE):
            data = choose.randbytes(choose.choice((
                choose.randrange(12), choose.randrange(64), 1400)))
            if site.send(choose.choice(site.senders), data) not in IDS:
                lost.append((i, data))
        equal(lost, [], f"{text}: seed {seed}")
        equal(ps.group(site.servers[0])["picked"], GARBAGE,
              f"{text}: counted once each")


# Who is named may be on its way out

@test
def draining():
    """a member that drains keeps its connections and gets no new one"""
    for text, site in sites():
        for state, name in ((ps.DRAINING, "draining"),
                            (ps.STANDBY, "standby")):
            ps.set(site.server(7), ps.STATE, state)
            equal(site.all_send(lambda _: quic.short(named(7))), [7] * SENDERS,
                  f"{text}: {name}: its connections")
            equal(site.all_send(lambda _: quic.handshake(named(7))),
                  [7] * SENDERS, f"{text}: {name}: its handshakes")
            reached = site.all_send(lambda _: quic.initial(named(7)))
            ok(7 not in reached and set(reached) <= set(IDS),
               f"{text}: {name}: no Initial", reached)
            equal(reached, site.by_hash(), f"{text}: {name}: but the others")
        ps.set(site.server(7), ps.STATE, ps.ACTIVE)
        for number in IDS:
            ps.set(site.server(number), ps.STATE, ps.DRAINING)
        wrong = [number for number in IDS if set(site.all_send(
            lambda _: quic.short(named(number)))) != {number}]
        equal(wrong, [], f"{text}: all of them are draining")


@test
def generations():
    """a restart: the old generation keeps its connections"""
    for text, site in sites():
        for number in IDS[2:]:
            ps.set(site.server(number), ps.GENERATION, 2)
        ps.set(site.server(0), ps.WORKING_GENERATION, 2)
        # Each by its own sender: what is a flow now stays with its member.
        for number in IDS:
            equal(set(site.all_send(lambda _: quic.short(named(number)))),
                  {number}, f"{text}: {number} keeps its connections")
        reached = site.all_send(lambda _: quic.initial(named(0)))
        ok(set(reached) <= set(IDS[2:]), f"{text}: Initials go to the new one",
           reached)
        site.close(0)
        reached = site.all_send(lambda _: quic.short(named(0)))
        ok(set(reached) <= set(IDS[2:]),
           f"{text}: of a member that is gone: to the new one", reached)
        equal(set(site.all_send(lambda _: quic.short(named(7)))), {7},
              f"{text}: the other old one still has its own")


@test
def member_left():
    """its packets go by hash, until its id comes back"""
    for text, site in sites():
        site.close(258)
        homes = site.by_hash()
        equal(site.all_send(lambda _: quic.short(named(258))), homes,
              f"{text}: by hash")
        for number in site.ids:
            equal(set(site.all_send(lambda _: quic.short(named(number)))),
                  {number}, f"{text}: {number} stays")
        sock = site.pool.server("udp", site.family, site.address[1],
                                ps.member(id=258))
        site.servers.append(sock)
        site.ids += (258,)
        site.watch = site.pool.enter_context(net.Watch(site.servers))
        equal(set(site.all_send(lambda _: quic.short(named(258)))), {258},
              f"{text}: the next that has the id")
        ps.set(sock, ps.ID, 259)
        equal(set(site.all_send(lambda _: quic.short(named(259)))), {258},
              f"{text}: under another id")
        equal(site.all_send(lambda _: quic.short(named(258))), site.by_hash(),
              f"{text}: which it no longer has")
        ps.leave(sock)
        reached = site.all_send(lambda _: quic.short(named(259)))
        ok(len(set(reached)) > 1 and set(reached) <= set(site.ids),
           f"{text}: it has left, but has not closed: by hash", reached)


@test
def connected():
    """who has a peer gets that one's packets and no others"""
    for text, site in sites():
        with net.new("udp", site.family) as peer:
            peer.bind((net.LOOPBACK[site.family], 0))
            site.server(7).connect(peer.getsockname())
            equal([site.send(peer, make(named(number))) for number in IDS
                   for make in (quic.short, quic.initial, quic.handshake)],
                  [7] * 12, f"{text}: its peer's, whatever they name")
            equal(site.send(peer, b""), 7, f"{text}: its peer's empty one")
            homes = site.by_hash()
            equal(site.all_send(lambda _: quic.short(named(7))), homes,
                  f"{text}: others' that name it go by hash")
            ok(7 not in homes, f"{text}: not to it", homes)
            before = ps.group(site.server(0)).picked()
            for number in (0, 258, 65535):
                equal(set(site.all_send(lambda _: quic.short(named(number)))),
                      {number}, f"{text}: {number} is named")
            equal([now - then for now, then in zip(
                ps.group(site.server(0)).picked(), before)],
                [SENDERS, 0, SENDERS, SENDERS], f"{text}: counted once each")


# Where the id is

def write(site, name, value):
    ps.sysfs_write(f"{ps.sysfs_dir(site.servers[0])}/{name}", value)


def place(site):
    path = ps.sysfs_dir(site.servers[0])
    return tuple(ps.sysfs_read(f"{path}/quic_{what}")
                 for what in ("offset", "length"))


@test
def place_by_sysfs():
    """any place that a connection ID has room for"""
    for text, site in sites(ids=(0, 7, 200, 255)):
        equal(place(site), ("1", "2"), f"{text}: at first")
        homes = site.by_hash()
        for offset, length in ((0, 1), (1, 1), (0, 2), (5, 3), (0, 8), (12, 8),
                               (17, 3), (19, 1), (1, 8), (1, 2)):
            # in this order the sum is never too much
            write(site, "quic_offset", 0)
            write(site, "quic_length", length)
            write(site, "quic_offset", offset)
            equal(place(site), (str(offset), str(length)),
                  f"{text}: {offset} + {length}")
            for make in (quic.short, quic.handshake):
                equal([site.send(site.senders[0],
                                 make(named(number, offset, length)))
                       for number in site.ids], list(site.ids),
                      f"{text}: {offset} + {length}: {make.__name__}")
            # one octet less than it takes
            least = offset + length
            packets = [quic.short(named(n, offset, length, least), 0)[:least]
                       for n in other_than(homes, site.ids)]
            equal(site.all_send(lambda i: packets[i]), homes,
                  f"{text}: {offset} + {length}: too short")


@test
def large_ids():
    """up to 65535 in 1, 3 and 8 octets; more is nobody's"""
    for text, site in sites(ids=(1, 255, 256, 65535)):
        homes = site.by_hash()
        for length in (1, 2, 3, 8):
            write(site, "quic_length", length)
            fits = [n for n in site.ids if n < 256 ** length]
            equal([site.send(site.senders[0], quic.short(named(n, 1, length)))
                   for n in fits], fits, f"{text}: {length} octets")
            if length > 2:
                for extra in (65536, 256 ** length - 65536,
                              256 ** (length - 1)):
                    wide = [n + extra for n in other_than(homes, site.ids)]
                    equal(site.all_send(
                        lambda i: quic.short(named(wide[i], 1, length))), homes,
                        f"{text}: {length} octets: {extra} more is no id")


@test
def refused_places():
    """what there is no room for changes nothing"""
    for text, site in sites():
        for name, values in (("quic_offset", (-1, 20, 255, 256, "x", "")),
                             ("quic_length", (-1, 0, 9, 255, 257, "x", ""))):
            for value in values:
                fails("EINVAL", f"{text}: {name} {value!r}", write, site, name,
                      f"{value}\n")
        write(site, "quic_offset", 18)
        fails("EINVAL", f"{text}: 18 + 3", write, site, "quic_length", 3)
        fails("EINVAL", f"{text}: 19 + 2", write, site, "quic_offset", 19)
        equal(place(site), ("18", "2"), f"{text}: as it was")
        equal(set(site.all_send(lambda _: quic.short(named(7, 18)))), {7},
              f"{text}: and works")


@test
def place_by_rule():
    """a rule sets it, another one changes it, its end sets it back"""
    for family in net.FAMILIES:
        text = net.FAMILY_NAMES[family]
        with Pool() as pool:
            site = Site(pool, family, "hash")
            port = site.address[1]
            rule = f"udp {port} policy=quic"
            for words, want in (("quic_offset=0 quic_length=8", ("0", "8")),
                                ("quic_offset=18", ("18", "2")),
                                ("quic_length=3", ("1", "3")),
                                ("", ("1", "2"))):
                ps.rule(f"add {rule} {words}")
                equal(place(site), want, f"{text}: {words or 'none'}")
                offset, length = map(int, want)
                equal([site.send(site.senders[0],
                                 quic.short(named(n, offset, length)))
                       for n in IDS], list(IDS), f"{text}: {want}: works")
            line = f"add {rule} quic_offset=4 quic_length=3"
            ps.rule(line)
            equal([x for x in ps.rule_lines() if f" {port} " in x], [line],
                  f"{text}: read back")
            for words in ("quic_offset=20", "quic_offset=-1", "quic_length=0",
                          "quic_length=9", "quic_offset=18 quic_length=3",
                          "quic_offset=19", "quic_offset=", "quic_length=x",
                          "quic_offset=1 quic_offset=1"):
                fails("EINVAL", f"{text}: {words}", ps.rule,
                      f"add {rule} {words}")
            fails("EINVAL", f"{text}: of TCP", ps.rule,
                  f"add tcp {port} policy=quic quic_offset=1")
            equal([x for x in ps.rule_lines() if f" {port} " in x], [line],
                  f"{text}: refused ones change nothing")
            equal(place(site), ("4", "3"), f"{text}: nor here")
            # also of who binds later
            for sock in site.servers:
                sock.close()
            late = pool.server("udp", family, port, net.reuseport)
            site.servers, site.ids = [late], (0,)
            equal(place(site), ("4", "3"), f"{text}: of a group to come")
            ps.join(late)
            ps.rule(f"del udp {port}")
            equal(ps.group(late) and place(site), ("1", "2"),
                  f"{text}: set back with the rule's end")


# Beside other things

@test
def with_affinity():
    """the id is asked first; what has none stays where its flow is"""
    for text, site in sites(affinity=60):
        homes = site.all_send(lambda _: quic.initial(os.urandom(8)))
        others = other_than(homes)
        equal(site.all_send(lambda i: quic.short(named(others[i]))), others,
              f"{text}: by id")
        equal(site.all_send(lambda _: quic.initial(os.urandom(8))), homes,
              f"{text}: that didn't move the flow")
        # so that the hash would choose others
        for number in IDS[:2]:
            ps.set(site.server(number), ps.STATE, ps.DRAINING)
        equal(site.all_send(lambda _: quic.initial(os.urandom(8))), homes,
              f"{text}: nor does a change of the group")
        equal(site.all_send(lambda _: quic.short(named(NOBODY))), homes,
              f"{text}: so with an unknown id")
        equal(site.all_send(lambda i: quic.short(named(others[i]))), others,
              f"{text}: by id, draining or not")
        moved = [site.pool.new("udp", site.family) for _ in range(8)]
        equal({site.send(sock, quic.short(named(0))) for sock in moved}, {0},
              f"{text}: by id from new ports")
        reached = {site.send(sock, quic.initial(named(0))) for sock in moved}
        ok(reached <= set(IDS[2:]), f"{text}: new flows are the policy's",
           reached)
        gone = [i for i, home in enumerate(homes) if home == IDS[3]]
        site.close(IDS[3])
        reached = site.all_send(lambda i: quic.initial(named(IDS[3])))
        equal([r for i, r in enumerate(reached) if i not in gone],
              [h for i, h in enumerate(homes) if i not in gone],
              f"{text}: flows of members that stay")
        equal([reached[i] for i in gone], [IDS[2]] * len(gone),
              f"{text}: flows of the one that went")


@test
def tcp():
    """there it is hash by another name"""
    for family in net.FAMILIES:
        with Pool() as pool:
            address = (net.LOOPBACK[family], net.port())
            servers = pool.servers(4, "tcp", family, address[1],
                                   ps.member("hash"))
            base = 20000

            def reached():
                return net.burst(servers, address, 100,
                                 lambda i: (address[0], base + i))
            want = reached()
            ps.set_policy(servers[0], "quic")
            equal(reached(), want, f"{net.FAMILY_NAMES[family]}: as hash")
            equal(len(set(want)), 4, "all four are reached")


def segmented(sock, size):
    sock.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)


def train(numbers, size=200, last=77):
    """Packets of one size but for the last, for UDP_SEGMENT to cut."""
    packets = [quic.short(named(n), size - 1 - quic.CID_SIZE) for n in numbers]
    packets[-1] = packets[-1][:last]
    return packets


def bring(site, count):
    """(ids, packets) of count that came."""
    got = []
    while len(got) < count:
        came = site.watch.receive(5)
        if came is None:
            break
        got.append(came)
    return [site.ids[i] for i, _ in got], [data for _, data in got]


def over_links():
    """(text, site) of each family over lo and over a device, one by one."""
    for family in net.FAMILIES:
        for where in ("lo", "a device"):
            with Pool() as pool:
                cable = link.Cable(pool) if where != "lo" else None
                yield f"{net.FAMILY_NAMES[family]} over {where}", Site(
                    pool, family, senders=4,
                    host=cable and cable.far[family],
                    inside=cable and cable.space)


@test
def trains():
    """GSO: one lookup for them all; over lo, and a device with GRO"""
    for text, site in over_links():
        for sock in site.senders:
            segmented(sock, 200)
        for number in IDS:
            packets = train([number] * 20)
            site.senders[0].sendto(b"".join(packets), site.address)
            ids, data = bring(site, 20)
            equal((ids, data), ([number] * 20, packets),
                  f"{text}: a train of {number}'s")
        # of several connections: whom they name, or the first one
        numbers = [IDS[i % 4] for i in range(20)]
        packets = train(numbers)
        site.senders[1].sendto(b"".join(packets), site.address)
        ids, data = bring(site, 20)
        equal(sorted(data), sorted(packets),
              f"{text}: a mixed train arrives")
        ok(set(ids) <= set(IDS), f"{text}: at members", ids)
        packets = [os.urandom(200) for _ in range(20)]
        packets = [bytes([0xc0 | p[0] & 0xf]) + p[1:] for p in packets]
        site.senders[2].sendto(b"".join(packets), site.address)
        ids, data = bring(site, 20)
        equal((len(set(ids)), data), (1, packets),
              f"{text}: a train that names nobody")
        site.lost_nothing(text)


@test
def put_together():
    """UDP_GRO receivers get trains of one connection, whole and in order"""
    def gro(sock):
        sock.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)

    for family in net.FAMILIES:
        text = net.FAMILY_NAMES[family]
        with Pool() as pool:
            cable = link.Cable(pool)
            site = Site(pool, family, senders=4, prepare=(gro,),
                        host=cable.far[family], inside=cable.space)
            sent = {}
            for turn, sock in enumerate(site.senders * 4):
                number = IDS[turn // 4]
                packets = train([number] * 20)
                if turn % 2:
                    segmented(sock, 200)
                    sock.sendto(b"".join(packets), site.address)
                else:
                    segmented(sock, 0)
                    for packet in packets:
                        sock.sendto(packet, site.address)
                sent[number] = sent.get(number, b"") + b"".join(packets)
            got, left = {}, sum(map(len, sent.values()))
            while left > 0 and (came := site.watch.receive(5)):
                number = site.ids[came[0]]
                got[number] = got.get(number, b"") + came[1]
                left -= len(came[1])
            # two senders' packets may be mixed, one's are in order
            equal({n: len(d) for n, d in got.items()},
                  {n: len(d) for n, d in sent.items()}, f"{text}: all octets")
            site.lost_nothing(text)


@test
def apart():
    """packets whose octets aren't behind their header in memory"""
    for text, site in over_links():
        homes = site.by_hash()
        # in fragments, of which the first has the header
        for make in (quic.short, quic.handshake):
            equal([site.send(site.senders[0],
                             make(named(n)) + os.urandom(20000))
                   for n in IDS], list(IDS),
                  f"{text}: 20 kB, {make.__name__}")
        equal(site.all_send(lambda i: quic.long(
            quic.INITIAL, named(other_than(homes)[i]), size=20000)),
            homes, f"{text}: 20 kB that name nobody")
        for sock in site.senders:
            sock.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        for size in (0, 1, 100, 1200, 20000):
            reached = []
            for number in IDS:
                packet = quic.short(named(number), size)
                site.senders[0].sendto(packet, MSG_ZEROCOPY,
                                       site.address)
                reached.append(site.arrived(packet))
            equal(reached, list(IDS), f"{text}: zero copy, {size}")
        reached = []
        for length in range(12):
            packet = quic.short(named(other_than(homes)[0]))[:length]
            site.senders[0].sendto(packet, MSG_ZEROCOPY, site.address)
            reached.append(site.arrived(packet))
        equal(reached, [homes[0]] * 4 + [other_than(homes)[0]] * 8,
              f"{text}: zero copy, cut")


@test
def extension_headers():
    """the UDP header isn't the IPv6 header's next one"""
    net.need_ipv6()
    with Pool() as pool:
        site = Site(pool, INET6)
        homes = site.by_hash()
        padding = bytes([0, 0, 1, 4, 0, 0, 0, 0])
        for kinds in ((IPV6_HOPOPTS,), (IPV6_DSTOPTS,),
                      (IPV6_HOPOPTS, IPV6_DSTOPTS)):
            extra = [(socket.IPPROTO_IPV6, kind, padding) for kind in kinds]

            def send(i, packet):
                site.senders[i].sendmsg([packet], extra, 0, site.address)
                return site.arrived(packet)
            equal([send(0, quic.short(named(n))) for n in IDS], list(IDS),
                  f"{kinds}: by id")
            equal([send(i, quic.initial(named(other_than(homes)[i])))
                   for i in range(SENDERS)], homes, f"{kinds}: by hash")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module)
