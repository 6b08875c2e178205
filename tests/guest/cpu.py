#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: smp=4 timeout=600
"""The policies "cpu" and "numa": members serve CPUs that were set, or learned
from where they accept or receive. DESIGN.md 2.3."""
import contextlib
import os
import select
import socket

from lib import kernel, net, proc, ps, stats, tap
from lib.net import INET, Pool, combinations
from lib.tap import Skip, equal, ok, test

IDS = (3, 70, 500, 65535)


def members(pool, kind, family, policy, cpus):
    """(servers, address): a member for each of the CPUs, with sparse ids."""
    port = net.port()
    servers = [pool.server(kind, family, port, ps.member(policy, id, cpu=cpu))
               for id, cpu in zip(IDS, cpus)]
    return servers, (net.LOOPBACK[family], port)


def from_cpu(cpu, servers, address, count):
    """How many of count from that CPU each of the servers gets."""
    with kernel.on_cpu(cpu):
        return net.deal(servers, address, count)


def table(servers, address, cpus, count=10):
    """What comes from each of the CPUs, by server."""
    return [from_cpu(cpu, servers, address, count) for cpu in cpus]


def diagonal(count, size):
    return [[count if row == column else 0 for column in range(size)]
            for row in range(size)]


@test
def four_cpus():
    """each CPU's own member, whatever its id"""
    for text, kind, family in combinations():
        with Pool() as pool:
            servers, address = members(pool, kind, family, "cpu", range(4))
            equal(table(servers, address, range(4)), diagonal(10, 4),
                  f"{text}: in order")
            for sock, cpu in zip(servers, (2, 0, 3, 1)):
                ps.set(sock, ps.CPU, cpu)
            equal(table(servers, address, (2, 0, 3, 1)), diagonal(10, 4),
                  f"{text}: set anew")


@test
def none_for_a_cpu():
    """other members serve it, by hash"""
    for text, kind, family in combinations():
        with Pool() as pool:
            servers, address = members(pool, kind, family, "cpu", (0, 2))
            equal(table(servers, address, (0, 2)), [[10, 0], [0, 10]],
                  f"{text}: those that have one")
            for cpu in (1, 3):
                shares = from_cpu(cpu, servers, address, 100)
                ok(sum(shares) == 100 and stats.uniform(shares),
                   f"{text}: CPU {cpu} has none", shares)


@test
def several_for_a_cpu():
    """share it by hash"""
    for text, kind, family in combinations():
        with Pool() as pool:
            servers, address = members(pool, kind, family, "cpu",
                                       (1, 1, 1, 2))
            shares = from_cpu(1, servers, address, 150)
            ok(shares[3] == 0 and sum(shares) == 150 and
               stats.uniform(shares[:3]), f"{text}: CPU 1", shares)
            equal(from_cpu(2, servers, address, 10), [0, 0, 0, 10],
                  f"{text}: CPU 2")
            ps.set(servers[3], ps.STATE, ps.DRAINING)
            shares = from_cpu(2, servers, address, 60)
            ok(shares[3] == 0 and sum(shares) == 60 and min(shares[:3]) > 0,
               f"{text}: while CPU 2's drains", shares)


@test
def comings_and_goings():
    """a CPU's member goes, another one comes"""
    for text, kind, family in combinations():
        with Pool() as pool:
            servers, address = members(pool, kind, family, "cpu", range(4))
            servers.pop(1).close()
            shares = from_cpu(1, servers, address, 60)
            ok(sum(shares) == 60 and min(shares) > 0,
               f"{text}: the others serve its CPU", shares)
            equal(table(servers, address, (0, 2, 3)), diagonal(10, 3),
                  f"{text}: and their own as before")
            servers.append(pool.server(kind, family, address[1],
                                       ps.member(cpu=1)))
            equal(from_cpu(1, servers, address, 10), [0, 0, 0, 10],
                  f"{text}: a newcomer serves it")


# Learned

def take(sock):
    """Accept or receive one if there is any."""
    with contextlib.suppress(BlockingIOError):
        if sock.type == socket.SOCK_STREAM:
            sock.accept()[0].close()
        else:
            sock.recv(64)


def serve(link, kind, family, port, cpu, asks_first):
    """A worker on a CPU; obeys, and tells what CPU was set and is in force."""
    os.sched_setaffinity(0, {cpu})
    with net.server(kind, family, port, ps.member("cpu")) as sock:
        if asks_first:
            take(sock)
        link.send(ps.get(sock, ps.ID))
        while True:
            ready, _, _ = select.select([sock, link], [], [])
            if sock in ready:
                take(sock)
            if link in ready:
                command, value = link.recv()
                if command == "move":
                    os.sched_setaffinity(0, {value})
                elif command == "set":
                    ps.set(sock, ps.CPU, value)
                link.send((ps.get(sock, ps.CPU), ps.info(sock).cpu))


