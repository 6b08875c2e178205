# SPDX-License-Identifier: GPL-2.0
"""TCP segments of all sorts, in frames for a TUN device."""
import socket
import struct

from . import packet, tun
from .packet import ACK, FIN, RST, SYN

TCP = socket.IPPROTO_TCP


def starts(flags):
    """Does it begin a connection?"""
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
        segment = packet.checksummed(
            self._source, self.target, TCP, head + options + data, 16, wrong)
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
