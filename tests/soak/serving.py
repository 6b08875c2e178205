# SPDX-License-Identifier: GPL-2.0
"""Servers that stay, and visitors to their groups that come and go. Both write
down what has reached them."""
import contextlib
import os
import random
import signal
import socket
import struct
import time

from asking import NUMBER
from lib import chaos, load, net, ps, slabs
from lib.net import INET6

SO_PEEK_OFF = 42
SO_MEMINFO = 55
MEMINFO_DROPS = 8		# the number of its word


class Site:
    """Where the stable groups of a namespace are, and what is known of them.

    joined: by their servers; adopted: by a rule, which is there already.
    """

    def __init__(self, received, died):
        self.received = received	# Log of what was answered or read
        self.died = died		# Log of what was queued at a death
        self.ports = {("tcp", "joined"): net.port(),
                      ("tcp", "adopted"): net.port(),
                      ("udp", "joined"): net.port(),
                      ("udp", "adopted"): net.port()}

    def addresses(self, kind):
        return [(net.LOOPBACK[family], port)
                for (of, _), port in self.ports.items() if of == kind
                for family in net.FAMILIES]

    def rules(self, choose):
        """Those that the site needs, with some policy or other."""
        for (kind, how), port in self.ports.items():
            if how == "adopted":
                ps.rule(f"add {kind} {port} "
                        f"policy={choose.choice(ps.POLICIES)}")

    def open(self, kind, how, family, *prepare):
        """One more socket of a group."""
        v6only = (net.v6only,) if family == INET6 else ()
        joins = ps.join if how == "joined" else net.reuseport
        sock = net.server(kind, family, self.ports[kind, how], *v6only, joins,
                          *prepare)
        if kind == "udp":
            net.roomy(sock)
        return sock


class Recorder(load.Echo):
    """Writes down whom it has answered, and what it has read."""

    def __init__(self, log, counts=None):
        super().__init__()
        self._log = log
        self._counts = counts

    def heard(self, sock, data):
        if len(data) == NUMBER.size:
            self._log.mark(NUMBER.unpack(data)[0])
        elif data:
            raise ValueError(f"nobody says {data}")
        if self._counts:
            self._counts.add("answered" if data else "silent")
        return False


def drops(sock):
    """Datagrams that found no room."""
    words = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36)
    return struct.unpack("9I", words)[MEMINFO_DROPS]


def trim(choose, sock):
    """A setting of a member or its group: whatever it is, it leaves somebody
    to be chosen, or else the kernel's own choice stands."""
    deeds = (lambda: ps.set(sock, *_pick(choose)),
             lambda: ps.set(sock, *_pick(choose)),
             lambda: ps.set(sock, ps.ID, choose.randrange(chaos.MOST_IDS)),
             lambda: ps.set_policy(sock, choose.choice(ps.POLICIES)),
             lambda: ps.info(sock))
    # The id is taken, it isn't a member now, the module is away…
    with contextlib.suppress(OSError):
        choose.choice(deeds)()


def _pick(choose):
    option, values = choose.choice(chaos.OPTIONS)
    return option, choose.choice(values)


def take_peer(sock):
    """A UDP member has a peer for a moment."""
    with net.new("udp", sock.family) as peer:
        peer.bind((net.LOOPBACK[sock.family], 0))
        sock.connect(peer.getsockname())
    net.disconnect(sock)


def stay(link, site, counts, seed, loose, peers):
    """Serve with a socket of every stable group until told to stop, which is
    answered with the datagrams that found no room. Settings change; sockets
    are never closed.

    loose: members leave their group for a while. Those of somebody must not,
    or there may be none to whom a visitor's connections can go.

    peers: UDP sockets have one now and then. The kernel takes such a socket out
    of its group for good: only who is a member still goes on being one. Those of
    somebody must not: while all of a port have a peer, nobody gets others'.
    """
    choose = random.Random(seed)
    server = Recorder(site.received, counts)
    socks = []
    for kind, how in site.ports:
        for family in net.FAMILIES:
            socks.append(site.open(kind, how, family))
            server.add(socks[-1])
    joined = [s for s in socks if s.getsockname()[1] in
              (site.ports["tcp", "joined"], site.ports["udp", "joined"])]
    datagrams = [s for s in socks if s.type == socket.SOCK_DGRAM]
    link.send("up")
    due = time.monotonic()
    while True:
        server.turn(0.02)
        if time.monotonic() > due:
            due = time.monotonic() + choose.uniform(0, 0.3)
            deed = choose.random()
            if deed < 0.7:
                trim(choose, choose.choice(socks))
            elif loose and deed < 0.85:
                with contextlib.suppress(OSError):	# the module is away
                    ps.set(choose.choice(joined), ps.JOIN, choose.randrange(2))
            elif peers:
                take_peer(choose.choice(datagrams))
        if not link.poll(0):
            continue
        if link.recv() == "join":
            for sock in joined:
                ps.join(sock)
            link.send("joined")
            continue
        for sock in datagrams:
            server.take_all(sock)
        link.send(sum(map(drops, datagrams)))
        link.recv()		# its sockets are open until then
        return


# Visitors

