#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900
"""UDP flow affinity: tables of flows that are full or made larger or smaller,
and whose memory they are. DESIGN.md 2.5."""
import os
import socket
import struct
import time

from lib import cgroup, clients, flow, net, packet, proc, ps, tap
from lib.flow import (FOR_LONG, Flows, full, group_of, live, moved, setting,
                      settled, shares)
from lib.net import INET, Pool
from lib.tap import Skip, equal, fails, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
SPOOFED = 2500 if QUICK else 20000
MANY = 160 if QUICK else 400
LARGE = 8192 if QUICK else 1 << 20

MB = 1 << 20


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
            servers, flows, first = settled(pool, kind, "rr", MANY)
            one = servers[0]
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
                lambda: low <= (group.cgroup.used() - before) / MB <= high, 40)

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
