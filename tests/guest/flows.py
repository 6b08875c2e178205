#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900
"""UDP flow affinity: which flows stay, how long, with what memory. DESIGN.md
2.5; restarts are in overlap.py."""
import os
import socket
import struct
import time

from lib import cgroup, clients, flow, kernel, net, packet, proc, ps, tap
from lib.flow import Flows, full, group_of, live, moved, setting, shares
from lib.net import INET, INET6, Pool
from lib.tap import Skip, equal, fails, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
SPOOFED = 2500 if QUICK else 20000
MANY = 160 if QUICK else 400
LARGE = 8192 if QUICK else 1 << 20
FOR_LONG = 600			# seconds: no flow here idles as long

MB = 1 << 20


def stays(text, flows, servers, before):
    """All flows are where they were."""
    after = flows.owners(servers)
    return equal((moved(before, after), None in after), ([], False), text)


# Who stays

@test
def joining():
    """flows stay where they are while members join, and are counted"""
    for kind, policy in clients.pairs():
        text = f"{kind} {policy}"
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, policy,
                                          affinity=FOR_LONG)
            flows = Flows(pool, addresses, 40)
            first = flows.owners(servers)
            stays(f"{text}: a second time", flows, servers, first)
            for _ in range(3):
                servers += flow.members_of(pool, kind, addresses[0][1], 1)
                stays(f"{text}: {len(servers)} members", flows, servers, first)
            group = ps.group(servers[0])
            equal((live(servers[0]), full(servers[0])), (40, 0),
                  f"{text}: 40 flows")
            equal((group.picked(), group["picked"], group["fallbacks"]),
                  ([5 * share for share in shares(first, servers)], 200, 0),
                  f"{text}: each datagram counts as a pick")


@test
def other_policies():
    """flows stay where they are while policies come and go"""
    for kind in clients.KINDS:
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, "random",
                                          affinity=FOR_LONG)
            flows = Flows(pool, addresses, 40)
            first = flows.owners(servers)
            for policy in ps.POLICIES:
                ps.set_policy(servers[0], policy)
                stays(f"{kind}: {policy}", flows, servers, first)


@test
def turns():
    """rr: new flows in turn, evenly; datagrams of others take no turns"""
    for kind in clients.KINDS:
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, "rr",
                                          affinity=FOR_LONG)
            flows = Flows(pool, addresses, 40)
            found = []
            for number in range(40):
                found += flows.owners(servers, [number])
                # an odd number of others, that turns would be seen to shift
                for other in (number, number // 2, 0):
                    if flows.owners(servers, [other])[0] is not found[other]:
                        ok(False, f"{kind}: flow {other} moved")
            equal([servers.index(sock) for sock in found],
                  list(range(4)) * 10, f"{kind}: in turn")


@test
def off_and_on():
    """without affinity rr deals out the datagrams of one flow"""
    for kind in clients.KINDS:
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, "rr")
            flows = Flows(pool, addresses, 6)
            one = servers[0]

            def dealt():
                return sorted(shares(
                    [flows.owners(servers, [0])[0] for _ in range(40)],
                    servers))

            for turn in range(2):
                equal((dealt(), live(one)), ([10] * 4, 0), f"{kind}: off")
                ps.set(one, ps.AFFINITY, FOR_LONG)
                equal(live(one), 0, f"{kind}: on, no flow is known")
                first = flows.owners(servers)
                equal(sorted(shares(first, servers)), [1, 1, 2, 2],
                      f"{kind}: by turns")
                equal((dealt(), live(one)), ([0, 0, 0, 40], 6),
                      f"{kind}: and then not")
                ps.set(one, ps.AFFINITY, 7)
                stays(f"{kind}: other seconds", flows, servers, first)
                ps.set(one, ps.AFFINITY, 0)


def draining(sock, out):
    ps.set(sock, ps.STATE, ps.DRAINING if out else ps.ACTIVE)


def standing_by(sock, out):
    ps.set(sock, ps.STATE, ps.STANDBY if out else ps.ACTIVE)


def of_another_generation(sock, out):
    ps.set(sock, ps.GENERATION, int(out))


