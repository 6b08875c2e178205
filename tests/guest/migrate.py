#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900
"""A listener goes: what it has queued goes on on the other members, by load,
and whoever waits there wakes. DESIGN.md 2.5, acceptance case 1."""
import contextlib
import os
import select
import socket
import threading
import time

from lib import clients, kernel, net, ns, proc, ps, tap, uring
from lib.net import INET, Pool
from lib.tap import equal, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
CLIENTS = 200
WAYS = (clients.close, clients.shutdown, None)
SAVE_SYN = 27		# TCP_SAVE_SYN, which Python doesn't know


def option(level, name, value):
    return lambda sock: sock.setsockopt(level, name, value)


# Case 1

class Waiter(threading.Thread):
    """Serves one listener and sleeps while there is nothing to do."""

    def __init__(self, sock):
        super().__init__(daemon=True)
        self.sock = sock
        self.shares = []	# (when, tag)
        self.error = None

    def run(self):
        try:
            self.serve()
        except OSError as error:
            self.error = error

    def got(self, conn):
        now = time.monotonic()
        self.shares.append((now, clients.answer(conn)))


class Blocking(Waiter):
    """accept() that blocks; it ends when the listener stops."""

    def serve(self):
        self.sock.setblocking(True)
        while True:
            self.got(self.sock.accept()[0])


class Edge(Waiter):
    """Edge-triggered epoll: takes all there is, then waits for an event."""

    events = select.EPOLLIN | select.EPOLLET

    def serve(self):
        with select.epoll() as epoll:
            epoll.register(self.sock, self.events)
            while not epoll.poll()[0][1] & select.EPOLLHUP:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        self.got(self.sock.accept()[0])
                        if not self.events & select.EPOLLET:
                            break


class Level(Edge):
    """Level-triggered epoll: one for each event."""

    events = select.EPOLLIN


class Uring(Waiter):
    """accept by io_uring."""

    def __init__(self, sock):
        super().__init__(sock)
        self.ring = uring.Acceptor()

    def serve(self):
        self.sock.setblocking(True)
        try:
            while True:
                self.got(socket.socket(fileno=self.ring.accept(self.sock)))
        finally:
            self.ring.close()


def total(waiters):
    return sum(len(w.shares) for w in waiters)


def queued(kind, policy, leave, kinds=(Edge, Level, Blocking)):
    """Case 1 once; leave is a function, or None: its owner is killed."""
    text = f"{kind} {policy} {leave.__name__ if leave else 'SIGKILL'}"
    port = net.port()
    wishes = ps.member(policy)
    with Pool() as pool:
        if leave:
            first = clients.servers_of(pool, 1, kind, port, wishes)[0]
        else:
            first = clients.Owner(pool, kind, port, wishes)
        servers = clients.servers_of(pool, len(kinds), kind, port, wishes)
        found = clients.clients(pool, clients.addresses_of(kind, port), CLIENTS)
        def backlogs():
            return [m["backlog"] for m in ps.group(servers[0]).members]

        if not proc.wait_for(lambda: sum(backlogs()) == CLIENTS, 60):
            ok(False, f"{text}: all are queued", backlogs())
            return
        moving = backlogs()[0]
        waiters = [each(sock) for each, sock in zip(kinds, servers)]
        for waiter in waiters:
            waiter.start()
        own = CLIENTS - moving
        if not proc.wait_for(lambda: total(waiters) == own, 60):
            ok(False, f"{text}: the survivors take their own {own}",
               f"{[len(w.shares) for w in waiters]}, {backlogs()} are left")
            return
        # All of them wait now, and nobody touches them but the kernel.
        time.sleep(0.1)
        shares = [len(w.shares) for w in waiters]

        with clients.no_reset(text):
            leave(first) if leave else first.kill()
            left = time.monotonic()
            proc.wait_for(lambda: total(waiters) >= CLIENTS, 20)
            tags = sorted(tag for w in waiters for _, tag in w.shares)
            equal(tags, list(range(CLIENTS)),
                  f"{text}: {moving} of {CLIENTS} moved, each is taken once")
            equal(clients.all_answered(found), [], f"{text}: all are answered")
        moved = [len(w.shares) - n for w, n in zip(waiters, shares)]
        ok(max(moved) <= 2 * moving / len(kinds) + 1,
           f"{text}: nobody got over twice the mean", moved)
        woken = [w.shares[n][0] - left for w, n in zip(waiters, shares)
                 if len(w.shares) > n]
        # The contract says 0.1 s, of a machine that isn't emulated.
        ok(woken and max(woken) < 3, f"{text}: all of them woke", woken)
        group = ps.group(servers[0])
        equal((group["migrated"], group["migrate_failed"]), (moving, 0),
              f"{text}: so many were counted")
        for sock in servers:
            sock.shutdown(socket.SHUT_RD)
        for waiter in waiters:
            waiter.join(20)


