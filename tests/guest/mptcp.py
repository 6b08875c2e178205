#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""MPTCP listeners, whose TCP sockets no program has a descriptor of."""
import select
import socket

from lib import net, proc, ps, tap
from lib.net import INET
from lib.tap import equal, fails, ok, test

MPTCP = 262


def listener(family, port):
    sock = socket.socket(family, socket.SOCK_STREAM, MPTCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind((net.WILDCARD[family], port))
    sock.listen(64)
    return sock


def connect(family, port, listeners, protocol):
    """Which listener gets it."""
    with socket.socket(family, socket.SOCK_STREAM, protocol) as client:
        client.connect((net.LOOPBACK[family], port))
        ready, _, _ = select.select(listeners, [], [], 10)
        ready[0].accept()[0].close()
        return listeners.index(ready[0])


@test
def by_rule():
    """a rule steers them from listen() on, for TCP and MPTCP clients"""
    for family in net.FAMILIES:
        text = net.FAMILY_NAMES[family]
        port = net.port()
        ps.rule(f"add tcp {port} policy=rr")
        listeners = [listener(family, port) for _ in range(4)]
        shares = [0] * 4
        for i in range(40):
            shares[connect(family, port, listeners, (0, MPTCP)[i % 2])] += 1
        equal(shares, [10] * 4, f"{text}: rr is exact")
        equal([g["members"] for g in ps.table().values()], [4],
              f"{text}: four members")
        fails("ENOPROTOOPT", f"{text}: no options", ps.join, listeners[0])
        listeners[0].shutdown(socket.SHUT_RDWR)
        equal([g["members"] for g in ps.table().values()], [3],
              f"{text}: shutdown() is seen")
        for sock in listeners:
            sock.close()
        ok(proc.wait_for(lambda: not ps.table()), f"{text}: close() is seen",
           ps.table())
        ps.rule("clear")


if __name__ == "__main__":
    try:
        socket.socket(INET, socket.SOCK_STREAM, MPTCP).close()
    except OSError as error:
        print(f"1..0 # SKIP this kernel has no MPTCP ({error.strerror})")
    else:
        tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module)