class Workers:
    """One on each CPU, and what comes to them."""

    def __init__(self, pool, kind, family, asks_first):
        port = net.port()
        self._kind = kind
        self._address = (net.LOOPBACK[family], port)
        self._name = f"{kind}:{'0.0.0.0' if family == INET else '[::]'}:{port}"
        self._children = [proc.Child(serve, kind, family, port, cpu,
                                     asks_first) for cpu in range(4)]
        for child in self._children:
            pool.push(child)
        self._ids = [child.get() for child in self._children]

    def tell(self, number, command="look", value=None):
        return self._children[number].ask((command, value))

    def cpus(self):
        """Where each of them is thought to run."""
        return [self.tell(number)[1] for number in range(4)]

    def knock(self, cpu):
        """One connection or datagram from that CPU."""
        with kernel.on_cpu(cpu), net.client(self._kind, self._address) as sock:
            if self._kind == "tcp":
                select.select([sock], [], [], 20)	# closed: was accepted

    def picked(self):
        return ps.table()[self._name].picked()

    def gained(self, cpu, count=5):
        """How many of count from that CPU each of them is given."""
        before = self.picked()
        for _ in range(count):
            self.knock(cpu)
        # A busy CPU may deliver datagrams a little later.
        proc.wait_for(lambda: sum(self.picked()) >= sum(before) + count, 5)
        after = self.picked()
        return [after[id] - before[id] for id in self._ids]


def alone(number, count=5):
    return [count if other == number else 0 for other in range(4)]


@test
def learned():
    """a worker's CPU is the one on which it last accepted or received"""
    for text, kind, family in combinations():
        with Pool() as pool:
            workers = Workers(pool, kind, family, True)
            equal([workers.tell(number) for number in range(4)],
                  [(-1, cpu) for cpu in range(4)],
                  f"{text}: INFO tells, CPU reads as set")
            equal([workers.gained(cpu) for cpu in range(4)],
                  [alone(cpu) for cpu in range(4)],
                  f"{text}: each is given what comes on its CPU")

            equal((workers.tell(0, "set", 3), workers.tell(3, "set", 0)),
                  ((3, 3), (0, 0)), f"{text}: set beats learned")
            equal([workers.gained(cpu) for cpu in (0, 3)],
                  [alone(3), alone(0)], f"{text}: also for packets")
            equal((workers.tell(0, "set", -1), workers.tell(3, "set", -1)),
                  ((-1, 0), (-1, 3)), f"{text}: -1 is what was learned")
            equal([workers.gained(cpu) for cpu in (0, 3)],
                  [alone(0), alone(3)], f"{text}: and that is in force again")

            workers.tell(1, "move", 2)
            workers.tell(2, "move", 1)
            ok(proc.wait_for(lambda: [workers.gained(cpu) for cpu in (1, 2)] ==
                             [alone(2), alone(1)], 20),
               f"{text}: two that trade CPUs are found again", workers.cpus())


@test
def learned_in_time():
    """workers that accept only what has come are learned, too"""
    for text, kind, family in combinations():
        with Pool() as pool:
            workers = Workers(pool, kind, family, False)
            equal(workers.cpus(), [-1] * 4, f"{text}: nothing is known")
            # Nobody's CPU is by hash: each has one chance in four a round.
            for _ in range(100):
                for cpu in range(4):
                    workers.knock(cpu)
                if workers.cpus() == [0, 1, 2, 3]:
                    break
            equal(workers.cpus(), [0, 1, 2, 3],
                  f"{text}: everything is in the end")
            equal([workers.gained(cpu) for cpu in range(4)],
                  [alone(cpu) for cpu in range(4)], f"{text}: and used")


# numa

@test
def one_node():
    """numa: by hash, since all CPUs are of the node"""
    if len(kernel.node_list("has_cpu")) != 1:
        raise Skip("more than one node")
    for text, kind, family in combinations():
        with Pool() as pool:
            servers, address = members(pool, kind, family, "numa",
                                       (0, 1, 3, 3))
            shares = from_cpu(2, servers, address, 200)
            ok(sum(shares) == 200 and stats.uniform(shares),
               f"{text}: by hash among all", shares)
            for sock in servers:
                ps.set(sock, ps.CPU, -1)
            shares = net.deal(servers, address, 60)
            equal(sum(shares), 60, f"{text}: nothing is lost without any")


# Fewer CPUs

@test
def two_cpus():
    """the other two are offline; members may be theirs all the same"""
    with kernel.offline(2, 3):
        equal(kernel.cpu_list("online"), [0, 1], "two are left")
        for text, kind, family in combinations():
            with Pool() as pool:
                servers, address = members(pool, kind, family, "cpu", (1, 0))
                equal(table(servers, address, (1, 0)), diagonal(10, 2),
                      f"{text}: one for each")
                servers, address = members(pool, kind, family, "cpu",
                                           (0, 3, 2))
                equal(from_cpu(0, servers, address, 10), [10, 0, 0],
                      f"{text}: CPU 0's")
                shares = from_cpu(1, servers, address, 150)
                ok(sum(shares) == 150 and stats.uniform(shares),
                   f"{text}: CPU 1 has none", shares)


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=300)
