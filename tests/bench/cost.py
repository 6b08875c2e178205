# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: what a socket lookup costs, in instructions, by the kernel
alone and with portsteer. Prints a table, and what exceeds a limit; the exit
status is 1 if anything does.

The same sockets on the same port go through all cases, one after the other:
the kernel alone, the module loaded, its hooks armed by a group on another port,
this port's group under each policy, module gone, the kernel with a classic BPF
program. Everything that is measured is also checked: each lookup found a
socket, and as many as were to be steered were counted by portsteer.
"""
import contextlib
import ctypes
import os
import platform
import re
import resource
import socket
import struct
import subprocess
import sys
import time

PORT = 5300
OTHER_PORT = 5400
COUNT = 10000
CLOSES = 301
MEMBERS = (1, 4, 64, 1000)
POLICIES = ("hash", "rr")
KINDS = ("tcp4", "tcp6", "udp4", "udp6")
HEADS = ("TCP IPv4", "TCP IPv6", "UDP IPv4", "UDP IPv6")

# At most so many instructions more than the kernel alone.
LIMIT_LOADED = 0
LIMIT_ARMED = 60
LIMIT_GROUP = 200

RULES = "/sys/class/portsteer/rules"
SO_ATTACH_REUSEPORT_CBPF = 51


def run(*command):
    subprocess.run(command, check=True)


def ask(command):
    """What psbench measures."""
    with open("/proc/psbench", "r+b", buffering=0) as file:
        file.write(command.encode())
        file.seek(0)
        return [int(word) for word in file.read().split()]


def lookup(kind, packet):
    total, found = ask(f"lookup {kind} {PORT} {packet} {COUNT}")
    if found != COUNT:
        sys.exit(f"{kind}: {found} of {COUNT} lookups found a socket")
    return total / COUNT


def open_sockets(kind, port, count):
    sockets = []
    for _ in range(count):
        family = socket.AF_INET if kind.endswith("4") else socket.AF_INET6
        tcp = kind.startswith("tcp")
        sock = socket.socket(family, socket.SOCK_STREAM if tcp
                             else socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(("", port))
        if tcp:
            sock.listen(16)
        sockets.append(sock)
    return sockets


def rule(text):
    fd = os.open(RULES, os.O_WRONLY)
    os.write(fd, text.encode())
    os.close(fd)


def picked(kind):
    """What portsteer counted on the port; None without a group."""
    proto = kind[:3]
    with open("/proc/net/portsteer") as file:
        match = re.search(rf"^{proto}:\S*:{PORT} .*\bpicked=(\d+)",
                          file.read(), re.MULTILINE)
    return int(match[1]) if match else None


def steered(kind, packet, expected):
    """Cost of lookups, `expected` of which the policy is to count."""
    before = picked(kind)
    cost = lookup(kind, packet)
    # psbench goes through its loop twice, the first time to warm up
    counted = picked(kind) - before
    if counted != 2 * expected:
        sys.exit(f"{kind}, {packet}: portsteer counted {counted} picks in "
                 f"{2 * COUNT} lookups, {2 * expected} would be right")
    return cost


def select_by_cpu(sock):
    """Classic BPF: the socket with this CPU's number."""
    program = (struct.pack("HBBI", 0x20, 0, 0, 0xfffff024)   # ld #cpu
               + struct.pack("HBBI", 0x16, 0, 0, 0))         # ret a
    code = ctypes.create_string_buffer(program)
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF,
                    struct.pack("HxxxxxxP", 2, ctypes.addressof(code)))


@contextlib.contextmanager
def module():
    run("insmod", "portsteer.ko")
    try:
        yield
    finally:
        run("rmmod", "portsteer")


@contextlib.contextmanager
def armed():
    """A group on another port, of each protocol."""
    others = open_sockets("tcp4", OTHER_PORT, 2)
    others += open_sockets("udp4", OTHER_PORT, 2)
    for proto in "tcp", "udp":
        rule(f"add {proto} {OTHER_PORT} policy=hash")
    try:
        yield
    finally:
        rule("clear")
        for sock in others:
            sock.close()


