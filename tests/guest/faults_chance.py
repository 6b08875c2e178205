#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900 allow="Call Trace"
"""Allocations fail by chance: in calls, in what the module does later, in the
packet path. Needs a kernel with fault injection: a debug kernel.

Where ftrace or a module gets no memory for code the kernel shows its stack, as
a warning: that alone is no complaint. All reports of faults say more."""
import os
import random
import socket
import time

from lib import fault, net, ns, proc, ps, tap
from lib.net import INET, INET6
from lib.tap import ok, test
from lib.walk import OPTIONS, QUICK, SEED, inconsistencies, serves, state

SECONDS = 5 if QUICK else 30
ROUNDS = 1 if QUICK else 2

PORTS = range(9001, 9005)


class Churn:
    """Sockets that come, change and go."""

    def __init__(self, seed):
        self.choose = random.Random(seed)
        self.socks = []

    def serve(self):
        sock = net.new(self.choose.choice(tuple(net.TYPES)),
                       self.choose.choice(net.FAMILIES))
        self.socks.append(sock)
        if len(self.socks) > 20:
            self.socks.pop(self.choose.randrange(20)).close()
        sock.setblocking(False)
        ps.member(self.choose.choice(ps.POLICIES),
                  affinity=self.choose.choice((0, 60)))(sock)
        sock.bind((net.WILDCARD[sock.family] if sock.family == INET
                   else "::1", self.choose.choice(PORTS)))
        if sock.type == socket.SOCK_STREAM:
            sock.listen(16)

    def change(self):
        sock = self.choose.choice(self.socks)
        name, value = self.choose.choice(OPTIONS[:-1])
        if name == "WORKING_GENERATION":
            value = -1
        ps.set(sock, getattr(ps, name), value)

    def policy(self):
        ps.set_policy(self.choose.choice(self.socks),
                      self.choose.choice(ps.POLICIES))

    def peer(self):
        sock = self.choose.choice(self.socks)
        if sock.type == socket.SOCK_DGRAM:
            sock.connect((net.LOOPBACK[sock.family], 9))
            net.disconnect(sock)

    def ask(self):
        sock = self.choose.choice(self.socks)
        kind = "tcp" if sock.type == socket.SOCK_STREAM else "udp"
        with net.new(kind, sock.family) as client:
            client.setblocking(False)
            client.connect((net.LOOPBACK[sock.family],
                            sock.getsockname()[1]))
            if kind == "udp":
                client.send(b"x")

    def close(self):
        self.socks.pop(self.choose.randrange(len(self.socks))).close()

    def turn(self):
        action = self.choose.choice((self.serve,) * 4 + (
            self.change, self.change, self.policy, self.policy, self.peer,
            self.ask, self.ask, self.close))
        try:
            action()
            return True
        except (OSError, IndexError, MemoryError):
            return False


def churn(link, seed):
    """Until told to stop, and then hold still until told to go."""
    load = Churn(seed)
    done = 0
    link.send("up")
    while not link.poll(0):
        done += load.turn()
    link.recv()
    link.send(done)
    link.recv()


def directories():
    """What /sys/class/portsteer shows: {group: ids}."""
    top = f"{ns.sysfs()}/class/portsteer"
    return {name: sorted(int(id) for id in os.listdir(f"{top}/{name}/members"))
            for name in ps.sysfs_names()}


def settled():
    """Does sysfs show what there is?"""
    try:
        return directories() == {name: group.ids() for name, group
                                 in ps.table().items()}
    except FileNotFoundError:
        return False


def keeps_flows(name):
    """Has a group with affinity remembered the flow of a datagram?"""
    host, port = name[len("udp:"):].rsplit(":", 1)
    family = INET6 if "[" in host else INET
    with net.new("udp", family) as client:
        client.sendto(b"x", (net.LOOPBACK[family], int(port)))
    return int(ps.sysfs_read(
        f"{ns.sysfs()}/class/portsteer/{name}/stats/flows")) > 0


def recovered(text):
    """With memory again, all is as it should have been."""
    ok(proc.wait_for(settled, 10), f"{text}: sysfs shows all there is",
       f"{directories()}\n{state()}")
    ok(not list(inconsistencies()), f"{text}: /proc makes sense",
       list(inconsistencies()))
    flows = [name for name, group in ps.table().items() if "udp" in name and
             group["affinity"] and group["selectable"]]
    forgetful = [name for name in flows
                 if not proc.wait_for(lambda: keeps_flows(name), 10)]
    ok(not forgetful, f"{text}: {len(flows)} groups keep flows", forgetful)


def by_chance(text, percent, marked):
    """A load while allocations fail, again and again, and what is left."""
    failed = done = 0
    for turn in range(ROUNDS):
        with proc.Child(churn, SEED + turn) as child:
            child.get()
            end = time.monotonic() + SECONDS
            with fault.Chance(percent, marked is not None) as chance:
                while time.monotonic() < end:
                    if marked:
                        fault.mark(marked(child))
                    time.sleep(0.05)
            done += child.ask("stop")
            failed += chance.failed
            recovered(text)
            child.link.send("go")
            child.wait()
        ok(proc.wait_for(lambda: not ps.table() and not ps.sysfs_names()),
           f"{text}: all goes away", f"{ps.table()} {ps.sysfs_names()}")
    ok(failed and done, f"{text}: {failed} failures, {done} deeds")
    serves(text)


@test
def later():
    """what is done off the way of packets and calls is done in the end"""
    fault.need()
    by_chance("kernel workers", 40, lambda child: fault.kernel_workers())


@test
def calls():
    """calls of a program whose allocations fail now and then"""
    fault.need()
    by_chance("a program", 10, lambda child: [child.pid])


@test
def packets():
    """what can't wait for memory fails with everybody"""
    fault.need()
    by_chance("everybody", 10, None)


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=3000)
