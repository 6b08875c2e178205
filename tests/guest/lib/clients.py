# SPDX-License-Identifier: GPL-2.0
"""Connections that wait for a server: each says who it is and expects to be
told the same, by whichever listener it ends up on."""
import contextlib
import os
import socket
import struct

from . import kernel, net, proc, ps, tap

TFO = 23		# TCP_FASTOPEN
TAG = struct.Struct("!I")


def migrates():
    """Can this kernel move connections? From 5.14 on."""
    with open("/proc/kallsyms") as file:
        return any(line.endswith(" reuseport_migrate_sock\n") for line in file)


def need_migration():
    """For tests of what only such a kernel can do."""
    if not migrates():
        raise tap.Skip("this kernel can't move connections: drain first")


class Client:
    """One of them; a silent one is connected and has said nothing yet."""

    def __init__(self, address, number, silent=False):
        family = net.INET6 if ":" in address[0] else net.INET
        self.tag = TAG.pack(number)
        self.sock = net.new("tcp", family)
        self.sock.settimeout(20)
        self.sock.connect(address)
        if not silent:
            self.speak()

    def speak(self):
        self.sock.sendall(self.tag)

    def answered(self):
        try:
            return self.sock.recv(8) == self.tag
        except OSError:
            return False

    def abort(self):
        """Go without a word: the other side gets a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                             struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self):
        self.sock.close()


def clients(pool, addresses, count, silent=False):
    """count of them, to each address in turn; they close with the pool."""
    found = []
    for number in range(count):
        client = Client(addresses[number % len(addresses)], number, silent)
        pool.callback(client.close)
        found.append(client)
    return found


def all_answered(found):
    """The numbers of those that weren't; empty is good."""
    return [TAG.unpack(client.tag)[0] for client in found
            if not client.answered()]


def answer(conn):
    """Answer an accepted connection; what its client said."""
    with conn:
        conn.settimeout(20)
        tag = conn.recv(8)
        conn.sendall(tag)
    return TAG.unpack(tag)[0] if len(tag) == TAG.size else tag


def take(sock):
    """Answer all that is queued on a listener that doesn't block."""
    tags = []
    with contextlib.suppress(BlockingIOError):
        while True:
            tags.append(answer(sock.accept()[0]))
    return tags


def take_all(servers, count, timeout=20):
    """[[tags] of each], when they are count in all or the time is over."""
    shares = [[] for _ in servers]

    def more():
        for share, sock in zip(shares, servers):
            share += take(sock)
        return sum(map(len, shares)) >= count
    proc.wait_for(more, timeout)
    return shares


def member_of(sock):
    """The line of a member in /proc/net/portsteer."""
    inode = os.fstat(sock.fileno()).st_ino
    return [member for member in ps.group(sock).members
            if member["inode"] == inode][0]


def backlog(sock):
    return member_of(sock)["backlog"]


# What a family is, where a wildcard listener may serve both.

KINDS = tuple(net.FAMILY_NAMES[family] for family in net.FAMILIES) + (
    ("dual stack",) if net.INET6 in net.FAMILIES else ())


def pairs(kinds=KINDS):
    """(kind, policy): all in the long form, all of each in the short one."""
    for number, policy in enumerate(ps.POLICIES):
        for turn, kind in enumerate(kinds):
            if number % len(kinds) == turn or not os.environ.get("PS_QUICK"):
                yield kind, policy


def listener_of(kind):
    """(family, options) of a listener of that kind."""
    if kind == "IPv4":
        return net.INET, ()
    return net.INET6, () if kind == "dual stack" else (net.v6only,)


def addresses_of(kind, port):
    """Where clients of such a listener connect to."""
    hosts = {"IPv4": ("127.0.0.1",), "IPv6": ("::1",),
             "dual stack": ("127.0.0.1", "::1")}[kind]
    return [(host, port) for host in hosts]


def servers_of(pool, count, kind, port, *prepare, **keywords):
    family, options = listener_of(kind)
    return pool.servers(count, "tcp", family, port, *options, *prepare,
                        **keywords)


# Ways in which a listener goes

def close(sock):
    sock.close()


def shutdown(sock):
    sock.shutdown(socket.SHUT_RD)


class Owner:
    """A process that has a listener of its own, to be killed with it."""

    def __init__(self, pool, kind, port, *prepare):
        self._child = proc.Child(self._own, kind, port, prepare)
        pool.push(self._child)
        self._child.get()

    @staticmethod
    def _own(link, kind, port, prepare):
        with net.Pool() as pool:
            servers_of(pool, 1, kind, port, *prepare)
            link.send("up")
            link.recv()

    def kill(self):
        self._child.kill()


# Counters

@contextlib.contextmanager
def no_reset(text):
    """Nobody is sent a reset while the block runs."""
    before = kernel.snmp("Tcp", "OutRsts")
    yield
    tap.equal(kernel.snmp("Tcp", "OutRsts") - before, 0, f"{text}: 0 RST")
