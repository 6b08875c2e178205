# SPDX-License-Identifier: GPL-2.0
"""QUIC packets as far as they can be read without keys (RFC 8999, 9000, 9369),
with a member's id in their connection ID."""
import os

V1, V2 = 0x00000001, 0x6b3343cf
UNKNOWN = 0x1a2a3a4a			# reserved, to force a negotiation

# Long packets' types, numbered in another way in each version.
INITIAL, ZERO_RTT, HANDSHAKE, RETRY = "Initial", "0-RTT", "Handshake", "Retry"
NUMBERS = {V1: {INITIAL: 0, ZERO_RTT: 1, HANDSHAKE: 2, RETRY: 3},
           V2: {INITIAL: 1, ZERO_RTT: 2, HANDSHAKE: 3, RETRY: 0}}

# Where an id is in a connection ID unless the group says otherwise.
OFFSET, LENGTH = 1, 2
CID_SIZE = 8
CID_MAX = 20


def connection_id(number, offset=OFFSET, length=LENGTH, size=CID_SIZE):
    """With the id in its place; all other octets are as they come."""
    size = max(size, offset + length)
    rest = os.urandom(size)
    return rest[:offset] + number.to_bytes(length, "big") + \
        rest[offset + length:]


def short(cid, size=30):
    """A 1-RTT packet: the length of cid isn't in it."""
    # The spin bit, key phase and packet number's length are hidden or free.
    first = 0x40 | os.urandom(1)[0] & 0x3f
    return bytes([first]) + cid + os.urandom(size)


def long(kind, cid, version=V1, source=b"client", size=40):
    """A packet of the handshake."""
    number = NUMBERS.get(version, NUMBERS[V1])[kind]
    first = 0xc0 | number << 4 | os.urandom(1)[0] & 0x0f
    return bytes([first]) + version.to_bytes(4, "big") + \
        bytes([len(cid)]) + cid + bytes([len(source)]) + source + \
        os.urandom(size)


def negotiation(cid, source=b"client"):
    """Version negotiation: only servers send that."""
    return long(INITIAL, cid, 0, source, 0) + V1.to_bytes(4, "big") + \
        V2.to_bytes(4, "big")


def initial(cid, version=V1):
    """What a client begins with: it fills a packet of 1200 bytes."""
    packet = long(INITIAL, cid, version, size=0)
    return packet + os.urandom(1200 - len(packet))


def handshake(cid, version=V1):
    return long(HANDSHAKE, cid, version)
