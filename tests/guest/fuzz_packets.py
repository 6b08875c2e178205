#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900
"""Packets that no decent host sends, through a TUN device: every deliverable
datagram reaches one member once, `picked` counts what starts something and
nothing else, garbage takes no turn. --seed N does a run again (lib/fuzz.py)."""
import os
import socket
import struct

from lib import flow, fuzz, net, packet, ps, quic, tap, tun
from lib.net import INET, INET6, Pool
from lib.tap import equal, ok, test

# Every kernel of the matrix but the host's own gets the short form.
POLICIES = ("hash", "rr", "least", "quic") if not os.environ.get("PS_FULL") \
    else ps.POLICIES

SMALL = 76	# bytes whose checksum is looked at before the lookup
MEMBERS = 4
UDP, TCP = socket.IPPROTO_UDP, socket.IPPROTO_TCP
HOPOPTS, FRAGMENT, DSTOPTS = 0, 44, 60
NO_NEXT_HEADER = 59
NEVER = 253		# for experiments: no protocol of the kernel's
FAMILIES = [(net.FAMILY_NAMES[family], family) for family in net.FAMILIES]


# An options header that holds nothing, but for its first octet.
PADDING = bytes([0, 1, 4, 0, 0, 0, 0])


# Packets

class Case:
    """Frames, the payload that must come of them, and how many times a policy
    must have been asked."""

    def __init__(self, frames, payload=None, count=None):
        self.frames = [frames] if isinstance(frames, bytes) else frames
        self.payload = payload
        self.count = (payload is not None) if count is None else count


def checksummed(source, target, protocol, segment, place, wrong=0):
    """With its checksum at that place, or one that is off by so much."""
    segment = segment[:place] + bytes(2) + segment[place + 2:]
    pseudo = packet.pseudo(source[0], target[0], len(segment), protocol)
    total = packet.checksum(pseudo + segment) or 0xffff
    total = (total + wrong) % 0x10000 or 0xffff
    return segment[:place] + struct.pack("!H", total) + segment[place + 2:]


def resealed(frame):
    """An IPv4 header after a change."""
    size = (frame[0] & 15) * 4
    head = frame[:10] + bytes(2) + frame[12:size]
    return head[:10] + struct.pack("!H", packet.checksum(head)) + \
        head[12:] + frame[size:]


class Mill:
    """Datagrams from some source to one port, each with its own number."""

    def __init__(self, chance, family, port, sources=16):
        self.chance = chance
        self.family = family
        self.target = (tun.NEAR[family], port)
        self.sources = [(tun.peer(family, chance.randrange(60000)),
                         chance.randrange(1024, 65536))
                        for _ in range(sources)]
        self.source = self.sources[0]
        self._number = 0

    def payload(self, low=0, high=900):
        self._number += 1
        return flow.datagram(self.sources.index(self.source), self._number) + \
            self.chance.randbytes(self.chance.randint(low, high))

    def segment(self, payload, length=None, wrong=0, target=None):
        """UDP header and payload."""
        target = target or self.target
        size = 8 + len(payload)
        head = struct.pack("!4H", self.source[1], target[1],
                           size if length is None else length, 0)
        return checksummed(self.source, target, UDP, head + payload, 6, wrong)

    def ip(self, segment, protocol=UDP):
        return packet.ip(self.source[0], self.target[0], protocol, segment)

    def next(self):
        self.source = self.chance.choice(self.sources)
        case = self.chance.choice(CASES[self.family])(self)
        case.source = self.source
        return case


# UDP: what makes a datagram and what doesn't

def good(mill):
    payload = mill.payload()
    return Case(mill.ip(mill.segment(payload)), payload)


def empty_tail(mill):
    """Behind the IP packet there is something else."""
    payload = mill.payload()
    return Case(mill.ip(mill.segment(payload)) + mill.chance.randbytes(20),
                payload)


def no_checksum(mill):
    payload = mill.payload()
    segment = bytearray(mill.segment(payload))
    segment[6:8] = bytes(2)
    if mill.family == INET6:
        # refused, but by the socket
        return Case(mill.ip(bytes(segment)), count=1)
    return Case(mill.ip(bytes(segment)), payload)


