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

from lib import net, ns, proc, ps, quic, tap
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
CLIENTS = {INET: ("127.0.0.1", "127.0.0.2"),
           INET6: ("::1", "::ffff:127.0.0.1", "::ffff:127.0.0.2")}
MOST_IDS = 40
# What programs set; and operators: -1 lets all generations work.
OPTIONS = ((ps.WEIGHT, (1, 2, 100)), (ps.CPU, (-1, 0, 3)),
           (ps.STATE, (ps.ACTIVE, ps.ACTIVE, ps.STANDBY, ps.DRAINING)),
           (ps.GENERATION, (0, 1, 2)), (ps.RX_QUEUE, (-1, 0, 1)),
           (ps.WORKING_GENERATION, (-1, -1, 0, 1)), (ps.AFFINITY, (0, 1, 60)))
FILES = (("policy", ps.POLICIES), ("working_generation", (-1, -1, 0, 1)),
         ("affinity", (0, 1, 60)), ("affinity_flows", (1, 500, 4096)),
         ("quic_offset", (0, 1, 13)), ("quic_length", (1, 2, 8)),
         ("migrate", (0, 1)), ("members/0/state", ("active", "draining")),
         ("members/0/weight", (1, 7)))
RULES = ("", "lock=1", "affinity=60", "affinity=0 lock=1",
         "quic_offset=0 quic_length=2", "affinity=1 quic_length=3")


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
                (net.reuseport, ps.join, net.reuseaddr,
                 ps.member(self.choose.choice(ps.POLICIES)),
                 ps.member(affinity=60), ps.member(working_generation=1),
                 ps.member(state=ps.DRAINING),
                 ps.wish_id(self.choose.randrange(MOST_IDS))), 2):
            prepare(sock)
        self.bind(sock)
        if sock.type == socket.SOCK_STREAM:
            sock.listen(self.choose.choice((0, 1, 16)))

    def listen(self):
        self.any().listen(self.choose.randrange(8))

    def connect(self):
        """As a client, or a member that takes a peer."""
        sock = self.choose.choice((self.any, self.create))()
        sock.connect((self.choose.choice(CLIENTS[sock.family]),
                      self.choose.choice(PORTS)))

    def take_peer(self):
        """A UDP socket, most of them members, and a client of its own."""
        sock = self.choose.choice([s for s in self.socks if s.type ==
                                   socket.SOCK_DGRAM] or [self.create()])
        with net.new("udp", sock.family) as client:
            client.setblocking(False)
            client.bind((self.choose.choice(CLIENTS[sock.family]), 0))
            sock.connect(client.getsockname())
            client.sendto(b"peer", sock.getsockname())

    def ask(self):
        """A client's datagrams; some name a member, as in QUIC."""
        family = self.choose.choice((INET, INET6))
        address = (self.choose.choice(CLIENTS[family]),
                   self.choose.choice(PORTS))
        with net.new("udp", family) as client:
            client.setblocking(False)
            for _ in range(self.choose.randrange(1, 8)):
                cid = quic.connection_id(self.choose.randrange(MOST_IDS))
                client.sendto(self.choose.choice((
                    quic.short, quic.handshake, quic.initial))(cid), address)

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
        ps.set(self.any(), ps.ID, self.choose.randrange(MOST_IDS))

    def policy(self):
        ps.set_policy(self.any(), self.choose.choice(ps.POLICIES))

    def option(self):
        number, values = self.choose.choice(OPTIONS)
        ps.set(self.any(), number, self.choose.choice(values))

    def look(self):
        ps.info(self.any())

    def work(self, until):
        actions = (self.serve, self.serve, self.serve, self.create, self.bind,
                   self.listen, self.connect, self.connect, self.connect,
                   self.disconnect, self.take_peer, self.take_peer, self.ask,
                   self.ask, self.send, self.send, self.receive, self.accept,
                   self.accept, self.close, self.close, self.shutdown,
                   self.duplicate, self.join, self.leave, self.rename,
                   self.policy, self.option, self.option, self.look)
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
        if group["policy"] not in ps.POLICIES:
            yield f"{name}: policy {group['policy']}"


def operate(choose, groups):
    """An operator's deed, and what it came to if it shouldn't have."""
    kind, port = choose.choice(("tcp", "udp")), choose.choice(PORTS)
    text = choose.choice((
        f"add {kind} {port} policy={choose.choice(ps.POLICIES)}",
        f"add udp {port} policy={choose.choice(ps.POLICIES)} "
        f"{choose.choice(RULES)}", f"del {kind} {port}", "clear"))
    error = tap.error_of(ps.rule, text)
    if error not in (None, "ENOENT"):
        yield f"{text}: {error}"
    for name in groups:
        file, values = choose.choice(FILES)
        value = choose.choice(values)
        error = tap.error_of(
            ps.sysfs_write, f"{ns.sysfs()}/class/portsteer/{name}/{file}",
            value)
        # Another one may have its name, and there may be no room for an id.
        if error not in (None, "ENOENT", "ENODEV") and not (
                error == "EINVAL" and file.startswith("quic_")):
            yield f"{name}/{file} = {value}: {error}"


@test
def everything():
    """nothing is left, and nothing broke"""
    tap.diag(f"{SECONDS:g} seconds, seed {SEED}")
    choose = random.Random(SEED)
    until = time.monotonic() + SECONDS
    space = ns.Namespace()
    # Hooks must not be armed under traffic in a guest of several threads, see
    # docs/testing.md: a group that stays keeps them armed, and one with a peer
    # those that are for such groups.
    stays = net.Pool()
    stays.server("tcp", INET, net.port(), ps.join)
    stays.server("udp", INET, net.port(), ps.join).connect(("127.0.0.1", 9))

    # Half the workers share this namespace, and one more of each kind dies
    # in the middle of things again and again.
    children = [proc.Child(work, SEED + i, until) for i in range(WORKERS - 2)]
    with space:
        children += [proc.Child(work, SEED - i, until) for i in (1, 2)]
    victim, victims = None, 0
    trouble, reads, most = [], 0, 0
    groups = {}
    while time.monotonic() < until:
        if victim is None:
            victim = proc.Child(work, SEED + 100 + victims, until + 60)
            victims += 1
            dies = time.monotonic() + choose.uniform(0.1, 2)
        elif time.monotonic() > dies:
            victim.kill()
            victim = None
        trouble += operate(choose, choose.sample(sorted(groups),
                                                 min(2, len(groups))))
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
        servers = pool.servers(4, "udp", INET, port, ps.member("quic"))
        with net.Watch(servers) as watch:
            client = pool.new("udp", INET)
            reached = []
            for number in (0, 1, 2, 3) * 3:
                client.sendto(quic.short(quic.connection_id(number)),
                              ("127.0.0.1", port))
                reached.append(watch.take())
        equal(reached, [0, 1, 2, 3] * 3, "quic")
        ps.set_policy(servers[0], "rr")
        servers[2].connect(client.getsockname())
        equal(net.counts(net.burst(servers, ("127.0.0.1", port), 30), 4),
              [10, 10, 0, 10], "UDP, one with a peer")
        ps.set(servers[0], ps.AFFINITY, 60)
        home = set(net.burst(servers, ("127.0.0.1", port), 12,
                             through=pool.new("udp", INET)))
        equal(len(home), 1, "affinity")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module,
            limit=int(SECONDS) + 300)