def every(leave):
    """close() under all policies in all families; else one of them each."""
    clients.need_migration()
    turns = len(clients.KINDS)
    for number, policy in enumerate(ps.POLICIES):
        if QUICK and WAYS.index(leave) != number // turns % len(WAYS):
            continue
        for turn, kind in enumerate(clients.KINDS):
            if number % turns == turn or (leave is clients.close and not QUICK):
                queued(kind, policy, leave)


@test
def closed():
    """close() of a listener with connections queued"""
    every(clients.close)


@test
def shut_down():
    """shutdown() of one"""
    every(clients.shutdown)


@test
def killed():
    """SIGKILL of the process that has it"""
    every(None)


@test
def disconnected():
    """connect(AF_UNSPEC) of one, which stops it as well"""
    clients.need_migration()
    for kind in clients.KINDS:
        queued(kind, "hash", net.disconnect)


@test
def io_uring():
    """accept by io_uring wakes as well"""
    clients.need_migration()
    for leave in (clients.close, clients.shutdown, None):
        queued("IPv4", "hash", leave, (Uring, Blocking, Uring))


# Who gets them

class Moving:
    """A first member with connections queued, others that join after it."""

    def __init__(self, *prepare, count=20, policy="hash", **keywords):
        self.pool = Pool()
        self.port = net.port()
        self.wishes = ps.member(policy)
        self.first = self.join(*prepare, **keywords)
        self.clients = clients.clients(self.pool, [("127.0.0.1", self.port)],
                                       count)
        self.others = []

    def join(self, *prepare, **keywords):
        return self.pool.server("tcp", INET, self.port, self.wishes, *prepare,
                                **keywords)

    def add(self, *prepare, **keywords):
        self.others.append(self.join(*prepare, **keywords))
        return self.others[-1]

    def go(self, text):
        """Close the first; how many each of the others has now, taken."""
        with clients.no_reset(text):
            self.first.close()
            shares = clients.take_all(self.others, len(self.clients))
            equal(sorted(sum(shares, [])), list(range(len(self.clients))),
                  f"{text}: each is taken once")
            equal(clients.all_answered(self.clients), [],
                  f"{text}: all are answered")
        self.pool.close()
        return [len(share) for share in shares]