def visit_often(link, site, seed, migrates):
    """Join groups and leave them until told to stop, or to pause; answers with
    how often that was, and how many datagrams found no room."""
    choose = random.Random(seed)
    count = full = 0
    while True:
        while not link.poll(0):
            count += 1
            full += _visit(choose, site, migrates, close)
        order = link.recv()
        link.send((count, full))
        if order == "stop":
            return
        link.recv()		# until the pause is over


def visit_once(link, site, seed, migrates):
    """Join a group, and end without leaving it; answers with how many datagrams
    found no room."""
    choose = random.Random(seed)

    def die(_choose, _socks, full=0):
        link.send(full)
        os.kill(os.getpid(), signal.SIGKILL)

    link.send(_visit(choose, site, migrates, die))


def _visit(choose, site, migrates, leave):
    if choose.random() < 0.4:
        return visit_datagram(choose, site, leave)
    visit_stream(choose, site, migrates, leave)
    return 0


def visit_stream(choose, site, migrates, leave):
    """Join a TCP group with one or two listeners, and go."""
    how = choose.choice(("joined", "adopted"))
    family = choose.choice(net.FAMILIES)
    socks = [site.open("tcp", how, family, *_wishes(choose, how))
             for _ in range(choose.randrange(1, 4))]
    server = Recorder(site.received)
    serves = not migrates or choose.random() < 0.3
    if serves:
        for sock in socks:
            server.add(sock)
    end = time.monotonic() + choose.uniform(0.05, 0.8)
    while time.monotonic() < end:
        if serves:
            server.turn(0.02)
        else:
            time.sleep(0.02)
        if choose.random() < 0.05:
            trim(choose, choose.choice(socks))
        if migrates and choose.random() < 0.02:
            flicker(server, choose.choice(socks), serves)
    if not migrates:
        drain(server, socks)
    if serves:
        depart(choose, server, socks)
    else:
        leave(choose, socks)


def _wishes(choose, how):
    """Options of a visitor at its bind()."""
    if how != "joined" or choose.random() < 0.5:
        return ()
    return (ps.member(weight=choose.choice((1, 5)),
                      generation=choose.randrange(3),
                      state=choose.choice((ps.ACTIVE, ps.STANDBY))),)


def flicker(server, sock, serves):
    """shutdown() and listen(): the same member again."""
    if serves:
        server.remove(sock)
    sock.shutdown(socket.SHUT_RD)
    sock.listen(1024)
    if serves:
        server.add(sock)


def drain(server, socks):
    """For kernels that can't move connections: nobody new, serve the rest."""
    for sock in socks:
        ps.set(sock, ps.STATE, ps.DRAINING)
    for sock in socks:
        server.take_all(sock)


def depart(choose, server, socks):
    """Close the listeners, then serve what has been accepted."""
    for sock in socks:
        server.remove(sock)
        if choose.random() < 0.3:
            sock.shutdown(socket.SHUT_RD)
        sock.close()
    while server.waiting():
        server.turn(1)


def close(choose, socks, _full=0):
    """Let go of sockets that have something queued."""
    way = choose.randrange(4)
    if way == 1:
        for sock in socks:
            sock.shutdown(socket.SHUT_RDWR)
    elif way == 2:
        # One that has inherited them lives longer, and is killed.
        pid = os.fork()
        if not pid:
            time.sleep(1)
            os._exit(0)
    elif way == 3:
        # The last reference to them is in a message that nobody reads.
        pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for sock in socks:
            socket.send_fds(pair[0], [b"x"], [sock.fileno()])
            sock.close()
        for end in pair:
            end.close()
    for sock in socks:
        sock.close()
    if way == 2:
        time.sleep(choose.uniform(0, 0.2))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def visit_datagram(choose, site, leave):
    """Join a UDP group with a socket, and go when nobody chooses it; how many
    datagrams found no room there."""
    how = choose.choice(("joined", "adopted"))
    family = choose.choice(net.FAMILIES)
    sock = site.open("udp", how, family, *_wishes(choose, how))
    server = Recorder(site.received)
    reads = choose.random() < 0.5
    if reads:
        server.add(sock)
    elif choose.random() < 0.5:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    end = time.monotonic() + choose.uniform(0.05, 0.8)
    while time.monotonic() < end:
        if reads:
            server.turn(0.02)
        else:
            time.sleep(0.02)
        if choose.random() < 0.05:
            trim(choose, sock)
    # With a peer it gets nothing from others, not even of its own flows.
    with net.new("udp", family) as peer:
        peer.bind((net.LOOPBACK[family], 0))
        sock.connect(peer.getsockname())
        slabs.grace_period()
        if reads:
            server.take_all(sock)
            server.remove(sock)
        else:
            write_off(site, sock)
        full = drops(sock)
        leave(choose, [sock], full)
    return full


def write_off(site, sock):
    """Note what is queued on a socket and goes with it."""
    sock.setsockopt(socket.SOL_SOCKET, SO_PEEK_OFF, 0)
    with contextlib.suppress(BlockingIOError):
        while True:
            data = sock.recv(NUMBER.size, socket.MSG_PEEK)
            site.died.mark(NUMBER.unpack(data)[0])
