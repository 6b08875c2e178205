# SPDX-License-Identifier: GPL-2.0
"""Datagrams of all sorts, sound or not, in frames for a TUN device; of each it
is known what must come of it."""
import socket
import struct

from . import flow, packet, tun
from .net import INET, INET6
from .packet import checksummed

SMALL = 76	# bytes whose checksum is looked at before the lookup
UDP = socket.IPPROTO_UDP
HOPOPTS, FRAGMENT, DSTOPTS = 0, 44, 60
NO_NEXT_HEADER = 59
NEVER = 253		# for experiments: no protocol of the kernel's
GSO_UDP_L4 = 5		# of virtio's header
NEEDS_CSUM = 1

# An options header that holds nothing, but for its first octet.
PADDING = bytes([0, 1, 4, 0, 0, 0, 0])


class Case:
    """Frames, the payload that must come of them, and how many times a policy
    must have been asked."""

    def __init__(self, frames, payload=None, count=None):
        self.frames = [frames] if isinstance(frames, bytes) else frames
        self.payload = payload
        self.count = (payload is not None) if count is None else count


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


# Trains

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