DIFFERENCES = {
    "TCP_SAVE_SYN": option(socket.IPPROTO_TCP, SAVE_SYN, 1),
    "TCP_FASTOPEN": option(socket.IPPROTO_TCP, clients.TFO, 5),
    "TCP_DEFER_ACCEPT": option(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 3),
    "TCP_CONGESTION": option(socket.IPPROTO_TCP, socket.TCP_CONGESTION,
                             b"reno"),
    "SO_KEEPALIVE": option(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
}


@test
def alike():
    """members with the same socket options are preferred"""
    clients.need_migration()
    for name, differently in DIFFERENCES.items():
        moving = Moving()
        moving.add(differently)
        moving.add()
        equal(moving.go(name), [0, 20], f"{name}: to the one without")

        moving = Moving(differently)
        moving.add()
        moving.add(differently)
        equal(moving.go(name), [0, 20], f"{name}: to the one with it")

        moving = Moving()
        moving.add(differently)
        equal(moving.go(name), [20], f"{name}: to another one if need be")


@test
def last_resort():
    """standby and draining members come last, in that order"""
    clients.need_migration()
    moving = Moving()
    standby, active, draining = (moving.add() for _ in range(3))
    ps.set(standby, ps.STATE, ps.STANDBY)
    ps.set(draining, ps.STATE, ps.DRAINING)
    equal(moving.go("an active one"), [0, 20, 0], "all to the active one")

    moving = Moving()
    moving.add(DIFFERENCES["SO_KEEPALIVE"])
    ps.set(moving.add(), ps.STATE, ps.STANDBY)
    equal(moving.go("active, but different"), [20, 0], "before standby")

    moving = Moving()
    ps.set(moving.add(), ps.STATE, ps.DRAINING)
    ps.set(moving.add(), ps.STATE, ps.STANDBY)
    equal(moving.go("standby and draining"), [0, 20], "all to standby")

    moving = Moving()
    ps.set(moving.add(), ps.STATE, ps.DRAINING)
    equal(moving.go("draining alone"), [20], "even a draining one")


def fill(moving, sock, count):
    """count more connections, on a member that was added last."""
    others = [s for s in (moving.first, *moving.others) if s is not sock]
    for other in others:
        ps.set(other, ps.STATE, ps.DRAINING)
    start = len(moving.clients)
    for number in range(start, start + count):
        client = clients.Client(("127.0.0.1", moving.port), number)
        moving.pool.callback(client.close)
        moving.clients.append(client)
    for other in others:
        ps.set(other, ps.STATE, ps.ACTIVE)


@test
def full():
    """full backlogs come last, and are no reason for a reset"""
    clients.need_migration()
    for policy in ps.POLICIES:
        moving = Moving(policy=policy)
        fill(moving, moving.add(backlog=1), 2)
        moving.add()
        equal(moving.go(f"{policy}: one full, one not"), [2, 20],
              f"{policy}: all to the one with room")

        moving = Moving(policy=policy)
        for _ in range(2):
            fill(moving, moving.add(backlog=1), 2)
        shares = moving.go(f"{policy}: all full")
        ok(max(shares) <= 2 + 20, f"{policy}: shared, beyond the backlogs",
           shares)


@test
def by_load():
    """who has more to do gets less, and weights count"""
    clients.need_migration()
    moving = Moving(count=30)
    fill(moving, moving.add(), 20)
    moving.add()
    equal(moving.go("one has 20"), [25, 25], "the same for both in the end")

    moving = Moving(count=40)
    ps.set(moving.add(), ps.WEIGHT, 3)
    moving.add()
    shares = moving.go("weights 3 and 1")
    ok(29 <= shares[0] <= 31, "by weight", shares)


# The kernel's own way

@test
def migrate_off():
    """migrate=0 leaves it to the kernel and its sysctl"""
    clients.need_migration()
    for own in (0, 1):
        with kernel.sysctl("net.ipv4.tcp_migrate_req", own), Pool() as pool:
            port = net.port()
            ps.rule(f"add tcp {port} policy=hash migrate=0")
            first = pool.server("tcp", INET, port, net.reuseport)
            found = clients.clients(pool, [("127.0.0.1", port)], 20)
            others = pool.servers(2, "tcp", INET, port, net.reuseport)
            equal(ps.group(first)["migrate"], 0, "migrate=0")
            resets = kernel.snmp("Tcp", "OutRsts")
            first.close()
            shares = clients.take_all(others, 20 if own else 1,
                                      20 if own else 0.5)
            taken = sum(map(len, shares))
            resets = kernel.snmp("Tcp", "OutRsts") - resets
            equal((taken, resets), (20, 0) if own else (0, 20),
                  f"tcp_migrate_req={own}: (moved, reset)")
            lost = clients.all_answered(found)
            equal(len(lost), 0 if own else 20, "that is what clients see")
            equal(ps.group(others[0])["migrated"], 0, "not of our doing")
            # From now on it is ours.
            ps.rule(f"add tcp {port} policy=hash")
            found = clients.clients(pool, [("127.0.0.1", port)], 20)
            queued_there = clients.backlog(others[0])
            others[0].close()
            equal(len(clients.take_all(others[1:], 20)[0]), 20,
                  "migrate=1: all are there")
            equal(clients.all_answered(found), [], "and answered")
            equal(ps.group(others[1])["migrated"], queued_there, "and counted")
            ps.rule(f"del tcp {port}")


# Counters and the tracepoint

@contextlib.contextmanager
def traced():
    """A list; the lines of portsteer:migrate are in it after the block."""
    if not os.path.exists(f"{ps.TRACING}/trace"):
        ns.mount("tracefs", ps.TRACING, "tracefs")
    enable = f"{ps.TRACING}/events/portsteer/migrate/enable"
    lines = []
    ps.sysfs_write(f"{ps.TRACING}/trace", "")
    ps.sysfs_write(enable, 1)
    try:
        yield lines
    finally:
        ps.sysfs_write(enable, 0)
        with open(f"{ps.TRACING}/trace") as file:
            lines += [line for line in file if " migrate: " in line]


@test
def counted():
    """INFO, /proc, sysfs and the tracepoint agree with the kernel's counters"""
    clients.need_migration()
    moving = Moving(count=30)
    moving.add()
    moving.add()
    before = kernel.snmp("TcpExt", "TCPMigrateReqSuccess")
    failed = kernel.snmp("TcpExt", "TCPMigrateReqFailure")
    with traced() as lines:
        moving.first.close()
    equal(kernel.snmp("TcpExt", "TCPMigrateReqSuccess") - before, 30,
          "the kernel counted 30 successes")
    equal(kernel.snmp("TcpExt", "TCPMigrateReqFailure") - failed, 0,
          "and no failure")
    group = ps.group(moving.others[0])
    equal((group["migrated"], group["migrate_failed"]), (30, 0),
          "the group says the same")
    infos = [ps.info(sock) for sock in moving.others]
    equal([info.migrated_in for info in infos],
          [clients.backlog(sock) for sock in moving.others],
          "migrated_in is what each has got")
    equal([info.picked for info in infos], [0, 0], "which isn't picked")
    equal(len(lines), 30, "as many events")
    equal(sum(" from=0 " in line for line in lines), 30, "from member 0")
    equal([sum(line.rstrip().endswith(f" to={i}") for line in lines)
           for i in (1, 2)], [info.migrated_in for info in infos],
          "to the ones that have them")
    directory = ps.sysfs_dir(moving.others[0])
    equal(ps.sysfs_read(f"{directory}/stats/migrated"), "30", "stats/migrated")
    equal(ps.sysfs_read(f"{directory}/members/1/migrated_in"),
          str(infos[0].migrated_in), "members/1/migrated_in")
    moving.go("then")

    # One that goes on as a member after shutdown() can tell what it gave.
    moving = Moving(count=10)
    moving.add()
    moving.first.shutdown(socket.SHUT_RD)
    equal(ps.info(moving.first).migrated_out, 10, "migrated_out")
    equal(ps.info(moving.others[0]).migrated_in, 10, "migrated_in")
    moving.go("then")


@test
def alone():
    """the last one of a group: the kernel's own way, counted as failed"""
    clients.need_migration()
    with Pool() as pool:
        port = net.port()
        only = pool.server("tcp", INET, port, ps.member("hash"))
        clients.clients(pool, [("127.0.0.1", port)], 10)
        resets = kernel.snmp("Tcp", "OutRsts")
        only.shutdown(socket.SHUT_RD)
        equal(kernel.snmp("Tcp", "OutRsts") - resets, 10, "10 resets")
        group = ps.group(only)
        equal((group["migrated"], group["migrate_failed"]), (0, 10),
              "as many failures")


@test
def below_5_14():
    """where nothing can be moved: drain, take what is there, close"""
    with Pool() as pool:
        port = net.port()
        first = pool.server("tcp", INET, port, ps.member("rr"))
        others = pool.servers(3, "tcp", INET, port, ps.member("rr"))
        found = clients.clients(pool, [("127.0.0.1", port)], CLIENTS)
        with clients.no_reset("drain, then close"):
            ps.set(first, ps.STATE, ps.DRAINING)
            shares = [clients.take(first)]
            equal(clients.backlog(first), 0, "nothing is left")
            first.close()
            shares += clients.take_all(others, CLIENTS - len(shares[0]))
            equal(sorted(sum(shares, [])), list(range(CLIENTS)),
                  "drain, then close: each is taken once")
            equal(clients.all_answered(found), [], "all are answered")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=400)