def bad_checksum(mill):
    payload = mill.payload(0, SMALL - 8 - flow.DATAGRAM.size)
    return Case(mill.ip(mill.segment(payload,
                                     wrong=mill.chance.randint(1, 0xfff0))))


def late_bad_checksum(mill):
    """Too long to be summed up first: seen when the program reads it."""
    payload = mill.payload(SMALL)
    return Case(mill.ip(mill.segment(payload, wrong=0x100)), count=1)


def no_length(mill):
    """Means a jumbogram to IPv6."""
    payload = mill.payload()
    return Case(mill.ip(mill.segment(payload, 0)),
                payload if mill.family == INET6 else None)


def tiny_length(mill):
    return Case(mill.ip(mill.segment(mill.payload(),
                                     mill.chance.randint(1, 7))))


def long_length(mill):
    payload = mill.payload()
    return Case(mill.ip(mill.segment(
        payload, mill.chance.randint(len(payload) + 9, 65535))))


def short_length(mill):
    """The rest isn't the datagram's."""
    payload = mill.payload()
    return Case(mill.ip(mill.segment(payload) +
                        mill.chance.randbytes(mill.chance.randint(1, 50))),
                payload)


def header_only(mill):
    """Cut in the UDP header."""
    return Case(mill.ip(mill.segment(b"")[:mill.chance.randrange(8)]))


def truncated(mill):
    """Less than the IP header says."""
    frame = mill.ip(mill.segment(mill.payload()))
    return Case(frame[:mill.chance.randrange(1, len(frame))])


def elsewhere(mill):
    """A port that nobody has, or none."""
    port = mill.chance.choice((0, 1, 9, mill.target[1] ^ 0x8000))
    return Case(mill.ip(mill.segment(mill.payload(),
                                     target=(mill.target[0], port))))


def not_ip(mill):
    frame = mill.ip(mill.segment(mill.payload()))
    version = mill.chance.choice([v for v in range(16) if v not in (4, 6)])
    return Case(bytes([version << 4 | frame[0] & 15]) + frame[1:])


def other_version(mill):
    frame = mill.ip(mill.segment(mill.payload()))
    return Case(bytes([frame[0] ^ 0x20]) + frame[1:])


def other_protocol(mill):
    return Case(mill.ip(mill.segment(mill.payload()), NEVER))


def noise(mill):
    return Case(mill.chance.randbytes(mill.chance.randint(1, 200)))


# IPv4 alone

def bad_ip_checksum(mill):
    frame = mill.ip(mill.segment(mill.payload()))
    return Case(frame[:10] + bytes([frame[10] ^ 0x55]) + frame[11:])


def short_ip_header(mill):
    frame = mill.ip(mill.segment(mill.payload()))
    return Case(resealed(bytes([0x40 | mill.chance.randrange(5)]) + frame[1:]))


def ip_options(mill):
    payload = mill.payload()
    frame = mill.ip(mill.segment(payload))
    words = mill.chance.randint(1, 10)
    frame = bytes([0x45 + words]) + frame[1:2] + \
        struct.pack("!H", len(frame) + 4 * words) + frame[4:20] + \
        b"\x01" * (4 * words) + frame[20:]
    return Case(resealed(frame), payload)


def from_here(mill):
    """Our own address, or none that can send."""
    host = mill.chance.choice((tun.NEAR[INET], "255.255.255.255",
                               "224.0.0.1", "127.0.0.1"))
    payload = mill.payload()
    source, mill.source = mill.source, (host, 99)
    mill.sources.append(mill.source)
    frame = mill.ip(mill.segment(payload))
    mill.sources.pop()
    mill.source = source
    return Case(frame)