@test
def not_for_new_ones():
    """draining, standby, another generation: its flows stay, no new ones"""
    for kind, policy in clients.pairs():
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, policy,
                                          affinity=FOR_LONG,
                                          working_generation=0)
            flows = Flows(pool, addresses, 40)
            first = flows.owners(servers)
            one = first[0]
            known = 40
            for change in (draining, standing_by, of_another_generation):
                text = f"{kind} {policy} {change.__name__.replace('_', ' ')}"
                change(one, True)
                stays(text, flows, servers, first)
                fresh = Flows(pool, addresses, 20)
                found = fresh.owners(servers)
                ok(None not in found and one not in found,
                   f"{text}: none of 20 new ones", shares(found, servers))
                known += 20
                equal(live(one), known, f"{text}: so many flows")
                change(one, False)
                stays(f"{text}: and back", fresh, servers, found)


@test
def nobody_for_new_ones():
    """all draining: flows stay, what is new goes as the kernel says"""
    for kind in clients.KINDS:
        for policy in ("rr", "consistent"):
            text = f"{kind} {policy}"
            with Pool() as pool:
                servers, addresses = group_of(pool, kind, 4, policy,
                                              affinity=FOR_LONG)
                flows = Flows(pool, addresses, 40)
                first = flows.owners(servers)
                for sock in servers:
                    draining(sock, True)
                stays(text, flows, servers, first)
                found = Flows(pool, addresses, 30).owners(servers)
                ok(None not in found, f"{text}: 30 new ones arrive")
                group = ps.group(servers[0])
                equal((group["fallbacks"], sum(group.picked()),
                       live(servers[0])), (30, 80, 40),
                      f"{text}: as fallbacks, not remembered")


class Idle:
    """Two flows of a group where one idles out within seconds."""

    def __init__(self, pool, kind):
        self.kind = kind
        self._servers, addresses = group_of(pool, kind, 4, "rr", affinity=1)
        self._flows = Flows(pool, addresses, 2)
        self._flows.owners(self._servers)
        self._last = time.monotonic()
        self._longest = 0
        self._found = set()

    def speak(self):
        """A datagram of the second flow."""
        self._found.add(self._servers.index(
            self._flows.owners(self._servers, [1])[0]))
        now = time.monotonic()
        self._longest = max(self._longest, now - self._last)
        self._last = now

    def outcome(self):
        """None if the guest stood still for longer than a flow lives."""
        known = live(self._servers[0])
        first = self._flows.owners(self._servers, [0])[0]
        if max(self._longest, time.monotonic() - self._last) > 0.9:
            return None
        return self._found, known, self._servers.index(first)


@test
def idling():
    """a flow that is silent for longer than that is a new one"""
    for _ in range(5):
        with Pool() as pool:
            groups = [Idle(pool, kind) for kind in clients.KINDS]
            end = time.monotonic() + 3
            while time.monotonic() < end:
                time.sleep(0.3)
                for group in groups:
                    group.speak()
            found = [group.outcome() for group in groups]
        if None not in found:
            break
    else:
        raise Skip("the guest stands still too often")
    for group, (second, known, first) in zip(groups, found):
        equal(second, {1}, f"{group.kind}: one that sends every 0.3 s stays")
        equal(known, 1, f"{group.kind}: the other one is forgotten")
        equal(first, 2, f"{group.kind}: and is dealt out anew")


# Members that go

def closed(sock):
    sock.close()


def left(sock):
    ps.leave(sock)


def connected(sock):
    sock.connect((net.LOOPBACK[sock.family], 9))


@test
def going():
    """closed, left, connected: its flows are placed anew, others stay"""
    for kind, policy in clients.pairs():
        for change in (closed, left, connected):
            text = f"{kind} {policy} {change.__name__}"
            with Pool() as pool:
                servers, addresses = group_of(pool, kind, 4, policy,
                                              affinity=FOR_LONG)
                flows = Flows(pool, addresses, 36)
                first = flows.owners(servers)
                gone = first[0]
                rest = [sock for sock in servers if sock is not gone]
                change(gone)
                # One that has left is a stranger, with a native share of
                # what isn't anybody's flow.
                there = servers if change is left else rest
                second = flows.owners(there)
                others = [number for number in range(36)
                          if first[number] is not gone]
                equal([number for number in moved(first, second)
                       if number in others], [], f"{text}: others stay")
                ok(None not in second, f"{text}: all arrive")
                if change is not left:
                    equal(live(rest[0]), 36, f"{text}: 36 flows")
                if change is not left and policy == "rr":
                    equal(shares(second, rest), [12] * 3,
                          f"{text}: by turns")
                stays(f"{text}: and stay there", flows, there, second)


