# SPDX-License-Identifier: GPL-2.0
"""What programs and operators may do, in random order.

A seed determines what is tried, one after the other; what comes of it depends
on what others do meanwhile.
"""
import contextlib
import ctypes
import os
import random
import signal
import socket
import struct
import threading
import time

from . import net, ns, ps, quic, tap
from .net import INET, INET6

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

    refusals = OSError

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

    def actions(self):
        return (self.serve, self.serve, self.serve, self.create, self.bind,
                self.listen, self.connect, self.connect, self.connect,
                self.disconnect, self.take_peer, self.take_peer, self.ask,
                self.ask, self.send, self.send, self.receive, self.accept,
                self.accept, self.close, self.close, self.shutdown,
                self.duplicate, self.join, self.leave, self.rename,
                self.policy, self.option, self.option, self.look)

    def work(self, until):
        actions = self.actions()
        while time.monotonic() < until:
            action = self.choose.choice(actions)
            try:
                action()
                result = "done"
            except self.refusals:
                result = "refused"
            key = f"{action.__name__} {result}"
            self.done[key] = self.done.get(key, 0) + 1
        for sock in self.socks:
            sock.close()
        return self.done


def work(link, seed, until):
    link.send(Worker(seed).work(until))


class Roamer(Worker):
    """One whose sockets get into other processes' hands, too: by fork(), and
    by a mailbox that everybody sends to and takes from."""

    def __init__(self, seed, mail):
        super().__init__(seed)
        self._out, self._in = mail

    def fork(self):
        """All that it has lives on a moment longer, in another process."""
        linger = self.choose.uniform(0, 0.3)
        dies = self.choose.choice((True, False))
        pid = os.fork()
        if not pid:
            # No more than system calls: there may have been threads.
            time.sleep(linger)
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(0)
        self._reap()

    @staticmethod
    def _reap():
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def post(self):
        """To whoever takes it, maybe in another namespace."""
        sock = self.any()
        socket.send_fds(self._out, [b"x"], [sock.fileno()])
        if self.choose.choice((True, False)):
            self.socks.remove(sock)
            sock.close()

    def fetch(self):
        for fd in socket.recv_fds(self._in, 1, 1)[1]:
            self.socks.append(socket.socket(fileno=fd))

    def reserve(self):
        """A group with a key."""
        sock = self.create()
        ps.member(key=self.choose.choice((b"a", b"b")))(sock)
        self.bind(sock)
        if sock.type == socket.SOCK_STREAM:
            sock.listen(16)

    def actions(self):
        return super().actions() + (self.fork, self.post, self.post,
                                    self.fetch, self.fetch, self.reserve)

    def work(self, until):
        done = super().work(until)
        # Those that were forked have to be gone before it says that it is.
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        return done


class Hand(Roamer):
    """A thread of a Crew. Its calls block, for a moment: then other threads
    get at the same socket. Python keeps its lock in sock.setsockopt(), and so
    would a call that waits; not in those of another library."""

    # Another thread has closed the socket, or taken it off the list.
    refusals = (OSError, ValueError, IndexError)

    def __init__(self, seed, mail, socks):
        super().__init__(seed, mail)
        self.socks = socks

    def create(self):
        sock = super().create()
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option,
                            struct.pack("ll", 0, 50000))
        sock.setblocking(True)
        return sock

    def _set(self, option, value):
        memory = ctypes.create_string_buffer(
            struct.pack("i", value) if isinstance(value, int) else value)
        # The octet behind a text is the buffer's own.
        ps.set_at(self.any(), option, ctypes.addressof(memory),
                  len(memory) - 1)

    def join(self):
        self._set(ps.JOIN, 1)

    def leave(self):
        self._set(ps.JOIN, 0)

    def rename(self):
        self._set(ps.ID, self.choose.randrange(MOST_IDS))

    def policy(self):
        self._set(ps.POLICY, self.choose.choice(ps.POLICIES).encode())

    def option(self):
        number, values = self.choose.choice(OPTIONS)
        self._set(number, self.choose.choice(values))


def roam(link, seed, mail, until):
    os.nice(5)		# those who keep accounts go first
    link.send(Roamer(seed, mail).work(until))


def crew(link, seed, mail, until, size=3):
    """Threads with one table of descriptors; what all of them did."""
    os.nice(5)
    socks, hands, done = [], [], {}

    def work(hand):
        hand.work(until)

    for number in range(size):
        hand = Hand(seed + number, mail, socks)
        hands.append((hand, threading.Thread(target=work, args=(hand,))))
    for _, thread in hands:
        thread.start()
    for hand, thread in hands:
        thread.join()
        for key, count in hand.done.items():
            done[key] = done.get(key, 0) + count
    link.send(done)


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


def operate(choose, groups, clear="clear"):
    """An operator's deeds, and what they came to if they shouldn't have.

    groups: names of groups, two of which get a setting; clear="" where there
    are rules that have to stay.
    """
    kind, port = choose.choice(("tcp", "udp")), choose.choice(PORTS)
    text = choose.choice((
        f"add {kind} {port} policy={choose.choice(ps.POLICIES)}",
        f"add udp {port} policy={choose.choice(ps.POLICIES)} "
        f"{choose.choice(RULES)}", f"del {kind} {port}",
        clear or f"del {kind} {port}"))
    error = tap.error_of(ps.rule, text)
    if error not in (None, "ENOENT"):
        yield f"{text}: {error}"
    for name in choose.sample(sorted(groups), min(2, len(groups))):
        file, values = choose.choice(FILES)
        value = choose.choice(values)
        error = tap.error_of(
            ps.sysfs_write, f"{ns.sysfs()}/class/portsteer/{name}/{file}",
            value)
        # Another one may have its name, and there may be no room for an id.
        if error not in (None, "ENOENT", "ENODEV") and not (
                error == "EINVAL" and file.startswith("quic_")):
            yield f"{name}/{file} = {value}: {error}"
