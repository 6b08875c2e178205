#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: icount mem=2048 timeout=900
"""What one user's many groups cost another one's packets, in instructions: the
guest's clock counts them."""
import resource
import time

from lib import net, ns, ps, tap
from lib.net import INET, Pool
from lib.tap import ok, test

GROUPS = 8000
DATAGRAMS = 200


def cost(address, servers):
    """Instructions for each of some datagrams."""
    began = time.perf_counter_ns()
    reached = net.burst(servers, address, DATAGRAMS)
    took = (time.perf_counter_ns() - began) // DATAGRAMS
    if None in reached:
        raise RuntimeError("something was lost")
    return took


def crowd(pool, port):
    """Groups of one port, each on an address of its own."""
    for number in range(GROUPS):
        pool.server("udp", INET, port, ps.member(),
                    addr=f"127.4.{number // 250}.{number % 250 + 1}")


@test
def same_port_elsewhere():
    """thousands of groups on the port in another namespace: at most a fifth more"""
    resource.setrlimit(resource.RLIMIT_NOFILE, (GROUPS + 500, GROUPS + 500))
    port = net.port()
    space = ns.Namespace()
    with Pool() as here:
        plain = here.servers(2, "udp", INET, port, net.reuseport)
        address = ("127.0.0.1", port)
        # Armed, by a group of another port.
        here.server("udp", INET, net.port(), ps.member())
        cost(address, plain)		# warm up
        none = cost(address, plain)
        with Pool() as there:
            with space:
                # From now on the port is one that has a group somewhere.
                there.server("udp", INET, port, ps.member())
            few = cost(address, plain)
            with space:
                crowd(there, port)
                names = len(ps.table())
            ok(names == GROUPS + 1, f"{GROUPS} groups more", names)
            many = cost(address, plain)
            ok(many < few * 1.2, "strangers' datagrams cost what they did",
               f"{few} with one group there, {many} with {GROUPS}")
            tap.diag(f"{none} without a group there, {few} with one, {many}")
    space.close()


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=600)
