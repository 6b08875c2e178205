#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: smp=4 timeout=600 threads
"""Everything at once, in random order: stress.py [SECONDS [SEED]]"""
import os
import random
import resource
import socket
import sys
import time

from lib import net, ns, proc, ps, tap
from lib.net import INET, INET6
from lib.tap import equal, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 10 if QUICK else 30
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else \
    random.SystemRandom().randrange(2**32)
WORKERS = 6
PORTS = (9001, 9002, 9003, 9004)
ADDRESSES = {INET: ("0.0.0.0", "127.0.0.1", "127.0.0.2"),
             INET6: ("::", "::1", "::ffff:127.0.0.1")}
POLICIES = ("hash", "rr")


class Worker:
    """One process' sockets and the things it does to them."""

    def __init__(self, seed):
        self.choose = random.Random(seed)
        self.socks = []
        self.done = {}

    def any(self):
        return self.choose.choice(self.socks) if self.socks else self.create()

    def create(self):
        sock = net.new(self.choose.choice(tuple(net.TYPES)),
                       self.choose.choice((INET, INET6)))
        sock.setblocking(False)
        self.socks.append(sock)
        if len(self.socks) > 24:
            self.socks.pop(0).close()
        return sock

    def bind(self, sock=None):
        sock = sock or self.any()
        sock.bind((self.choose.choice(ADDRESSES[sock.family]),
                   self.choose.choice(PORTS)))

    def serve(self):
        """The usual way, most of the time with a wish or two."""
        sock = self.create()
        for prepare in self.choose.sample(
                (net.reuseport, ps.join, ps.member("rr"), net.reuseaddr,
                 ps.wish_id(self.choose.randrange(40))), 2):
            prepare(sock)
        self.bind(sock)
        if sock.type == socket.SOCK_STREAM:
            sock.listen(self.choose.choice((0, 1, 16)))

    def listen(self):
        self.any().listen(self.choose.randrange(8))

    def connect(self):
        """As a client, or a member that takes a peer."""
        sock = self.choose.choice((self.any, self.create))()
        host = self.choose.choice(("127.0.0.1", "127.0.0.2"))
        if sock.family == INET6:
            host = self.choose.choice(("::1", f"::ffff:{host}"))
        sock.connect((host, self.choose.choice(PORTS)))

    def disconnect(self):
        net.disconnect(self.any())

    def send(self):
        self.any().send(b"x" * self.choose.randrange(1, 100))

    def receive(self):
        self.any().recv(4096)

    def accept(self):
        served = self.any().accept()[0]
        served.setblocking(False)
        self.socks.append(served)

    def close(self):
        sock = self.any()
        self.socks.remove(sock)
        sock.close()

    def shutdown(self):
        self.any().shutdown(self.choose.choice((0, 1, 2)))

    def duplicate(self):
        sock = self.any()
        self.socks.append(socket.socket(fileno=os.dup(sock.fileno())))

    def join(self):
        ps.join(self.any())

    def leave(self):
        ps.leave(self.any())

    def rename(self):
        ps.set(self.any(), ps.ID, self.choose.randrange(40))

    def policy(self):
        ps.set_policy(self.any(), self.choose.choice(POLICIES))

    def look(self):
        ps.info(self.any())

    def work(self, until):
        actions = (self.serve, self.serve, self.serve, self.create, self.bind,
                   self.listen, self.connect, self.connect, self.connect,
                   self.disconnect, self.send, self.send, self.receive,
                   self.accept, self.accept, self.close, self.close,
                   self.shutdown, self.duplicate, self.join, self.leave,
                   self.rename, self.policy, self.look)
        while time.monotonic() < until:
            action = self.choose.choice(actions)
            try:
                action()
                result = "done"
            except OSError:
                result = "refused"
            key = f"{action.__name__} {result}"
            self.done[key] = self.done.get(key, 0) + 1
        for sock in self.socks:
            sock.close()
        return self.done


def work(link, seed, until):
    link.send(Worker(seed).work(until))


def inconsistencies(groups):
    """What can't be in any one state of the table."""
    for name, group in groups.items():
        ids = group.ids()
        if len(set(ids)) != len(ids):
            yield f"{name}: an id twice: {ids}"
        if not 0 <= group["selectable"] <= group["members"]:
            yield f"{name}: {dict(group)}"
        if group["policy"] not in POLICIES:
            yield f"{name}: policy {group['policy']}"


@test
def everything():
    """nothing is left, and nothing broke"""
    tap.diag(f"{SECONDS:g} seconds, seed {SEED}")
    choose = random.Random(SEED)
    until = time.monotonic() + SECONDS
    space = ns.Namespace()
    # Hooks must not be armed under traffic in a guest of several threads, see
    # docs/testing.md: a group that stays keeps them armed.
    stays = net.server("tcp", INET, net.port(), ps.join)

    # Half the workers share this namespace, and one more of each kind dies
    # in the middle of things again and again.
    children = [proc.Child(work, SEED + i, until) for i in range(WORKERS - 2)]
    with space:
        children += [proc.Child(work, SEED - i, until) for i in (1, 2)]
    victim, victims = None, 0
    trouble, reads, most = [], 0, 0
    while time.monotonic() < until:
        if victim is None:
            victim = proc.Child(work, SEED + 100 + victims, until + 60)
            victims += 1
            dies = time.monotonic() + choose.uniform(0.1, 2)
        elif time.monotonic() > dies:
            victim.kill()
            victim = None
        kind, port = choose.choice(("tcp", "udp")), choose.choice(PORTS)
        text = choose.choice((f"add {kind} {port} policy=rr",
                              f"add {kind} {port} policy=hash",
                              f"del {kind} {port}", "clear"))
        error = tap.error_of(ps.rule, text)
        if error not in (None, "ENOENT"):
            trouble.append(f"{text}: {error}")
        try:
            groups = ps.table()
        except (ValueError, NameError) as error:
            trouble.append(f"/proc/net/portsteer: {error!r}")
            continue
        reads += 1
        most = max(most, sum(len(g.members) for g in groups.values()))
        trouble += inconsistencies(groups)
        time.sleep(0.01)
    if victim:
        victim.kill()

    done = {}
    for child in children:
        for key, count in child.get(120).items():
            done[key] = done.get(key, 0) + count
        ok(child.wait(), f"worker {child.pid} comes to its end")
    tap.diag(f"{reads} reads of the table, {most} members at most, "
             f"{victims} victims")
    for key in sorted(done):
        tap.diag(f"{key}: {done[key]}")
    ok(not trouble, "the table made sense whenever it was read",
       "\n".join(trouble[:20]))
    ok(most > 1, "there were members to look at")
    ps.rule("clear")
    stays.close()
    ok(proc.wait_for(lambda: not ps.table()), "no group remains", ps.table())
    with space:
        ok(proc.wait_for(lambda: not ps.table()), "nor in the namespace",
           ps.table())
    space.close()
    ok(ps.disarmed(), "the hooks are disarmed", ps.hooks())


@test
def afterwards():
    """it still does its work"""
    with net.Pool() as pool:
        port = net.port()
        servers = pool.servers(4, "tcp", INET, port, ps.member("rr"))
        equal(net.counts(net.burst(servers, ("127.0.0.1", port), 40), 4),
              [10] * 4, "round robin")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module,
            limit=int(SECONDS) + 300)