@test
def another_member():
    """who leaves and joins again is another one"""
    for kind in clients.KINDS:
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, "rr",
                                          affinity=FOR_LONG)
            flows = Flows(pool, addresses, 64)
            first = flows.owners(servers)
            one = servers[0]
            was = ps.info(one).id
            ps.leave(one)
            ps.join(one)
            equal((ps.info(one).id, live(one)), (was, 48),
                  f"{kind}: has the id, not the flows")
            second = flows.owners(servers)
            equal(shares(second, servers), [4, 20, 20, 20],
                  f"{kind}: they are dealt out anew")
            ok(all(first[number] is one for number in moved(first, second)),
               f"{kind}: others stay", moved(first, second))
            stays(f"{kind}: and stay there", flows, servers, second)


@test
def renumbered():
    """another id, another weight: the same member"""
    for kind, policy in clients.pairs():
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, policy,
                                          affinity=FOR_LONG)
            flows = Flows(pool, addresses, 40)
            first = flows.owners(servers)
            for number, sock in enumerate(servers):
                ps.set(sock, ps.ID, 503 - number)
                ps.set(sock, ps.WEIGHT, 1 + number)
            stays(f"{kind} {policy}", flows, servers, first)


# How it is switched on

def check_on(text, servers, addresses, on=True):
    """Under rr: do the datagrams of one flow stay together?"""
    with Pool() as pool:
        flows = Flows(pool, addresses, 1)
        found = [flows.owners(servers)[0] for _ in range(8)]
    each = 8 // len(servers)
    equal(sorted(shares(found, servers)),
          [0] * (len(servers) - 1) + [8] if on else [each] * len(servers),
          f"{text}: {'on' if on else 'off'}")


@test
def by_option_and_sysfs():
    """the option, the file, a wish: on at once, and read back"""
    for kind in clients.KINDS:
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, "rr")
            one, other = servers[:2]
            for seconds in (60, 0, 2**31 - 1):
                ps.set(one, ps.AFFINITY, seconds)
                equal((ps.get(other, ps.AFFINITY), setting(one, "affinity"),
                       ps.group(one)["affinity"]), (seconds,) * 3,
                      f"{kind}: option {seconds}")
                check_on(f"{kind} option", servers, addresses, seconds)
            for seconds in (0, 1, 2**31 - 1, 0):
                setting(one, "affinity", seconds)
                equal((ps.get(other, ps.AFFINITY), setting(one, "affinity")),
                      (seconds,) * 2, f"{kind}: sysfs {seconds}")
                check_on(f"{kind} sysfs", servers, addresses, seconds)
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 1, "rr", affinity=60)
            with Pool() as inner:
                flows = Flows(inner, addresses, 1)
                flows.owners(servers)
                servers += flow.members_of(pool, kind, addresses[0][1], 3,
                                           affinity=0)
                found = [flows.owners(servers)[0] for _ in range(8)]
            equal(shares(found, servers), [8, 0, 0, 0],
                  f"{kind}: the founder's wish, from the first datagram on")
            equal(ps.get(servers[3], ps.AFFINITY), 60,
                  f"{kind}: others' wishes don't count")


@test
def by_working_generation():
    """a working generation alone switches it on for as long as it is set"""
    for kind in clients.KINDS:
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, "rr")
            one = servers[0]
            check_on(kind, servers, addresses, False)
            for generation in (0, 7):
                ps.set(one, ps.WORKING_GENERATION, generation)
                check_on(f"{kind}: generation {generation}", servers,
                         addresses)
            flows = Flows(pool, addresses, 20)
            first = flows.owners(servers)
            ps.set(one, ps.AFFINITY, 60)
            ps.set(one, ps.WORKING_GENERATION, -1)
            stays(f"{kind}: affinity goes on", flows, servers, first)
            setting(one, "working_generation", 0)
            setting(one, "affinity", 0)
            stays(f"{kind}: and so does a working generation", flows, servers,
                  first)
            equal(ps.get(one, ps.AFFINITY), 0, f"{kind}: affinity reads 0")
            setting(one, "working_generation", -1)
            equal(live(one), 0, f"{kind}: neither: no flow is known")
            check_on(kind, servers, addresses, False)
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, "rr",
                                          working_generation=0)
            check_on(f"{kind}: the founder's wish", servers, addresses)


