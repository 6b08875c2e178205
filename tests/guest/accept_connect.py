#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: smp=4 timeout=900 threads
"""Servers that give each UDP client a socket of its own: bound to the port that
all use, then connect()ed, while the client and others send."""
import itertools
import os
import select
import time

from lib import kernel, net, proc, ps, tap
from lib.net import Pool
from lib.tap import equal, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
ROUNDS = 160 if QUICK else 1504
CLOSED = 300 if QUICK else 2000
POLICIES = ("hash", "rr") if QUICK else ("hash", "rr", "least", "consistent")

CLIENTS, AFTER = 30, 5	# datagrams before, or while, and after connect()
STRANGERS, FLOWS = 2, 16
MOST = 60		# datagrams of a stranger in a round: queues hold them


def client(link, family, host, address):
    """Send what it is told to; its number and kind are in it."""
    with net.new("udp", family) as sock:
        sock.bind((host, 0))
        link.send(sock.getsockname())
        while True:
            kind, turn, count = link.recv()
            for number in range(count):
                sock.sendto(b"%s %d %d" % (kind, turn, number), address)


def stranger(link, family, address, who):
    """Send from several ports, from "go" to "stop"; say how many."""
    with Pool() as pool:
        socks = [pool.new("udp", family) for _ in range(FLOWS)]
        link.send("up")
        sent = 0
        while True:
            link.recv()
            for _ in range(MOST):
                sock = sent % FLOWS
                socks[sock].sendto(b"S %d %d %d" % (who, sock, sent), address)
                sent += 1
                if link.poll(0):
                    break
            link.recv()
            link.send(sent)


class Server:
    """The members that stay, and the one that a round adds."""

    def __init__(self, pool, family, address, addr, member):
        self.pool, self.family = pool, family
        self.port, self.addr = address[1], addr
        self.strangers = [proc.Child(stranger, family, address, i)
                          for i in range(STRANGERS)]
        self.client = proc.Child(client, family, address[0], address)
        for child in (*self.strangers, self.client):
            pool.push(child)
        for child in self.strangers:
            child.get()
        self.peer = self.client.get()
        self.stay = pool.servers(2, "udp", family, self.port, member,
                                 net.roomy, addr=addr)
        self.sent = 0
        self.no_ports = no_ports(family)
        self.owners = {}	# a stranger's flow: who got its datagrams
        self.heard = []		# all strangers' datagrams
        self.astray = []	# those that reached the member of a round
        self.lost = []		# what the client has sent in vain
        self.elsewhere = []	# after connect(), to another one

    def take(self, sock, who, mine):
        """All that a socket has; the client's in a dict."""
        try:
            while True:
                data = sock.recv(100)
                if not data.startswith(b"S "):
                    mine.setdefault(data, []).append(who)
                    continue
                self.heard.append(data)
                if who == "own":
                    self.astray.append(data)
                else:
                    self.owners.setdefault(data.rsplit(b" ", 1)[0],
                                           set()).add(who)
        except BlockingIOError:
            pass

    def collect(self, own, want):
        """{datagram: [who]} of the client's, when all of want are there."""
        mine = {}
        end = time.monotonic() + 10
        while True:
            self.take(own, "own", mine)
            for i, sock in enumerate(self.stay):
                self.take(sock, i, mine)
            if want <= mine.keys() or time.monotonic() > end:
                return mine
            select.select([own, *self.stay], [], [], 1)

    def round(self, turn):
        for child in self.strangers:
            child.link.send("go")
        select.select(self.stay, [], [], 10)	# they are at it
        self.client.link.send((b"C", turn, CLIENTS))
        # Draining: for its client and for nobody else.
        own = net.server("udp", self.family, self.port, ps.member(
            state=ps.DRAINING), net.roomy, addr=self.addr)
        own.connect(self.peer)
        self.client.link.send((b"D", turn, AFTER))
        want = {b"%s %d %d" % (kind, turn, i)
                for kind, count in ((b"C", CLIENTS), (b"D", AFTER))
                for i in range(count)}
        mine = self.collect(own, want)
        for child in self.strangers:
            child.link.send("stop")
        self.sent = sum(child.get() for child in self.strangers)
        mine = {**self.collect(own, set()), **mine}
        own.close()
        self.lost += sorted(want - mine.keys())
        self.elsewhere += [(data, who) for data, who in sorted(mine.items())
                           if len(who) != 1 or
                           (data.startswith(b"D") and who != ["own"])]

    def finish(self):
        """What strangers have sent and is still on its way; how many found
        nobody."""
        def complete():
            for i, sock in enumerate(self.stay):
                self.take(sock, i, {})
            return len(self.heard) >= self.sent
        proc.wait_for(complete, 10)
        self.no_ports = no_ports(self.family) - self.no_ports