def fragments4(mill, pieces):
    """[(offset, data, more)] as frames of one packet."""
    number = mill.chance.randrange(65536)
    frames = []
    for offset, data, more in pieces:
        frame = mill.ip(data)
        frame = frame[:4] + struct.pack("!HH", number, more << 13 |
                                        offset // 8) + frame[8:]
        frames.append(resealed(frame))
    return frames


# IPv6 alone

def extended(mill, headers, segment, last=UDP):
    """headers: [(protocol, the header without its next-header octet)]"""
    chain = [protocol for protocol, _ in headers] + [last]
    body = b"".join(bytes([after]) + data for after, (_, data) in
                    zip(chain[1:], headers))
    return mill.ip(body + segment, chain[0])


def headers(mill):
    payload = mill.payload()
    chain = [(DSTOPTS, PADDING)
             for _ in range(mill.chance.randrange(4))]
    if mill.chance.random() < 0.5:
        chain.insert(0, (HOPOPTS, PADDING))
    if mill.chance.random() < 0.3:
        chain.append((FRAGMENT, bytes(3) + mill.chance.randbytes(4)))
    return Case(extended(mill, chain, mill.segment(payload)), payload)


def late_hop_by_hop(mill):
    return Case(extended(mill, [(DSTOPTS, PADDING),
                                (HOPOPTS, PADDING)],
                         mill.segment(mill.payload())))


def endless_header(mill):
    """Longer than the packet."""
    kind = mill.chance.choice((HOPOPTS, DSTOPTS))
    return Case(extended(mill, [(kind, bytes([255, 1, 4, 0, 0, 0, 0]))],
                         mill.segment(mill.payload())))


def unknown_option(mill):
    """One that says: drop me if you don't know me."""
    kind = mill.chance.choice((HOPOPTS, DSTOPTS))
    return Case(extended(mill, [(kind, bytes([0, 0xfe, 4, 0, 0, 0, 0]))],
                         mill.segment(mill.payload())))


def no_next_header(mill):
    return Case(extended(mill, [(DSTOPTS, PADDING)],
                         mill.segment(mill.payload()), NO_NEXT_HEADER))


def fragments6(mill, pieces):
    number = mill.chance.randbytes(4)
    return [extended(mill, [(FRAGMENT, bytes(1) + struct.pack(
        "!H", offset | more) + number)], data)
        for offset, data, more in pieces]


# Fragments of either

def pieces_of(mill, segment):
    """[(offset, data, more)] of two to six, in order"""
    count = mill.chance.randint(2, 6)
    # At least two units each, so that none lies in another's overlap.
    units = len(segment) // 16
    marks = sorted(mill.chance.sample(range(1, units), count - 1))
    marks = [0, *(16 * mark for mark in marks), len(segment)]
    return [(begin, segment[begin:end], end < len(segment))
            for begin, end in zip(marks, marks[1:])]


def fragmented(mill, pieces):
    make = fragments6 if mill.family == INET6 else fragments4
    return make(mill, pieces)


def in_fragments(mill):
    """In any order, some of them twice."""
    payload = mill.payload(200, 2000)
    pieces = pieces_of(mill, mill.segment(payload))
    mill.chance.shuffle(pieces)
    if mill.chance.random() < 0.3:
        pieces.insert(1, pieces[0])
    return Case(fragmented(mill, pieces), payload)


def one_is_missing(mill):
    pieces = pieces_of(mill, mill.segment(mill.payload(200, 2000)))
    del pieces[mill.chance.randrange(len(pieces))]
    mill.chance.shuffle(pieces)
    return Case(fragmented(mill, pieces))


def overlapping(mill):
    """One begins within the one before: all are dropped."""
    segment = mill.segment(mill.payload(200, 2000))
    pieces = pieces_of(mill, segment)
    i = mill.chance.randrange(1, len(pieces))
    offset, data, more = pieces[i]
    pieces[i] = (offset - 8, mill.chance.randbytes(8) + data, more)
    mill.chance.shuffle(pieces)
    return Case(fragmented(mill, pieces))


BOTH = (good, good, good, empty_tail, no_checksum, bad_checksum,
        late_bad_checksum, no_length, tiny_length, long_length, short_length,
        header_only, truncated, elsewhere, not_ip, other_version,
        other_protocol, noise, in_fragments, in_fragments, one_is_missing,
        overlapping)
CASES = {INET: (*BOTH, bad_ip_checksum, short_ip_header, ip_options,
                from_here),
         INET6: (*BOTH, headers, headers, late_hop_by_hop, endless_header,
                 unknown_option, no_next_header)}


# Who gets it

def receive(servers):
    """[(index, payload)] of all that waits"""
    return [(i, data) for i, sock in enumerate(servers)
            for data in _take(sock)]


def _take(sock):
    while True:
        try:
            yield sock.recv(65536)
        except BlockingIOError:
            return
        except ConnectionRefusedError:
            pass	# an ICMP error that the socket is told of once


class Trial:
    """Sends cases to a group and looks what has come of them."""

    def __init__(self, device, servers, policy, affinity=0):
        self.device = device
        self.servers = servers
        self.policy = policy
        self.affinity = affinity
        self.peer = {}		# source: the member that is its own
        self.out = set()	# members that aren't selectable
        self.wrong = []
        self._picked = self.picked()
        self._turn = None
        self._homes = {}

    def picked(self):
        return ps.group(self.servers[0]).picked()

    def _check_turn(self, took):
        """rr: who has had how many turns tells whether they went round."""
        order = [i for i in range(len(self.servers)) if i not in self.out]
        for i in took:
            if i not in order or self._turn is not None and \
                    order.index(i) != (self._turn + 1) % len(order):
                return f"{i} took a turn, the last was {self._turn}"
            self._turn = order.index(i)
        return None

    def _check_flow(self, source, got):
        """With affinity, or by hash, a flow has one home."""
        stays = self.affinity or self.policy in ("hash", "consistent", "quic")
        for i, _ in got:
            home = self._homes.setdefault(source, i)
            if stays and source not in self.peer and home != i:
                return f"{source} was at {home}, now at {i}"
        return None

    def send(self, case):
        for frame in case.frames:
            error = self.device.send(frame)
            if error not in (None, "EINVAL") or error and case.count:
                return f"the device says {error}"
        got = receive(self.servers)
        want = [case.payload] if case.payload is not None else []
        now = self.picked()
        took = [i for i, (old, new) in enumerate(zip(self._picked, now))
                for _ in range(new - old)]
        self._picked = now
        own = self.peer.get(case.source)
        count = 0 if own is not None else int(case.count)
        if [data for _, data in got] != want or len(took) != count:
            return f"got {got}, took turns: {took}"
        if own is not None and got and got[0][0] != own:
            return f"a peer of {own} was heard by {got[0][0]}"
        if own is None and got and [i for i, _ in got] != took:
            return f"{took} took turns, {got} got it"
        if self.policy == "rr" and not self.affinity:
            return self._check_turn(took) or None
        return self._check_flow(case.source, got)

    def run(self, mill, count):
        """So many cases; the first few that went wrong."""
        for _ in range(count):
            case = mill.next()
            trouble = self.send(case)
            if trouble:
                self.wrong.append((trouble, case.count,
                                   [f.hex() for f in case.frames][:3]))
        self.device.replies()
        return self.wrong[:3]


def group_of(pool, family, policy, affinity=0, **wishes):
    """Members that never want room."""
    return pool.servers(MEMBERS, "udp", family, net.port(), ps.member(
        policy, affinity=affinity, **wishes), net.roomy)


@test
def datagrams():
    """each policy, with affinity and without, members with a peer or none"""
    with Pool() as outer:
        device = tun.Tun(outer)
        for text, family in FAMILIES:
            for policy in POLICIES:
                for affinity in (0, 60):
                    what = f"{text} {policy}{' affinity' if affinity else ''}"
                    chance = fuzz.chances("datagrams", what)
                    with Pool() as pool:
                        servers = group_of(pool, family, policy, affinity)
                        mill = Mill(chance, family,
                                    servers[0].getsockname()[1])
                        trial = Trial(device, servers, policy, affinity)
                        equal(trial.run(mill, fuzz.rounds(120)), [], what)
                        check_peer(what, trial, mill)
    fuzz.check_exact("datagrams")


def check_peer(what, trial, mill):
    """The same with a member that has one of the sources for a peer."""
    source = mill.sources[0]
    trial.servers[1].connect(source)
    trial.peer[source] = 1
    trial.out.add(1)
    # Who was the last doesn't matter any more, nor whose flows the new peer
    # and those of the member were.
    trial._turn = None
    trial._homes.clear()
    equal(trial.run(mill, fuzz.rounds(60)), [], f"{what}, with a peer")


# QUIC

def quic_id(payload, offset, length):
    """The member that a payload names, or None (docs/policies.md)."""
    if not payload:
        return None
    if payload[0] & 0x80:
        if len(payload) < 6:
            return None
        version = int.from_bytes(payload[1:5], "big")
        handshake = {quic.V1: 2, quic.V2: 3}.get(version)
        if handshake != payload[0] >> 4 & 3 or payload[5] > quic.CID_MAX:
            return None
        cid = payload[6:6 + payload[5]]
    else:
        cid = payload[1:]
    found = cid[offset:offset + length]
    if len(found) < length:
        return None
    number = int.from_bytes(found, "big")
    return number if number < MEMBERS else None


def quic_payload(chance, offset, length):
    """Of all sorts, sound or not."""
    size = chance.choice((0, 1, 4, 7, 8, 8, 8, 18, 20, 21, 255))
    cid = bytearray(chance.randbytes(size))
    number = chance.randrange(MEMBERS + 1).to_bytes(length, "big")
    if chance.random() < 0.8:
        cid[offset:offset + length] = number
    cid = bytes(cid[:255])
    kind = chance.random()
    if kind < 0.3:
        data = bytes([chance.randrange(128)]) + cid + chance.randbytes(
            chance.choice((0, 1, 30)))
    elif kind < 0.8:
        version = chance.choice((quic.V1, quic.V1, quic.V2, quic.UNKNOWN, 0))
        data = bytes([0x80 | chance.randrange(128)]) + \
            version.to_bytes(4, "big") + bytes([len(cid)]) + cid + \
            chance.randbytes(chance.choice((0, 1, 30)))
    else:
        data = chance.randbytes(chance.randrange(40))
    what = chance.random()
    if what < 0.2:
        data = data[:chance.randrange(len(data) + 1)]
    elif what < 0.3 and len(data) > 5:
        data = data[:5] + bytes([chance.randrange(256)]) + data[6:]
    return data


def quic_round(device, servers, mill, chance, count):
    """So many payloads; the first few that went wrong."""
    offset = chance.choice((0, 1, 2, 7, 12, 18))
    length = chance.randint(1, min(8, 20 - offset))
    # each step of that has to be possible
    for name, value in (("quic_length", 1), ("quic_offset", offset),
                        ("quic_length", length)):
        flow.setting(servers[0], name, value)
    wrong = []
    before = ps.group(servers[0]).picked()
    wanted = [0] * MEMBERS
    for _ in range(count):
        mill.source = chance.choice(mill.sources)
        payload = quic_payload(chance, offset, length)
        device.send(mill.ip(mill.segment(payload)))
        got = receive(servers)
        want = quic_id(payload, offset, length)
        if [data for _, data in got] != [payload] or \
                want not in (None, got[0][0]):
            wrong.append((payload.hex(), offset, length, want, got))
        for i, _ in got:
            wanted[i] += 1
    now = ps.group(servers[0]).picked()
    if [new - old for old, new in zip(before, now)] != wanted:
        wrong.append(("picked", before, now, wanted))
    return wrong


@test
def quic_packets():
    """headers of all sorts: the member that is named, else one of them"""
    with Pool() as outer:
        device = tun.Tun(outer)
        for text, family in FAMILIES:
            chance = fuzz.chances("quic", text)
            with Pool() as pool:
                servers = group_of(pool, family, "quic")
                mill = Mill(chance, family, servers[0].getsockname()[1])
                wrong = []
                for _ in range(fuzz.rounds(20)):
                    wrong += quic_round(device, servers, mill, chance, 50)
                equal(wrong[:3], [], text)


# TCP

SYN, ACK, FIN, RST = packet.SYN, packet.ACK, packet.FIN, packet.RST


def starts(flags):
    return flags & (SYN | ACK | FIN | RST) == SYN


class Segments:
    """TCP segments, each from a port of its own."""

    def __init__(self, chance, family, port):
        self.chance = chance
        self.family = family
        self.target = (tun.NEAR[family], port)
        self._ports = iter(range(1024, 65536))
        self._source = None

    def frame(self, flags, options=b"", data=b"", offset=None, wrong=0):
        self._source = (tun.peer(self.family, self.chance.randrange(60000)),
                        next(self._ports))
        words = 5 + len(options) // 4 if offset is None else offset
        head = struct.pack("!HHIIHHHH", self._source[1], self.target[1],
                           self.chance.getrandbits(32),
                           self.chance.getrandbits(32),
                           words << 12 | flags, 1024, 0,
                           self.chance.choice((0, 0, 1, 65535)))
        segment = checksummed(self._source, self.target, TCP,
                              head + options + data, 16, wrong)
        return packet.ip(self._source[0], self.target[0], TCP, segment)

    def options(self):
        """Garbage, or what has a meaning with lengths that don't fit."""
        size = 4 * self.chance.randrange(11)
        if self.chance.random() < 0.5:
            return self.chance.randbytes(size)
        text = b""
        while len(text) < size:
            kind = self.chance.choice((0, 1, 2, 3, 4, 5, 8, 19, 28, 30, 34,
                                       253, 254, 255))
            length = self.chance.choice((0, 1, 2, 3, 4, 6, 10, 18, 40, 255))
            text += bytes([kind, length]) + self.chance.randbytes(
                min(length, 12))
        return text[:size]

    def next(self):
        """(frame, does it begin a connection?)"""
        chance = self.chance
        what = chance.randrange(8)
        flags = chance.choice((SYN, SYN, chance.randrange(512)))
        options = self.options()
        if what == 0:	# no room for its own header
            return self.frame(flags, offset=chance.randrange(5)), False
        if what == 1:	# nor behind it for its options
            return self.frame(flags, options[:16], offset=15), False
        if what == 2:
            return self.frame(flags, options, wrong=chance.randint(
                1, 0xfff0)), False
        if what == 3:	# cut
            frame = self.frame(flags, options)
            return frame[:chance.randrange(1, len(frame))], False
        data = chance.randbytes(chance.choice((0, 0, 1, 500)))
        return self.frame(flags, options, data), starts(flags)


def send_segment(device, servers, frame, begins, last):
    """(what went wrong, who took the last turn)"""
    before = ps.group(servers[0]).picked()
    error = device.send(frame)
    took = [i for i, (old, new) in enumerate(zip(
        before, ps.group(servers[0]).picked())) for _ in range(new - old)]
    if error and begins or len(took) != begins:
        return f"{error}, took turns: {took}", last
    if took and last is not None and took[0] != (last + 1) % len(servers):
        return f"{took[0]} after {last}", last
    return None, took[0] if took else last


def tcp_group(pool, family, policy):
    return pool.servers(MEMBERS, "tcp", family, net.port(), ps.member(policy),
                        backlog=4096)


@test
def tcp_flags():
    """all 512 combinations: a SYN alone begins something, rr goes round"""
    with Pool() as outer:
        device = tun.Tun(outer)
        for text, family in FAMILIES:
            chance = fuzz.chances("flags", text)
            with Pool() as pool:
                servers = tcp_group(pool, family, "rr")
                segments = Segments(chance, family,
                                    servers[0].getsockname()[1])
                order = list(range(512))
                chance.shuffle(order)
                wrong, last = [], None
                for flags in order:
                    trouble, last = send_segment(
                        device, servers, segments.frame(flags), starts(flags),
                        last)
                    if trouble:
                        wrong.append((hex(flags), trouble))
                equal(wrong[:5], [], text)
                device.replies()


@test
def tcp_segments():
    """garbage in headers and options, under each policy"""
    with Pool() as outer:
        device = tun.Tun(outer)
        for text, family in FAMILIES:
            for policy in POLICIES:
                chance = fuzz.chances("segments", text, policy)
                with Pool() as pool:
                    servers = tcp_group(pool, family, policy)
                    segments = Segments(chance, family,
                                        servers[0].getsockname()[1])
                    wrong, last, began = [], None, 0
                    for _ in range(fuzz.rounds(100)):
                        frame, begins = segments.next()
                        trouble, last = send_segment(
                            device, servers, frame, begins,
                            last)
                        if policy != "rr":
                            last = None
                        began += begins
                        if trouble:
                            wrong.append((frame.hex(), begins, trouble))
                    equal(wrong[:3], [], f"{text} {policy}")
                    ok(began, f"{text} {policy}: of all sorts", began)
                    device.replies()
    fuzz.check_exact("segments")


# ICMP errors

def icmp_error(chance, family, quoted):
    """An error about a packet of ours, quoted as far as it goes."""
    mine = tun.NEAR[family]
    peer = tun.peer(family, chance.randrange(60000))
    if chance.random() < 0.4:
        quoted = quoted[:chance.randrange(len(quoted) + 1)]
    if chance.random() < 0.3:
        quoted = fuzz.mutate(chance, quoted)[:1000] or b"x"
    kind = chance.choice((1, 2, 3, 4) if family == INET6 else
                         (3, 3, 3, 4, 5, 11, 12))
    body = struct.pack("!BBHI", kind, chance.randrange(16), 0,
                       chance.choice((0, 68, 1280, 1500, 2**32 - 1))) + quoted
    if family == INET6:
        body = checksummed((peer,), (mine,), 58, body, 2)
        return packet.ip(peer, mine, 58, body)
    body = body[:2] + struct.pack("!H", packet.checksum(body)) + body[4:]
    return packet.ip(peer, mine, 1, body)


def quotation(chance, family, port):
    """What a member may have sent."""
    mine = (tun.NEAR[family], port)
    peer = (tun.peer(family, chance.randrange(60000)), 5000)
    if chance.random() < 0.5:
        return packet.udp(mine, peer, chance.randbytes(chance.randrange(30)))
    return packet.tcp(mine, peer, chance.randrange(64))


@test
def icmp_errors():
    """about flows of ours, real or made up: no counter moves, no turn"""
    with Pool() as outer:
        device = tun.Tun(outer)
        for text, family in FAMILIES:
            for kind in net.TYPES:
                for policy in ("rr", "quic", "consistent"):
                    what = f"{text} {kind} {policy}"
                    chance = fuzz.chances("icmp", what)
                    with Pool() as pool:
                        port = net.port()
                        servers = pool.servers(MEMBERS, kind, family, port,
                                               ps.member(policy, affinity=60))
                        if kind == "udp":
                            servers[2].connect((tun.peer(family, 7), 5000))
                        before = ps.group(servers[0])
                        for _ in range(fuzz.rounds(200)):
                            device.send(icmp_error(chance, family, quotation(
                                chance, family, port)))
                        after = ps.group(servers[0])
                        equal((after, after.picked()),
                              (before, before.picked()), what)
                        device.replies()
    fuzz.check_exact("ICMP errors")


# Bits flipped anywhere, and trains

def flipped(chance, frame):
    for _ in range(chance.choice((1, 1, 2, 8))):
        i = chance.randrange(len(frame))
        frame = frame[:i] + bytes([frame[i] ^ 1 << chance.randrange(8)]) + \
            frame[i + 1:]
    return frame


def accounted(text, servers, before, got):
    """What has come was picked, a train once."""
    group = ps.group(servers[0])
    picked = group["picked"] - before["picked"]
    ok((got <= picked or got and picked) and
       group["fallbacks"] == before["fallbacks"] and
       sum(group.picked()) == group["picked"],
       f"{text}: what has come was picked", (got, picked, group))


@test
def flipped_bits():
    """any bit of good packets, with GRO and without"""
    for napi in (False, True):
        with Pool() as outer:
            device = tun.Tun(outer, napi=napi)
            for text, family in FAMILIES:
                what = f"{text}{' GRO' if napi else ''}"
                chance = fuzz.chances("bits", what)
                with Pool() as pool:
                    servers = group_of(pool, family, "rr", affinity=60)
                    port = servers[0].getsockname()[1]
                    listeners = pool.servers(2, "tcp", family, port,
                                             ps.member("least"))
                    mill = Mill(chance, family, port)
                    segments = Segments(chance, family, port)
                    before = ps.group(servers[0])
                    got = 0
                    for _ in range(fuzz.rounds(2000)):
                        case = mill.next()
                        frames = [*case.frames, segments.next()[0]]
                        for frame in frames:
                            device.send(flipped(chance, frame))
                        got += len(receive(servers))
                    accounted(what, servers, before, got)
                    sent = sum(ps.group(listeners[0]).picked())
                    ok(sent == ps.group(listeners[0])["picked"],
                       f"{what}: and by listeners", sent)
                    device.replies()
    fuzz.check_exact("flipped bits")


GSO_UDP_L4 = 5
NEEDS_CSUM = 1


def train(mill, size, count):
    """(virtio header, frame, payload) of so many datagrams in one."""
    mill.source = mill.chance.choice(mill.sources)
    payload = mill.payload(size * count - flow.DATAGRAM.size,
                           size * count - flow.DATAGRAM.size)
    frame = mill.ip(mill.segment(payload))
    begin = len(frame) - len(payload) - 8
    # The checksum is to be made of the pseudo header's, which is there.
    pseudo = ~packet.checksum(packet.pseudo(
        mill.source[0], mill.target[0], len(payload) + 8, UDP)) & 0xffff
    frame = frame[:begin + 6] + struct.pack("!H", pseudo) + frame[begin + 8:]
    header = tun.VNET.pack(NEEDS_CSUM, GSO_UDP_L4, begin + 8, size, begin, 6)
    return header, frame, payload


@test
def trains():
    """UDP_SEGMENT trains from a device: one turn each, all octets arrive"""
    with Pool() as outer:
        device = tun.Tun(outer, vnet=True)
        for text, family in FAMILIES:
            for policy in ("rr", "quic", "least"):
                chance = fuzz.chances("trains", text, policy)
                with Pool() as pool:
                    servers = group_of(pool, family, policy)
                    mill = Mill(chance, family, servers[0].getsockname()[1])
                    wrong = []
                    for _ in range(fuzz.rounds(50)):
                        size, count = chance.randint(200, 1000), \
                            chance.randint(2, 10)
                        header, frame, payload = train(mill, size, count)
                        before = ps.group(servers[0])["picked"]
                        error = device.send(frame, header)
                        if error == "EINVAL":
                            raise tap.Skip("this kernel's TUN devices take no "
                                           "trains of UDP")
                        got = receive(servers)
                        picked = ps.group(servers[0])["picked"] - before
                        if b"".join(data for _, data in got) != payload or \
                                len({i for i, _ in got}) != 1 or picked != 1 \
                                or len(got) != count:
                            wrong.append((size, count, picked, [
                                (i, len(data)) for i, data in got]))
                    equal(wrong[:3], [], f"{text} {policy}")


@test
def any_virtio_header():
    """offload headers of all sorts before good packets: no harm"""
    for napi in (False, True):
        with Pool() as outer:
            device = tun.Tun(outer, napi=napi, vnet=True)
            for text, family in FAMILIES:
                what = f"{text}{' GRO' if napi else ''}"
                chance = fuzz.chances("virtio", what)
                with Pool() as pool:
                    servers = group_of(pool, family, "rr")
                    port = servers[0].getsockname()[1]
                    pool.servers(2, "tcp", family, port, ps.member("rr"))
                    mill = Mill(chance, family, port)
                    segments = Segments(chance, family, port)
                    before = ps.group(servers[0])
                    got, errors = 0, set()
                    for _ in range(fuzz.rounds(1000)):
                        frame = chance.choice((good(mill).frames[0],
                                               segments.next()[0]))
                        sizes = (0, 1, 8, 20, 28, 40, 48, len(frame), 65535)
                        header = tun.VNET.pack(
                            chance.choice((0, 1, 2, 3)), chance.choice(
                                (0, 1, 3, 4, 5, 0x80, 0x81, 0x84)),
                            *(chance.choice(sizes) for _ in range(4)))
                        errors.add(device.send(frame, header))
                        got += len(receive(servers))
                    ok(errors <= {None, "EINVAL", "EFAULT", "ENOMEM"},
                       f"{what}: taken or refused", errors)
                    accounted(what, servers, before, got)
                    device.replies()
    fuzz.check_exact("virtio headers")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=900)