@test
def by_rule():
    """affinity=: on for servers that know nothing of it; del puts it back"""
    for kind in clients.KINDS:
        family, options = clients.listener_of(kind)
        with Pool() as pool:
            port = net.port()
            addresses = clients.addresses_of(kind, port)
            before = pool.servers(2, "udp", family, port, *options,
                                  net.reuseport)
            ps.rule(f"add udp {port} policy=rr affinity=60")
            servers = before + pool.servers(2, "udp", family, port, *options,
                                            net.reuseport)
            check_on(f"{kind} rule", servers, addresses)
            equal(setting(servers[0], "affinity"), 60, f"{kind}: 60 s")
            ok(any("affinity=60" in line for line in ps.rule_lines()),
               f"{kind}: reads back", ps.rule_lines())
            ps.set(servers[0], ps.AFFINITY, 5)
            equal(ps.get(servers[0], ps.AFFINITY), 5,
                  f"{kind}: a program changes it")
            ps.rule(f"add udp {port} policy=rr lock=1 affinity=30")
            for option, value in ((ps.AFFINITY, 7), (ps.AFFINITY, 0),
                                  (ps.WORKING_GENERATION, 1)):
                fails("EPERM", f"{kind} locked: {option}", ps.set, servers[0],
                      option, value)
            fails("EPERM", f"{kind} locked: policy", ps.set_policy,
                  servers[0], "hash")
            equal(ps.get(servers[0], ps.AFFINITY), 30, f"{kind}: it is 30")
            check_on(f"{kind} locked", servers, addresses)
            setting(servers[0], "affinity", 0)
            check_on(f"{kind} locked, by the operator", servers, addresses,
                     False)
            ps.rule(f"del udp {port}")
            equal(ps.group(servers[0]), None, f"{kind}: the rule lets go")


@test
def rule_and_wish():
    """members of their own: a rule beats their wish, and goes"""
    for kind in clients.KINDS:
        with Pool() as pool:
            port = net.port()
            ps.rule(f"add udp {port} policy=rr affinity=60")
            servers = flow.members_of(pool, kind, port, 4, affinity=9)
            addresses = clients.addresses_of(kind, port)
            equal(ps.get(servers[0], ps.AFFINITY), 60, f"{kind}: the rule's")
            ps.rule(f"del udp {port}")
            equal((ps.get(servers[0], ps.AFFINITY), live(servers[0])), (0, 0),
                  f"{kind}: gone with it")
            check_on(f"{kind} without", servers, addresses, False)
            ps.rule(f"add udp {port} policy=rr affinity=60")
            check_on(f"{kind} once more", servers, addresses)
            ps.rule(f"add udp {port} policy=rr")
            equal(ps.get(servers[0], ps.AFFINITY), 0,
                  f"{kind}: another rule, which says nothing of it")
            check_on(f"{kind} another rule", servers, addresses, False)
            ps.rule(f"del udp {port}")


@test
def refused():
    """values that mean nothing are EINVAL and change nothing"""
    with Pool() as pool:
        servers, _ = group_of(pool, "IPv4", 2, "rr", affinity=60)
        one = servers[0]
        fails("EINVAL", "option -1", ps.set, one, ps.AFFINITY, -1)
        fails("EINVAL", "option, too short", ps.set, one, ps.AFFINITY, b"\1")
        for value in (-1, 2**31, 2**32, "\n", "x", "6 0", "60s"):
            fails("EINVAL", f"affinity {value!r}", setting, one, "affinity",
                  value)
        setting(one, "affinity_flows", 1024)
        for value in (0, -1, (1 << 20) + 1, 2**32 + 64, "\n", "x",
                      "64 64"):
            fails("EINVAL", f"affinity_flows {value!r}", setting, one,
                  "affinity_flows", value)
        equal((setting(one, "affinity"), setting(one, "affinity_flows")),
              (60, 1024), "nothing has changed")
        port = net.port()
        for words in ("udp {} policy=rr affinity=-1",
                      "udp {} policy=rr affinity=2147483648",
                      "udp {} policy=rr affinity=",
                      "udp {} policy=rr affinity=x",
                      "udp {} policy=rr affinity",
                      "udp {} policy=rr affinity=1 affinity=1",
                      "tcp {} policy=rr affinity=60"):
            fails("EINVAL", words, ps.rule, "add " + words.format(port))
        equal(ps.rules(), [], "no rule")


