# SPDX-License-Identifier: GPL-2.0
"""Servers that answer and clients that count the answers, in processes."""
import contextlib
import select
import socket
import struct

from . import net, proc


class Echo:
    """A server that answers each connection and datagram with what it says.

    It waits for nobody: where packets overtake each other a SYN cookie may be
    used twice, and the second connection never says anything.
    """

    def __init__(self, servers=()):
        self._epoll = select.epoll()
        self._socks = {}
        self._listeners = set()
        for sock in servers:
            self.add(sock)

    def add(self, sock):
        """Serve a socket that doesn't block."""
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            self._listeners.add(sock)
        self._register(sock)

    def _register(self, sock):
        self._socks[sock.fileno()] = sock
        self._epoll.register(sock, select.EPOLLIN)

    def remove(self, sock):
        """No longer, but all that it has accepted."""
        self._listeners.discard(sock)
        self._epoll.unregister(sock)
        del self._socks[sock.fileno()]

    def turn(self, timeout=None):
        """Serve what is there, or comes in that time; how much that was."""
        return sum(self._serve(self._socks[fd]) or 0
                   for fd, _ in self._epoll.poll(timeout))

    def waiting(self):
        """How many it has accepted and not yet answered."""
        return sum(sock.type == socket.SOCK_STREAM
                   for sock in self._socks.values()) - len(self._listeners)

    def take_all(self, sock):
        """Accept all that a listener has, or answer all datagrams."""
        while self._serve(sock) is not None:
            pass

    def heard(self, sock, data):
        """What a client said on a socket; a datagram is answered if true."""
        return True

    def _serve(self, sock):
        """1: answered, 0: accepted, None: nothing is there."""
        with contextlib.suppress(BlockingIOError):
            if sock.type == socket.SOCK_DGRAM:
                data, sender = sock.recvfrom(64)
                if self.heard(sock, data):
                    sock.sendto(data, sender)
                return 1
            if sock in self._listeners:
                served = sock.accept()[0]
                served.setblocking(False)
                self._register(served)
                return 0
            try:
                data = sock.recv(64)
                sock.sendall(data)
                self.heard(sock, data)
            except ConnectionError:
                pass		# the client counts it
            self.remove(sock)
            sock.close()
            return 1
        return None


def echo(link, servers):
    """Answer each connection and datagram with what it says."""
    server = Echo(servers)
    link.send("up")
    while True:
        server.turn()


def ask(kind, address, number):
    """One request; raises unless the answer to just that comes back."""
    question = struct.pack("!Q", number)
    with net.client(kind, address) as sock:
        # net.client() has sent a datagram; its answer comes first only if it
        # is waited for: the question may well go to another worker.
        if kind == "udp" and sock.recv(64) != b"x":
            raise ValueError("not the answer to the first datagram")
        sock.send(question)
        reply = sock.recv(64)
    if reply != question:
        raise ValueError(f"asked {question}, got {reply}")


def generate(link, kind, addresses):
    """Requests until told to stop; (attempted, answered, first failures)."""
    attempted = answered = 0
    failures = []
    link.send("up")
    while not link.poll(0):
        attempted += 1
        try:
            ask(kind, addresses[attempted % len(addresses)], attempted)
            answered += 1
        except (OSError, ValueError) as error:
            failures = (failures + [f"{attempted}: {error!r}"])[:10]
    link.send((attempted, answered, failures))


def start(pool, function, *args):
    """A child that has said that it is up; it ends with the pool."""
    child = proc.Child(function, *args)
    pool.push(child)
    child.get()
    return child