class Table:
    def __init__(self):
        self.cells = {}     # (case, members): {kind: text}
        self.excess = {}    # case: (by how much, what to say)

    def add(self, case, members, kind, cost, base=None, limit=None):
        """base: what the kernel alone takes, if that isn't what cost is."""
        cells = self.cells.setdefault((case, members), {})
        cells[kind] = f"{cost:.0f}"
        if base is None:
            return
        cells[kind] += f" ({cost - base:+.0f})"
        where = f"{HEADS[KINDS.index(kind)]}, {members} members"
        self.check(case, where, cost - base, limit)

    def check(self, case, where, more, limit):
        """Keep the worst of each case that is over the limit."""
        # the odd interrupt that was pending: below an instruction a lookup
        over = more - limit
        if over >= 0.5 and over > self.excess.get(case, (0,))[0]:
            self.excess[case] = over, (f"{case}: up to {more:+.0f} ({where}), "
                                       f"the limit is +{limit}")


def warm_up():
    """The kernel sets up its hash secrets at the first lookup of each kind and
    takes the code that did it out a little later."""
    for kind in KINDS:
        sockets = open_sockets(kind, PORT, 2)
        lookup(kind, "packet")
        for sock in sockets:
            sock.close()
    time.sleep(1)


def measure(table, kind, members):
    def add(case, cost, base=None, limit=None):
        table.add(case, members, kind, cost, base, limit)

    sockets = open_sockets(kind, PORT, members)
    alone = lookup(kind, "packet")
    alone_no_packet = lookup(kind, "none")
    add("kernel alone", alone)
    add("kernel alone, no packet", alone_no_packet)
    with module():
        add("module loaded, no group", lookup(kind, "packet"), alone,
            LIMIT_LOADED)
        with armed():
            if picked(kind) is not None:
                sys.exit(f"{kind}: the port has a group without a rule")
            add("group on another port", lookup(kind, "packet"), alone,
                LIMIT_ARMED)
            for policy in POLICIES:
                rule(f"add {kind[:3]} {PORT} policy={policy}")
                add(f"group, {policy}", steered(kind, "packet", COUNT), alone,
                    LIMIT_GROUP)
            add("group, no packet", steered(kind, "none", 0), alone_no_packet,
                LIMIT_GROUP)
    # not in the table: it would repeat the first rows
    table.check("module gone", kind, abs(lookup(kind, "packet") - alone), 0)
    select_by_cpu(sockets[0])
    add("kernel alone, classic BPF", lookup(kind, "packet"))
    for sock in sockets:
        sock.close()


def measure_close(table):
    """A closed socket that portsteer doesn't know, beside a group."""
    alone, = ask(f"close {CLOSES}")
    with module():
        loaded, = ask(f"close {CLOSES}")
        with armed():
            busy, = ask(f"close {CLOSES}")
    table.check("module loaded, no group", "close()", loaded - alone,
                LIMIT_LOADED)
    return loaded - alone, busy - alone


def print_row(name, members, cells):
    print(f"| {name:26} | {members:>7} | "
          + " | ".join(f"{cell:>12}" for cell in cells) + " |")


def print_table(table):
    print_row("instructions per lookup", "members", HEADS)
    print_row("---", "--:", ["--:"] * len(HEADS))
    # the kernel's own first
    cases = sorted(dict.fromkeys(case for case, _ in table.cells),
                   key=lambda case: not case.startswith("kernel"))
    for case in cases:
        for members in MEMBERS:
            cells = table.cells[case, members]
            print_row(case, members, [cells[kind] for kind in KINDS])


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    run("insmod", "psbench.ko")
    warm_up()
    table = Table()
    for kind in KINDS:
        for members in MEMBERS:
            measure(table, kind, members)
            print(".", end="", file=sys.stderr, flush=True)
    loaded, busy = measure_close(table)
    print(file=sys.stderr, flush=True)

    print(f"Measured on {platform.release()}. In brackets: more than the "
          "kernel alone.\n")
    print_table(table)
    print(f"\nClosing a TCP socket that portsteer doesn't know: {loaded:+} "
          f"instructions with the\nmodule loaded, {busy:+} beside a group.")
    if table.excess:
        print("\nOver the limit:\n")
        for _, line in table.excess.values():
            print(f"- {line}")
    return bool(table.excess)


if __name__ == "__main__":
    sys.exit(main())