@test
def rounded():
    """affinity_flows: a power of two, at least 64; the default is 65536"""
    with Pool() as pool:
        one = group_of(pool, "IPv4", 1, "rr")[0][0]
        equal(setting(one, "affinity_flows"), 65536, "default")
        for seconds in (0, 60):
            setting(one, "affinity", seconds)
            for value, want in ((1, 64), (64, 64), (65, 128), (1000, 1024),
                                (1 << 20, 1 << 20), (70000, 131072)):
                setting(one, "affinity_flows", value)
                equal(setting(one, "affinity_flows"), want,
                      f"affinity {seconds}: {value}")


# What isn't a datagram of a flow

@test
def no_packet():
    """an ICMP error's lookup makes no flow and is no pick"""
    def errors(family):
        return kernel.snmp6("Icmp6InDestUnreachs") if family == INET6 else \
            kernel.snmp("Icmp", "InDestUnreachs")

    for kind, policy in clients.pairs(
            [net.FAMILY_NAMES[family] for family in net.FAMILIES]):
        text = f"{kind} {policy}"
        family, _ = clients.listener_of(kind)
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, policy,
                                          affinity=FOR_LONG)
            flows = Flows(pool, addresses, 10)
            first = flows.owners(servers)
            picked = ps.group(servers[0]).picked()
            before = errors(family)
            for number in range(20):
                peer = flows.address(number) if number < 10 else \
                    (net.LOOPBACK[family], 20000 + number)
                packet.send_icmp_error(family, addresses[0], peer)
            equal(errors(family) - before, 20, f"{text}: 20 errors")
            equal((live(servers[0]), ps.group(servers[0]).picked()),
                  (10, picked), f"{text}: 10 flows, as before")
            stays(f"{text}: and where they were", flows, servers, first)


# A table that is full

