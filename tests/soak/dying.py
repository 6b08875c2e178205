# SPDX-License-Identifier: GPL-2.0
"""Namespaces that die while they serve: with sockets, rules, half-open
connections and a wire on which packets go on coming."""
import os
import random
import time

from lib import chaos, kernel, link, net, ns, proc, ps, tally

import asking
import serving

PATIENCE = 1		# who asks a namespace that is gone hears nothing
CLIENTS = 2		# on each side


def serve(pipe, site, counts, seed):
    """As long as it may."""
    choose = random.Random(seed)
    server = serving.Recorder(site.received, counts)
    socks = []
    for (kind, how), _ in site.ports.items():
        for family in net.FAMILIES:
            for _ in range(2):
                socks.append(site.open(kind, how, family))
                server.add(socks[-1])
    pipe.send("up")
    while True:
        server.turn(0.02)
        if choose.random() < 0.1:
            serving.trim(choose, choose.choice(socks))


class Doomed:
    """One of them. wired: there are clients at the other end of a wire."""

    def __init__(self, seed, mail, number, wired, seconds):
        self._choose = random.Random(seed)
        self._number = number
        self.until = time.monotonic() + seconds
        self._clients = [asking.Client(place, seed + place)
                         for place in range(2 * CLIENTS)]
        self._heard = tally.Log(2 * CLIENTS * asking.BLOCK)
        self.device = None
        if wired:
            # Its end is not the pool's affair.
            pool = net.Pool()
            cable = link.Cable(pool, number)
            pool.pop_all()
            self.space, self.device = cable.space, cable.device
        else:
            self.space = ns.Namespace()
        with self.space:
            short_lives()
            self._settle_in(seed, mail)
        if wired:
            hosts = cable.far.values() if len(net.FAMILIES) > 1 else \
                [cable.far[net.INET]]
            self._outside = [self._ask(
                self._clients[CLIENTS:],
                [(host, self.site.ports["tcp", how])
                 for host in hosts for how in ("joined", "adopted")],
                self.until + 1)]
        else:
            self._outside = []

    def _settle_in(self, seed, mail):
        self.site = serving.Site(
            tally.Log(2 * CLIENTS * asking.BLOCK), None)
        self.site.rules(self._choose)
        self.served = tally.Tally("answered", "silent")
        server = proc.Child(serve, self.site, self.served, seed)
        server.get()
        self._inside = [server, proc.Child(chaos.roam, seed + 10, mail,
                                           self.until + 60),
                        self._ask(self._clients[:CLIENTS],
                                  self.site.addresses("tcp"),
                                  self.until + 60)]

    def _ask(self, clients, addresses, until):
        return proc.Child(asking.connect, clients, self._heard, addresses,
                          until, PATIENCE)

    def operate(self):
        """Its owner's deeds, and what they came to if they shouldn't have."""
        with self.space:
            groups = ps.table()
            yield from chaos.inconsistencies(groups)
            yield from chaos.operate(self._choose, groups)

    def die(self):
        """All at once, in any order."""
        self._choose.shuffle(self._inside)
        before = self._choose.choice((True, False))
        if before:
            self.space.close()
        for child in self._inside:
            os.kill(child.pid, 9)
        if not before:
            self.space.close()
        for child in self._inside:
            child.__exit__()

    def mourn(self, patience):
        """Wait until it's gone; what is wrong with its accounts."""
        for child in self._outside:
            with child:
                child.get()
        if self.device and not proc.wait_for(lambda: not os.path.exists(
                f"/sys/class/net/{self.device}"), patience):
            yield f"namespace {self._number}: its wire is still there"
        for place, client in enumerate(self._clients):
            counts = dict(client.counts.items())
            # Who was killed may have been in the middle of one.
            pending = 2 * counts["attempted"] - sum(counts.values())
            if pending not in ((0, 1) if place < CLIENTS else (0,)):
                yield f"namespace {self._number}, client {place}: {counts}"
        done = tally.sum_of(client.counts for client in self._clients)
        # The server counts an answer when it has been given.
        if done["answered"] > self.served["answered"] + 1:
            yield f"more answers than were given: {done}, " \
                  f"{self.served['answered']}"
        # What a server has answered and no client has heard was cut off.
        lost = done["attempted"] - done["answered"] - done["refused"]
        if self.served["answered"] > done["answered"] + lost:
            yield f"fewer answers than were given: {done}, " \
                  f"{self.served['answered']}"


def short_lives():
    """What a dead process leaves of its connections shall not keep a namespace
    for minutes."""
    for name, value in (("tcp_orphan_retries", 1), ("tcp_fin_timeout", 2),
                        ("tcp_synack_retries", 2)):
        kernel.set_sysctl(f"net.ipv4.{name}", value)
