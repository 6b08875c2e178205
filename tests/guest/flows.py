#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900
"""UDP flow affinity: which flows stay, and how long. DESIGN.md 2.5; how it is
switched on is in flow_settings.py, the table in flow_tables.py, restarts in
overlap.py."""
import time

from lib import clients, flow, kernel, net, packet, ps, tap
from lib.flow import (FOR_LONG, Flows, full, group_of, live, moved, settled,
                      shares, stays)
from lib.net import INET6, Pool
from lib.tap import Skip, equal, ok, test


# Who stays

@test
def joining():
    """flows stay where they are while members join, and are counted"""
    for kind, policy in clients.pairs():
        text = f"{kind} {policy}"
        with Pool() as pool:
            servers, flows, first = settled(pool, kind, policy, 40)
            stays(f"{text}: a second time", flows, servers, first)
            for _ in range(3):
                servers += flow.members_of(pool, kind,
                                           flows.addresses[0][1], 1)
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
            servers, flows, first = settled(pool, kind, "random", 40)
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
            servers, flows, first = settled(pool, kind, policy, 40,
                                            working_generation=0)
            one = first[0]
            known = 40
            for change in (draining, standing_by, of_another_generation):
                text = f"{kind} {policy} {change.__name__.replace('_', ' ')}"
                change(one, True)
                stays(text, flows, servers, first)
                fresh = Flows(pool, flows.addresses, 20)
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
                servers, flows, first = settled(pool, kind, policy, 40)
                for sock in servers:
                    draining(sock, True)
                stays(text, flows, servers, first)
                found = Flows(pool, flows.addresses, 30).owners(servers)
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
        began = time.monotonic()
        self._found.add(self._servers.index(
            self._flows.owners(self._servers, [1])[0]))
        self._longest = max(self._longest, time.monotonic() - self._last)
        self._last = began

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
                servers, flows, first = settled(pool, kind, policy, 36)
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
            servers, flows, first = settled(pool, kind, "rr", 64)
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
            servers, flows, first = settled(pool, kind, policy, 40)
            for number, sock in enumerate(servers):
                ps.set(sock, ps.ID, 503 - number)
                ps.set(sock, ps.WEIGHT, 1 + number)
            stays(f"{kind} {policy}", flows, servers, first)


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
            servers, flows, first = settled(pool, kind, policy, 10)
            picked = ps.group(servers[0]).picked()
            before = errors(family)
            for number in range(20):
                peer = flows.address(number) if number < 10 else \
                    (net.LOOPBACK[family], 20000 + number)
                packet.send_icmp_error(family, flows.addresses[0], peer)
            equal(errors(family) - before, 20, f"{text}: 20 errors")
            equal((live(servers[0]), ps.group(servers[0]).picked()),
                  (10, picked), f"{text}: 10 flows, as before")
            stays(f"{text}: and where they were", flows, servers, first)


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=300)