def no_ports(family):
    """Datagrams that found no socket."""
    if family == net.INET6:
        return kernel.snmp6("Udp6NoPorts")
    return kernel.snmp("Udp", "NoPorts")


def variants():
    return list(itertools.product(
        POLICIES, (0, 60), net.FAMILIES, ("an address", "all addresses")))


def check(policy, affinity, family, where):
    host = net.LOOPBACK[family]
    text = (f"{policy}{' affinity' if affinity else ''} "
            f"{net.FAMILY_NAMES[family]} on {where}")
    with Pool() as pool:
        server = Server(pool, family, (host, net.port()),
                        host if where == "an address"
                        else net.WILDCARD[family],
                        ps.member(policy, affinity=affinity))
        rounds = ROUNDS // len(variants())
        for turn in range(rounds):
            server.round(turn)
        server.finish()
        equal(server.no_ports, 0, f"{text}: somebody was there always")
        equal(server.lost, [], f"{text}: 0 lost of "
              f"{rounds} x {CLIENTS + AFTER}")
        equal(server.elsewhere, [],
              f"{text}: after connect() all are its own, none came twice")
        equal(server.astray, [], f"{text}: no stranger's datagram there")
        equal((len(server.heard), len(set(server.heard))),
              (server.sent, server.sent),
              f"{text}: strangers' are with the others, each once")
        if affinity:
            ok(all(len(one) == 1 for one in server.owners.values()),
               f"{text}: strangers' flows stay", server.owners)
        group = ps.group(server.stay[0])
        equal((group["members"], group["selectable"]), (2, 2),
              f"{text}: two are left")


@test
def accept_then_connect():
    """0 lost, the client's own socket once it is connected, no stranger's"""
    # Hooks must not be armed under traffic in a guest of several threads, see
    # docs/testing.md: a member with a peer keeps them all armed.
    with net.server("udp", net.INET, net.port(), ps.member()) as stays:
        stays.connect(("127.0.0.1", 9))
        for variant in variants():
            check(*variant)


def keep_sending(link, family, address):
    """Send from several ports when told to, until told to stop; say how many."""
    with Pool() as pool:
        socks = [pool.new("udp", family) for _ in range(FLOWS)]
        link.recv()		# there is somebody to hear it
        sent = 0
        while not link.poll(0):
            socks[sent % FLOWS].sendto(b"%d" % sent, address)
            sent += 1
            if sent % 8 == 0:
                time.sleep(0.001)	# others need the CPU as well
        link.send(sent)


def heard(sock):
    """How many datagrams it has; takes them."""
    count = 0
    try:
        while True:
            sock.recv(100)
            count += 1
    except BlockingIOError:
        return count


@test
def bind_then_close():
    """a member that never gets anything takes nothing along, either"""
    with net.server("udp", net.INET, net.port(), ps.member()) as stays:
        stays.connect(("127.0.0.1", 9))
        for family in net.FAMILIES:
            host, port = net.LOOPBACK[family], net.port()
            with Pool() as pool:
                sender = proc.Child(keep_sending, family, (host, port))
                pool.push(sender)
                others = pool.servers(2, "udp", family, port, ps.member(),
                                      net.roomy, addr=host)
                sender.link.send("go")
                to_others = to_it = 0
                for _ in range(CLOSED):
                    with net.server("udp", family, port, ps.member(
                            state=ps.DRAINING), addr=host) as one:
                        to_others += sum(map(heard, others))
                        to_it += heard(one)
                sent = sender.ask("stop")

                def complete():
                    nonlocal to_others
                    to_others += sum(map(heard, others))
                    return to_others >= sent
                proc.wait_for(complete)
                equal((to_others, to_it), (sent, 0),
                      f"{net.FAMILY_NAMES[family]}: {CLOSED} members")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=800)