@test
def table_full():
    """more flows than fit: some stay, the policy deals out the others'"""
    for kind in clients.KINDS:
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, "rr",
                                          affinity=FOR_LONG)
            one = servers[0]
            setting(one, "affinity_flows", 64)
            flows = Flows(pool, addresses, MANY)
            first, kept, others = [], [], []
            for number in range(MANY):
                before = full(one)
                first += flows.owners(servers, [number])
                (others if full(one) > before else kept).append(number)
            equal(shares(first, servers), [MANY // 4] * 4, f"{kind}: by turns")
            ok(64 <= len(kept) <= 128, f"{kind}: 64 are remembered, and no "
               "more than twice as many", len(kept))
            equal((live(one), full(one)), (len(kept), len(others)),
                  f"{kind}: the others are counted")
            for turn in range(2, 3 if QUICK else 7):
                after = flows.owners(servers)
                equal(([number for number in moved(first, after)
                        if number in kept], None in after), ([], False),
                      f"{kind}: those stay, all datagrams arrive")
                found = shares([after[number] for number in others], servers)
                ok(max(found) - min(found) <= 1,
                   f"{kind}: the others go by turns", found)
                equal((live(one), full(one)), (len(kept), turn * len(others)),
                      f"{kind}: each of their datagrams is counted")
            # A member's flows make room when it goes.
            gone = servers.pop()
            going = sum(first[number] is gone for number in kept)
            gone.close()
            one = servers[0]
            equal(live(one), len(kept) - going, f"{kind}: one has gone")
            found = flows.owners(servers)
            ok(len(kept) - going < live(one) <= 128,
               f"{kind}: there is room for others", live(one))
            equal([number for number in kept if first[number] is not gone and
                   found[number] is not first[number]], [],
                  f"{kind}: the rest stay")


def spoofed(family, target, count):
    """Whole IP packets, each of another source."""
    first = packet.udp(
        ("10.0.0.0", 0) if family == INET else ("fd00::", 0), target)
    # Both words are summed up: what one has more, the other has less, and the
    # checksum stays what it is.
    source, port = (14, 20) if family == INET else (22, 40)
    for number in range(1, count + 1):
        data = bytearray(first)
        data[source:source + 2] = struct.pack("!H", number)
        data[port:port + 2] = struct.pack("!H", 0xffff - number)
        yield bytes(data)


def drain(servers):
    return sum(sum(1 for _ in flow.take(sock)) for sock in servers)


def flood(text, family, servers, addresses, flows, first):
    """Spoofed sources, between rounds of the flows that are there."""
    received = 0
    wrong = []
    with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for number, data in enumerate(spoofed(family, addresses[0], SPOOFED)):
            raw.sendto(data, (addresses[0][0], 0))
            if number % 500 == 499:
                received += drain(servers)
            if number % (SPOOFED // 5) == 0:
                received += drain(servers)
                wrong += moved(first, flows.owners(servers))
    received += drain(servers)
    wrong += moved(first, flows.owners(servers))
    equal(wrong, [], f"{text}: no flow of others moves")
    equal(received, SPOOFED, f"{text}: every datagram arrives")


@test
def spoofed_sources():
    """a flood of them puts no live flow out and takes no memory"""
    for family in net.FAMILIES:
        text = net.FAMILY_NAMES[family]
        with Pool() as pool:
            try:
                group = cgroup.Cgroup("flood")
                pool.callback(group.close)
                pool.enter_context(group)
            except Skip as why:
                group = None
                tap.skip(f"{text}: memory", why)
            servers, addresses = group_of(pool, text, 4, "rr",
                                          affinity=FOR_LONG)
            one = servers[0]
            for sock in servers:
                net.roomy(sock)
            setting(one, "affinity_flows", 1024)
            flows = Flows(pool, addresses, 400)
            first = flows.owners(servers)
            equal((live(one), full(one)), (400, 0), f"{text}: 400 flows")
            before = group and group.kernel()
            flood(text, family, servers, addresses, flows, first)
            after = group and group.kernel()
            ok(1000 < live(one) <= 2048, f"{text}: the table is full",
               live(one))
            equal(full(one), SPOOFED - (live(one) - 400),
                  f"{text}: counted, those that found no room")
            if group:
                # 20,000 of anything would be more.
                ok(after - before < SPOOFED * 16, f"{text}: no more memory",
                   f"{before} {after}")


# Its size

def sending(link, addresses, count):
    """Datagrams of so many flows in turn until told to stop; the number."""
    with Pool() as pool:
        flows = Flows(pool, addresses, count)
        for number in range(count):
            flows.send(number)
            time.sleep(0)
        link.send("up")
        sent = count
        while not link.poll(0):
            flows.send(sent % count)
            sent += 1
        link.send(sent)


@test
def resized():
    """larger and smaller under traffic: every live flow that fits stays"""
    for kind in clients.KINDS:
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, "rr",
                                          affinity=FOR_LONG)
            one = servers[0]
            for sock in servers:
                net.roomy(sock)
            received, owners = 0, {}

            def collect():
                nonlocal received
                for sock in servers:
                    for data in flow.take(sock):
                        owners.setdefault(flow.parse(data)[0], set()).add(sock)
                        received += 1

            child = pool.enter_context(proc.Child(sending, addresses, 300))
            child.get()
            for _ in range(1 if QUICK else 5):
                for size in (512, LARGE, 1024, 4096, 512, 65536):
                    setting(one, "affinity_flows", size)
                    collect()
                    if setting(one, "affinity_flows") != size:
                        ok(False, f"{kind}: {size}")
            sent = child.ask("stop")
            proc.wait_for(lambda: collect() or received >= sent)
            equal(received, sent, f"{kind}: all of {sent} datagrams arrive")
            equal((len(owners), [number for number, found in owners.items()
                                 if len(found) > 1]), (300, []),
                  f"{kind}: each flow on one member")
            equal((live(one), full(one)), (300, 0), f"{kind}: 300 flows")


@test
def too_small():
    """a table too small for all live flows keeps as many as it holds"""
    for kind in clients.KINDS:
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, "rr",
                                          affinity=FOR_LONG)
            one = servers[0]
            flows = Flows(pool, addresses, MANY)
            first = flows.owners(servers)
            setting(one, "affinity_flows", 64)
            kept = live(one)
            ok(64 <= kept <= 128, f"{kind}: 64 or more of {MANY}", kept)
            after = flows.owners(servers)
            # Those that were let go may come back to where they were.
            ok(None not in after and len(moved(first, after)) <= MANY - kept,
               f"{kind}: they stay", len(moved(first, after)))
            equal((live(one), full(one)), (kept, MANY - kept),
                  f"{kind}: the others are counted")


# Whose memory it is

def in_cgroup(link, port):
    """A server of its own, which changes the group when asked."""
    link.recv()				# it is in the cgroup
    with Pool() as pool:
        servers = pool.servers(2, "udp", INET, port, ps.member("rr"))
        link.send("up")
        while True:
            option, value = link.recv()
            link.send(tap.error_of(ps.set, servers[0], option, value))


class Charged:
    """A group whose founder is in a cgroup of its own."""

    def __init__(self, pool, name):
        self.cgroup = cgroup.Cgroup(name)
        pool.callback(self.cgroup.close)
        port = net.port()
        self._path = f"/sys/class/portsteer/udp:0.0.0.0:{port}"
        self._child = pool.enter_context(proc.Child(in_cgroup, port))
        self.cgroup.add(self._child.pid)
        self._child.ask("in")

    def by_program(self, option, value):
        return self._child.ask((option, value))

    def by_operator(self, name, value):
        ps.sysfs_write(f"{self._path}/{name}", value)

    def read(self, *names):
        return tuple(int(ps.sysfs_read(f"{self._path}/{name}"))
                     for name in names)


@test
def charged():
    """the table is charged to the founder's cgroup, while it is there"""
    with Pool() as pool:
        group = Charged(pool, "charged")
        group.by_program(ps.AFFINITY, 0)	# what it touches is its own
        before = group.cgroup.used()

        def grown(low, high):
            """In MB; what was let go is freed a grace period later."""
            return proc.wait_for(
                lambda: low <= (group.cgroup.used() - before) / MB <= high)

        def check(text, low, high):
            ok(grown(low, high), text, group.cgroup.used() - before)

        group.by_operator("affinity_flows", 1 << 20)
        check("no affinity, no table", -3, 3)
        ways = (("operator", group.by_operator, "affinity", 0),
                ("program", group.by_program, ps.AFFINITY, 0),
                ("working generation", group.by_operator,
                 "working_generation", -1))
        # The kernel takes its time to free: some seconds for each.
        for text, call, what, off in ways[:1] if QUICK else ways:
            call(what, 60)
            check(f"{text}: 32 MB for a million flows", 30, 36)
            if not QUICK:
                size = (group.cgroup.used() - before) / MB
                group.by_operator("affinity_flows", 1 << 19)
                check(f"{text}: half of it for half as many", size / 2 - 3,
                      size / 2 + 3)
            call(what, off)
            check(f"{text}: given back", -3, 3)
            group.by_operator("affinity_flows", 1 << 20)


@test
def no_room():
    """a cgroup that is full: ENOMEM, nothing changed, nobody killed"""
    with Pool() as pool:
        group = Charged(pool, "full")
        group.by_operator("affinity_flows", 1 << 20)
        group.cgroup.limit(group.cgroup.used() + 4 * MB)
        names = "affinity", "working_generation", "affinity_flows"
        for text, call in (
                ("affinity", lambda: group.by_operator("affinity", 60)),
                ("generation", lambda: group.by_operator("working_generation",
                                                         1))):
            fails("ENOMEM", f"operator: {text}", call)
            equal(group.read(*names), (0, -1, 1 << 20), f"{text}: as before")
        for option in (ps.AFFINITY, ps.WORKING_GENERATION):
            equal(group.by_program(option, 60), "ENOMEM", f"program: {option}")
            equal(group.read(*names), (0, -1, 1 << 20), "as before")
        group.by_operator("affinity_flows", 1024)
        group.by_operator("affinity", 60)
        fails("ENOMEM", "operator: a larger table", group.by_operator,
              "affinity_flows", 1 << 20)
        equal(group.read(*names), (60, -1, 1024), "as before")
        group.cgroup.limit("max")
        group.by_operator("affinity_flows", 1 << 20)
        equal(group.read(*names), (60, -1, 1 << 20), "with more room it fits")
        equal((group.by_program(ps.AFFINITY, 0), group.cgroup.killed()),
              (None, 0), "nobody was killed")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=300)
