#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900
"""Packets that no decent host sends, through a TUN device: every deliverable
datagram reaches one member once, `picked` counts what starts something and
nothing else, garbage takes no turn. --seed N does a run again (lib/fuzz.py)."""
import os
import struct

from lib import flow, fuzz, net, packet, ps, quic, tap, tun
from lib.mill import Mill, good, train
from lib.net import INET6, Pool
from lib.segments import Segments, starts
from lib.tap import equal, ok, test

# Every kernel of the matrix but the host's own gets the short form.
POLICIES = ("hash", "rr", "least", "quic") if not os.environ.get("PS_FULL") \
    else ps.POLICIES
MEMBERS = 4
FAMILIES = [(net.FAMILY_NAMES[family], family) for family in net.FAMILIES]


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
                    for number in range(fuzz.rounds(100)):
                        # one is sound, whatever chance says
                        frame, begins = segments.next() if number else \
                            (segments.frame(packet.SYN), True)
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
        body = packet.checksummed((peer,), (mine,), 58, body, 2)
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
