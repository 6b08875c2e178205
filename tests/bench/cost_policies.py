# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: what each policy costs a lookup, in instructions, beside
BPF programs that do the same job. Prints two tables, and what exceeds a limit;
the exit status is 1 if anything does.

The same sockets on the same port go through all cases. Everything is checked as
in cost.py, which does the measuring.
"""
import collections
import contextlib
import os
import resource
import socket
import struct
import sys
import threading
import time

import bpf
import cost
from cost import HEADS, KINDS, LIMIT_GROUP, PORT, lookup, rule, steered

MEMBERS = (4, 64, 1000)
SEED = "/sys/module/portsteer/parameters/seed"
PORTSTEER_WEIGHT, PORTSTEER_CPU = 20565, 20566
LOOPBACK = {"4": "127.0.0.1", "6": "::1"}

# Those that have a limit, and those that may grow with the group: 64 members
# are compared one by one; a search among weights takes log2(members) steps, one
# among ids log64(members).
LIMITED = ("hash", "rr")
GROWS = ("weights", "least", "idle", "quic")
# Where sockets fall in the kernel's hash table makes a difference of its own.
FLAT = 25


def set_option(sock, option, value):
    level = (socket.IPPROTO_IPV6 if sock.family == socket.AF_INET6
             else socket.IPPROTO_IP)
    sock.setsockopt(level, option, struct.pack("i", value))


@contextlib.contextmanager
def queued(kind, sockets):
    """A connection or a datagram in the queue of each socket. By turns."""
    address = LOOPBACK[kind[3]], PORT
    clients = []
    for _ in sockets:
        client = socket.socket(sockets[0].family, sockets[0].type)
        client.connect(address)
        if kind.startswith("udp"):
            client.send(b"x")
        clients.append(client)
    for sock in sockets:
        sock.setblocking(False)
    yield
    for sock in sockets:
        # fails if that one has none
        if kind.startswith("udp"):
            sock.recv(16)
        else:
            sock.accept()[0].close()
        sock.setblocking(True)
    for client in clients:
        client.close()


def wait_on(sock):
    """A worker, until the socket is shut down."""
    with contextlib.suppress(OSError):
        if sock.type == socket.SOCK_STREAM:
            sock.accept()
        else:
            sock.recv(16)


@contextlib.contextmanager
def waited_on(sockets):
    """Each of the sockets has a thread that sleeps in accept() or recv(), the
    last one for the shortest time: what `idle` likes best comes last. They
    are of no use afterwards."""
    threading.stack_size(1 << 18)
    threads = [threading.Thread(target=wait_on, args=(sock,))
               for sock in sockets]
    for thread in threads:
        thread.start()
    time.sleep(1)
    yield
    for sock in sockets:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()


class Costs:
    def __init__(self):
        self.cases = collections.OrderedDict()  # case: {(kind, members): cost}
        self.over = []

    def add(self, case, kind, members, value):
        self.cases.setdefault(case, {})[kind, members] = value

    def check(self):
        alone = self.cases["kernel alone"]
        for case, values in self.cases.items():
            for (kind, members), value in values.items():
                where = f"{case}, {kind}, {members} members"
                more = value - alone[kind, members]
                if case in LIMITED and more > LIMIT_GROUP:
                    self.over.append(f"{where}: {more:+.0f}, the limit is "
                                     f"+{LIMIT_GROUP}")
                few = values[kind, MEMBERS[0]]
                if value > few + FLAT and not any(word in case
                                                  for word in GROWS):
                    self.over.append(f"{where}: {value:.0f}, with "
                                     f"{MEMBERS[0]} it is {few:.0f}")

    def print_table(self, family):
        """One family's: members across, of TCP and of UDP."""
        kinds = [kind for kind in KINDS if kind.endswith(family)]
        columns = [(kind, members) for kind in kinds for members in MEMBERS]
        self.print_row(f"IPv{family}", [
            f"{HEADS[KINDS.index(kind)][:3]}, {members}"
            for kind, members in columns])
        self.print_row("---", ["--:"] * len(columns))
        alone = self.cases["kernel alone"]
        for case, values in self.cases.items():
            self.print_row(case, [
                f"{values[column]:.0f}" + (
                    "" if values is alone else
                    f" ({values[column] - alone[column]:+.0f})")
                if column in values else "" for column in columns])

    @staticmethod
    def print_row(name, cells):
        print(f"| {name:28} | "
              + " | ".join(f"{cell:>12}" for cell in cells) + " |")


def measure_kernel(add, kind, sockets):
    add("kernel alone", lookup(kind, "packet"))
    for name in bpf.CLASSIC:
        bpf.attach_classic(sockets[0], name, len(sockets))
        add(f"classic BPF, {name}", lookup(kind, "packet"))
        bpf.detach(sockets[0])
    programs = bpf.Extended(sockets)
    for name in bpf.EXTENDED:
        try:
            programs.attach(name)
        except OSError as error:
            # 5.10 has no fetch_add
            print(f"eBPF, {name}: {error}", file=sys.stderr)
            continue
        add(f"eBPF, {name}", lookup(kind, "packet"))
        bpf.detach(sockets[0])
    programs.close()


def measure_policies(add, kind, sockets):
    def policy(name, case=None):
        rule(f"add {kind[:3]} {PORT} policy={name}")
        add(case or name, steered(kind, "packet", cost.COUNT))

    for name in "hash", "rr", "random", "rxqueue", "consistent", "quic":
        policy(name)
    policy("least", "least, nothing queued")
    rule(f"add {kind[:3]} {PORT} policy=rr")
    with queued(kind, sockets):
        policy("least", "least, work for all")
        policy("idle", "idle, work for all")

    # Settings: under hash, which has nothing to be worked out anew each time.
    rule(f"add {kind[:3]} {PORT} policy=hash")
    with open(SEED, "w") as file:
        file.write("0123456789abcdef" * 2)
    policy("hash", "hash, seed")
    with open(SEED, "w") as file:
        file.write("random")
    # there is only one
    for sock in sockets:
        set_option(sock, PORTSTEER_CPU, 0)
    policy("cpu")
    policy("numa")
    rule(f"add {kind[:3]} {PORT} policy=hash")
    for i, sock in enumerate(sockets):
        set_option(sock, PORTSTEER_WEIGHT, 1 + i % 3)
    for name in "hash", "rr", "random":
        policy(name, f"{name}, weights")
    with waited_on(sockets):
        policy("idle", "idle, all wait")


def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    over = False
    if "--policies-only" in sys.argv:
        cost.run("insmod", "psbench.ko")
        cost.warm_up()
    else:
        over = cost.main()
        print()
    costs = Costs()
    for kind in KINDS:
        for members in MEMBERS:
            def add(case, value):
                costs.add(case, kind, members, value)

            sockets = cost.open_sockets(kind, PORT, members)
            measure_kernel(add, kind, sockets)
            with cost.module():
                measure_policies(add, kind, sockets)
                for sock in sockets:
                    sock.close()
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr, flush=True)
    costs.check()
    print("Every policy, for groups of 4, 64 and 1000 members, beside BPF "
          "programs that do the same\njob. In brackets: more than the kernel "
          "alone.")
    for family in LOOPBACK:
        print()
        costs.print_table(family)
    if costs.over:
        print("\nOver the limit:\n")
        for line in costs.over:
            print(f"- {line}")
    return over or bool(costs.over)


if __name__ == "__main__":
    sys.exit(main())
