# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: what a UDP lookup costs, in instructions, where live flows
keep their socket, by the number of flows; and where a member is connect()ed.
Prints two tables, and what exceeds a limit; the exit status is 1 if anything
does.
"""
import os
import resource
import socket
import sys

import cost
from cost import PORT, ask, lookup, rule, steered

KINDS = ("udp4", "udp6")
HEADS = ("IPv4", "IPv6")
LOOPBACK = {"udp4": "127.0.0.1", "udp6": "::1"}
FLOWS = (100, 1000, 10000, 100000)
ROOM = 131072
NEW = 1000
MEMBERS = 4
LARGE = 1000

# A bucket with more flows in it takes a few comparisons more.
LIMIT_FLAT = 1.25
LIMIT_CONNECTED = 1.5


def directory():
    name, = (name for name in os.listdir("/sys/class/portsteer")
             if name.endswith(f":{PORT}"))
    return f"/sys/class/portsteer/{name}"


def write(name, value):
    with open(f"{directory()}/{name}", "w") as file:
        file.write(str(value))


def flows_full():
    with open(f"{directory()}/stats/flows_full") as file:
        return int(file.read())


def live():
    with open(f"{directory()}/stats/flows") as file:
        return int(file.read())


def per_lookup(kind, packet, count):
    total, found = ask(f"lookup {kind} {PORT} {packet} {count}")
    if found != count:
        sys.exit(f"{kind}: {found} of {count} lookups found a socket")
    return total / count


class Table:
    def __init__(self):
        self.rows = {}
        self.over = []

    def add(self, row, column, value):
        self.rows.setdefault(row, {})[column] = value

    def check(self, what, value, base, limit):
        if value > base * limit:
            self.over.append(f"{what}: {value:.0f}, {value / base:.2f} times "
                             f"{base:.0f}, the limit is {limit}")

    def print(self, head, columns):
        print(f"| {head:34} | " + " | ".join(f"{c:>12}" for c in columns) + " |")
        print(f"| {'---':34} | " + " | ".join(["--:".rjust(12)] * len(columns))
              + " |")
        for row, cells in self.rows.items():
            print(f"| {row:34} | " + " | ".join(
                f"{cells[c]:12.0f}" if c in cells else " " * 12
                for c in columns) + " |")


def measure_flows(table, kind):
    def add(row, flows, value):
        table.add(f"{head}, {row}", f"{flows} flows", value)
        return value

    head = HEADS[KINDS.index(kind)]
    sockets = cost.open_sockets(kind, PORT, MEMBERS)
    alone = lookup(kind, "packet")
    for flows in FLOWS:
        add("kernel alone", flows, alone)
    with cost.module():
        rule(f"add udp {PORT} policy=rr")
        without = steered(kind, "packet", cost.COUNT)
        for flows in FLOWS:
            add("rr", flows, without)
        first = {}
        for flows in FLOWS:
            # a fresh table each time
            rule(f"add udp {PORT} policy=rr affinity=0")
            write("affinity_flows", ROOM)
            rule(f"add udp {PORT} policy=rr affinity=100000")
            hit = add("rr, affinity: a live flow", flows,
                      per_lookup(kind, "packet", flows))
            new = add("rr, affinity: a new flow", flows,
                      per_lookup(kind, "new", NEW))
            if live() != flows + 2 * NEW or flows_full():
                sys.exit(f"{kind}: {live()} flows, {flows_full()} not kept; "
                         f"{flows + 2 * NEW} and 0 would be right")
            for what, value in ("a live flow", hit), ("a new flow", new):
                table.check(f"{head}, {what}, {flows} flows", value,
                            first.setdefault(what, value), LIMIT_FLAT)
        for sock in sockets:
            sock.close()


def open_bound(kind, count):
    """With a local address: those stay in the kernel's group when they get a
    peer, and make its lookup slow."""
    sockets = []
    for _ in range(count):
        sock = socket.socket(socket.AF_INET if kind.endswith("4")
                             else socket.AF_INET6, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((LOOPBACK[kind], PORT))
        sockets.append(sock)
    return sockets


def connect_one(kind, sockets):
    """One more member, with a peer."""
    sock, = open_bound(kind, 1)
    sockets.append(sock)
    sock.connect((LOOPBACK[kind], 9))


def measure_connected(table, kind):
    head = HEADS[KINDS.index(kind)]
    cases = ("kernel alone", None), ("hash", "hash"), ("rr", "rr")
    for case, policy in cases:
        sockets = open_bound(kind, LARGE)

        def measure():
            return (steered(kind, "packet", cost.COUNT) if policy
                    else lookup(kind, "packet"))

        def both():
            none = measure()
            connect_one(kind, sockets)
            one = measure()
            table.add(f"{head}, {case}", "none", none)
            table.add(f"{head}, {case}", "one connected", one)
            if policy:
                table.check(f"{head}, {case}, one connected", one, none,
                            LIMIT_CONNECTED)

        if policy:
            with cost.module():
                rule(f"add udp {PORT} policy={policy}")
                both()
                for sock in sockets:
                    sock.close()
        else:
            both()
            for sock in sockets:
                sock.close()


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    if not os.path.exists("/proc/psbench"):
        cost.run("insmod", "psbench.ko")
        cost.warm_up()
    flows, connected = Table(), Table()
    for kind in KINDS:
        measure_flows(flows, kind)
        measure_connected(connected, kind)
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr, flush=True)
    print(f"Flows that keep their socket, with room for {ROOM}; {MEMBERS} "
          "members.\n")
    flows.print("instructions per lookup", [f"{n} flows" for n in FLOWS])
    print(f"\nA UDP group of {LARGE} members, and with one more that has a "
          "peer:\ndatagrams of others.\n")
    connected.print("instructions per lookup", ("none", "one connected"))
    over = flows.over + connected.over
    if over:
        print("\nOver the limit:\n")
        for line in over:
            print(f"- {line}")
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
