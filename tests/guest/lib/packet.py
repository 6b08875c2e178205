# SPDX-License-Identifier: GPL-2.0
"""Packets that no socket of the system would send."""
import ipaddress
import socket
import struct

INET6 = socket.AF_INET6
IPV6_CHECKSUM = 7
FIN, SYN, RST, ACK = 1, 2, 4, 16


def checksum(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def _packed(host):
    return ipaddress.ip_address(host).packed


def pseudo(source, target, length, protocol):
    """What a transport checksum covers besides the segment."""
    if ":" in source:
        return _packed(source) + _packed(target) + \
            struct.pack("!II", length, protocol)
    return _packed(source) + _packed(target) + \
        struct.pack("!HH", protocol, length)


def checksummed(source, target, protocol, segment, place, wrong=0):
    """With its checksum at that place, or one that is off by so much."""
    segment = segment[:place] + bytes(2) + segment[place + 2:]
    covered = pseudo(source[0], target[0], len(segment), protocol)
    total = checksum(covered + segment) or 0xffff
    total = (total + wrong) % 0x10000 or 0xffff
    return segment[:place] + struct.pack("!H", total) + segment[place + 2:]


def ip(source, target, protocol, payload):
    """A packet: payload behind an IP header."""
    if ":" in source:
        return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + \
            _packed(source) + _packed(target) + payload
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 1, 0, 64,
                         protocol, 0) + _packed(source) + _packed(target)
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + \
        payload


def udp(source, target, data=b"x"):
    """A whole IP packet; source and target: (host, port)."""
    head = struct.pack("!3H", source[1], target[1], 8 + len(data))
    covered = pseudo(source[0], target[0], 8 + len(data), socket.IPPROTO_UDP)
    total = checksum(covered + head + bytes(2) + data) or 0xffff
    return ip(source[0], target[0], socket.IPPROTO_UDP,
               head + struct.pack("!H", total) + data)


def tcp(source, target, flags):
    """A whole IP packet; source and target: (host, port)."""
    covered = pseudo(source[0], target[0], 20, socket.IPPROTO_TCP)
    segment = _segment(source[1], target[1], flags)
    segment = segment[:16] + struct.pack("!H", checksum(covered + segment)) + \
        segment[18:]
    return ip(source[0], target[0], socket.IPPROTO_TCP, segment)


def _segment(source, target, flags):
    return struct.pack("!HHIIBBHHH", source, target, 1000, 2000, 5 << 4,
                       flags, 1024, 0, 0)


def send_tcp(family, source, target, flags):
    """Send one TCP segment that no connection knows."""
    segment = _segment(source[1], target[1], flags)
    with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
        if family == INET6:
            raw.setsockopt(socket.IPPROTO_IPV6, IPV6_CHECKSUM, 16)
        else:
            total = checksum(pseudo(source[0], target[0], 20,
                                     socket.IPPROTO_TCP) + segment)
            segment = segment[:16] + struct.pack("!H", total) + segment[18:]
        raw.bind((source[0], 0))
        raw.sendto(segment, (target[0], 0))


def send_icmp_error(family, member, peer):
    """Port unreachable, as if peer had got a datagram of member."""
    quoted = ip(member[0], peer[0], socket.IPPROTO_UDP,
                 struct.pack("!4H", member[1], peer[1], 9, 0) + b"x")
    if family == INET6:
        # the kernel sums it up itself
        message = struct.pack("!BBHI", 1, 4, 0, 0) + quoted
        protocol = socket.IPPROTO_ICMPV6
    else:
        message = struct.pack("!BBHI", 3, 3, 0, 0) + quoted
        message = message[:2] + struct.pack("!H", checksum(message)) + \
            message[4:]
        protocol = socket.IPPROTO_ICMP
    with socket.socket(family, socket.SOCK_RAW, protocol) as raw:
        raw.sendto(message, (member[0], 0))


def send_syn_data(source, target, data):
    """An IPv4 SYN that brings data, for TCP_FASTOPEN without a cookie; its
    source may be anybody's."""
    head = struct.pack("!HHIIBBHHH", source[1], target[1], 1000, 0, 5 << 4,
                       SYN, 1024, 0, 0)
    total = checksum(pseudo(source[0], target[0], 20 + len(data),
                             socket.IPPROTO_TCP) + head + data)
    segment = head[:16] + struct.pack("!H", total) + head[18:] + data
    with socket.socket(socket.AF_INET, socket.SOCK_RAW,
                       socket.IPPROTO_RAW) as raw:
        raw.sendto(ip(source[0], target[0], socket.IPPROTO_TCP, segment),
                   (target[0], 0))
