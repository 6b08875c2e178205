# SPDX-License-Identifier: GPL-2.0
"""Sockets: servers of both kinds and families, and clients that tell which
server answered. Servers don't block, so one process can play all parts."""
import contextlib
import itertools
import os
import select
import socket
import struct
import time

from . import ns, tap

INET = socket.AF_INET
INET6 = socket.AF_INET6
TYPES = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}
SO_RCVBUFFORCE = 33
WILDCARD = {INET: "0.0.0.0", INET6: "::"}
LOOPBACK = {INET: "127.0.0.1", INET6: "::1"}
FAMILY_NAMES = {INET: "IPv4", INET6: "IPv6"}
# A kernel can be booted with ipv6.disable=1.
FAMILIES = (INET, INET6) if os.path.exists("/proc/net/if_inet6") else (INET,)

# Below the ephemeral range; never twice, so that no test meets the TIME_WAIT
# sockets of another.
_ports = itertools.count(10000)


def port():
    return next(_ports)


def combinations():
    """(text, kind, family) of all that the module serves."""
    for kind in TYPES:
        for family in FAMILIES:
            yield f"{kind} {FAMILY_NAMES[family]}", kind, family


def need_ipv6():
    if INET6 not in FAMILIES:
        raise tap.Skip("IPv6 is disabled")


def new(kind, family):
    return socket.socket(family, TYPES[kind])


# What can be done to a socket before bind(); see server().

def reuseport(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def reuseaddr(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def v6only(sock):
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)


def roomy(sock):
    """So that no queue overflows; at any time."""
    sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)


def server(kind, family, port, *prepare, addr=None, backlog=1024):
    """A bound, and for TCP listening, socket that doesn't block."""
    sock = new(kind, family)
    try:
        for option in prepare:
            option(sock)
        sock.bind((WILDCARD[family] if addr is None else addr, port))
        if kind == "tcp":
            sock.listen(backlog)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


class Pool(contextlib.ExitStack):
    """Closes at its end all that was opened through it."""

    def add(self, sock):
        self.callback(sock.close)
        return sock

    def new(self, kind, family):
        return self.add(new(kind, family))

    def server(self, *args, **keywords):
        return self.add(server(*args, **keywords))

    def servers(self, count, *args, **keywords):
        return [self.server(*args, **keywords) for _ in range(count)]


def client(kind, address, source=None):
    """A socket connected to address, in UDP after sending a datagram."""
    sock = new(kind, INET6 if ":" in address[0] else INET)
    try:
        if kind == "tcp":
            # Closing resets: no TIME_WAIT, no want of ports.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                            struct.pack("ii", 1, 0))
        if source:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(source)
        sock.settimeout(20)
        sock.connect(address)
        if kind == "udp":
            sock.send(b"x")
    except BaseException:
        sock.close()
        raise
    return sock


class Watch:
    """Tells which of the servers got the next connection or datagram."""

    def __init__(self, servers):
        self._servers = servers
        self._index = {s.fileno(): i for i, s in enumerate(servers)}
        self._epoll = select.epoll()
        for sock in servers:
            self._epoll.register(sock, select.EPOLLIN)

    def take(self, timeout=20):
        """Take it from its queue; the server's index, None in vain."""
        for fd, _ in self._epoll.poll(timeout, 1):
            sock = self._servers[self._index[fd]]
            if sock.type == socket.SOCK_STREAM:
                sock.accept()[0].close()
            else:
                sock.recv(2048)
            return self._index[fd]
        return None

    def receive(self, timeout=20):
        """A datagram: (the server's index, its data), or None in vain."""
        for fd, _ in self._epoll.poll(timeout, 1):
            index = self._index[fd]
            return index, self._servers[index].recv(65536)
        return None

    def rest(self):
        """Everything that is still queued."""
        return list(iter(lambda: self.take(0.1), None))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._epoll.close()


def burst(servers, address, count, source=None, through=None, between=None):
    """count connections or datagrams, one after the other, to address.

    Returns the index of the server that each of them reached. source(i) is
    the address that the client of number i binds; through is one UDP socket
    to send all of them; between(i) runs before number i.
    """
    kind = "tcp" if servers[0].type == socket.SOCK_STREAM else "udp"
    reached = []
    with Watch(servers) as watch:
        for i in range(count):
            if between:
                between(i)
            if through:
                through.sendto(b"x", address)
                reached.append(watch.take())
            else:
                with client(kind, address, source(i) if source else None):
                    reached.append(watch.take())
    return reached


def counts(reached, servers):
    """How often each of so many servers was reached."""
    return [reached.count(i) for i in range(servers)]


def hold(pool, address, count, source=None):
    """count TCP clients that stay connected as long as the pool."""
    return [pool.add(client("tcp", address, source)) for _ in range(count)]


def take_all(servers, count, timeout=20):
    """Take count connections or datagrams; how many each server had.

    Fewer if they don't come in time, more if there are.
    """
    shares = [0] * len(servers)
    end = time.monotonic() + timeout
    while sum(shares) < count and time.monotonic() < end:
        # Also what is too much.
        for i, sock in enumerate(servers):
            try:
                while True:
                    if sock.type == socket.SOCK_STREAM:
                        sock.accept()[0].close()
                    else:
                        sock.recv(2048)
                    shares[i] += 1
            except BlockingIOError:
                pass
    return shares


def deal(servers, address, count, through=None, source=None):
    """count connections or datagrams; how many each server got.

    Cheaper than burst(), and what comes is left queued meanwhile: the load
    that some policies look at. source() is the address that a client binds.
    """
    kind = "tcp" if servers[0].type == socket.SOCK_STREAM else "udp"
    shares = [0] * len(servers)
    while count:
        # So few that no queue overflows, even if one server gets them all.
        batch = min(count, 100)
        with Pool() as pool:
            for _ in range(batch):
                if through:
                    through.sendto(b"x", address)
                else:
                    # Until it is accepted: a reset may overtake the end of
                    # the handshake where two CPUs are at work.
                    pool.add(client(kind, address, source and source()))
            got = take_all(servers, batch)
        shares = [a + b for a, b in zip(shares, got)]
        count -= batch
    return shares


def disconnect(sock):
    """connect(AF_UNSPEC): make a connected UDP socket unconnected again."""
    ns.check(ns.libc.connect(sock.fileno(), bytes(16), 16))
