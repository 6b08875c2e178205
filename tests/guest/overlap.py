#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: smp=4 timeout=900
"""Restarts in which the old process and the new one overlap: acceptance case
7, quietly under every policy and again and again under load. Case 6 is in
policies.py, case 7 for TCP without load in restart.py."""
import collections
import itertools
import os
import random
import resource
import select
import time

from lib import clients, flow, load, net, proc, ps, tap
from lib.flow import Flows, group_of, live, moved
from lib.net import Pool
from lib.tap import equal, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
RESTARTS = 3 if QUICK else 10
FLOWS = 200 if QUICK else 1000
CLIENTS = 2 if QUICK else 4	# processes; they share the flows
FRESH = 12			# new flows of each of them, twice a restart
STEP = 20			# datagrams before they listen again,
PAUSE = 0.02			# for so long

choose = random.Random(20569)


# Case 7, one datagram at a time

def by_option(sock, generation):
    ps.set(sock, ps.WORKING_GENERATION, generation)


def by_operator(sock, generation):
    flow.setting(sock, "working_generation", generation)


def overlap(text, kind, policy, switch, **wishes):
    """A serves, B joins, B is the working generation, A's members close."""
    with Pool() as pool:
        old = []
        port = net.port()
        addresses = clients.addresses_of(kind, port)
        for number in range(4):
            old += flow.members_of(pool, kind, port, 1, policy, id=number,
                                   generation=1, working_generation=1,
                                   **wishes)
        flows = Flows(pool, addresses, 40)
        first = flows.owners(old)
        new = []
        for number in range(4, 8):
            new += flow.members_of(pool, kind, port, 1, policy, id=number,
                                   generation=2)
        everyone = old + new
        equal(ps.group(new[0]).ids(), list(range(8)), f"{text}: ids 0 to 7")
        early = Flows(pool, addresses, 20)
        found = early.owners(everyone)
        ok(None not in found and not set(found) & set(new),
           f"{text}: joining gives B nothing", flow.shares(found, everyone))
        switch(new[0], 2)
        late = Flows(pool, addresses, 40)
        ok(set(late.owners(everyone)) <= set(new),
           f"{text}: new flows go to B alone")
        equal((moved(first, flows.owners(everyone)),
               moved(found, early.owners(everyone))), ([], []),
              f"{text}: A's flows stay")
        trouble = []
        left = list(range(8))
        now = first
        while old:
            number = choose.randrange(len(old))
            gone = old.pop(number)
            left.pop(number)
            gone.close()
            everyone.remove(gone)
            after = flows.owners(everyone)
            if ps.group(new[0]).ids() != left:
                trouble.append(f"ids {ps.group(new[0]).ids()}")
            wrong = [i for i in moved(now, after) if now[i] is not gone]
            stray = [i for i in range(40)
                     if now[i] is gone and after[i] not in new]
            if wrong or stray or None in after:
                trouble.append(f"moved {wrong}, to an old one {stray}")
            now = after
        ok(not trouble, f"{text}: as A's members close, their flows go to B, "
           "others stay, nobody is renumbered", "\n".join(trouble))
        equal(moved(now, flows.owners(new)), [], f"{text}: and stay there")


@test
def every_policy():
    """case 7: the switch by one setsockopt or one write"""
    for turn, (kind, policy) in enumerate(clients.pairs()):
        switch = (by_option, by_operator)[turn % 2]
        overlap(f"{kind} {policy} {switch.__name__}", kind, policy, switch)


@test
def consistent_and_affinity():
    """both in one: where a flow goes doesn't depend on when it came"""
    for kind in clients.KINDS:
        overlap(f"{kind} both", kind, "consistent", by_option, affinity=60)
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, "consistent",
                                          affinity=60, generation=1,
                                          working_generation=1)
            flows = Flows(pool, addresses, 100)
            first = flows.owners(servers)
            newcomer = flow.members_of(pool, kind, addresses[0][1], 1,
                                       generation=1)[0]
            equal(moved(first, flows.owners(servers + [newcomer])), [],
                  f"{kind}: affinity, so that a newcomer takes none")
            equal(live(newcomer), 100, f"{kind}: 100 flows")
            # without it, consistent alone says who has them
            ps.set(newcomer, ps.AFFINITY, 0)
            ps.set(newcomer, ps.WORKING_GENERATION, -1)
            after = flows.owners(servers + [newcomer])
            equal({after[i] for i in moved(first, after)}, {newcomer},
                  f"{kind}: consistent, without: it takes its share only")


# Restarts under load

class Worker:
    """A process with four members, which notes what it gets.

    Of each member and flow: [datagrams, first number, last number], the flow
    being (client, flow).
    """

    def __init__(self, link, kind, port, policy, wishes):
        self._pool = Pool()
        family, options = clients.listener_of(kind)
        self._link = link
        self._socks = self._pool.servers(4, "udp", family, port, *options,
                                         net.roomy, ps.member(policy, **wishes))
        self._seen = [{} for _ in self._socks]
        self._known = None		# none is new any more
        self._strays = []

    def _take(self, number):
        seen = self._seen[number]
        for data in flow.take(self._socks[number]):
            key, count = flow.parse(data)
            note = seen.get(key)
            if note:
                note[0] += 1
                note[2] = count
                continue
            seen[key] = [1, count, count]
            if self._known is not None and key not in self._known[number]:
                self._strays.append((number, key))

    def _take_all(self):
        for number in range(len(self._socks)):
            self._take(number)

    def set(self, option, value):
        """For a group's option the first member will do."""
        ps.set(self._socks[0], option, value)

    def drain(self):
        """As a server does that knows nothing of generations."""
        for sock in self._socks:
            ps.set(sock, ps.STATE, ps.DRAINING)

    def freeze(self):
        """From now on every datagram has to be of a flow that is there.

        The switch has been made: what was new before it is in the queues.
        """
        self._take_all()
        self._known = [set(seen) for seen in self._seen]

    def retire(self):
        """Let go without losing what is queued: have a peer, wait for what is
        under way, take it, close."""
        for number, sock in enumerate(self._socks):
            sock.connect((net.LOOPBACK[sock.family], 9))
            ps.set(sock, ps.STATE, ps.STANDBY)
            ps.set(sock, ps.STATE, ps.DRAINING)
            self._take(number)
            sock.close()
        return self._seen, self._strays

    def serve(self):
        self._link.send("up")
        inputs = self._socks + [self._link]
        while True:
            ready = select.select(inputs, [], [])[0]
            if self._link in ready:
                name, *args = self._link.recv()
                self._link.send(getattr(self, name)(*args))
                if name == "retire":
                    return
            else:
                self._take_all()


def work(link, *args):
    Worker(link, *args).serve()


def chatter(link, client, addresses, count):
    """Datagrams of count flows in turn, numbered, until told otherwise.

    "fresh": more flows, which have one datagram each at least and then go on
    like the others until the next "fresh". "round": when each has sent again.
    """
    with Pool() as pool:
        flows = Flows(pool, addresses, count)
        sent = collections.Counter()
        serial = itertools.count()
        talking = range(count)
        place = due = 0			# due: datagrams to the end of a round

        def say(number):
            key = client << 20 | number
            flows.send_as(number, key, next(serial))
            sent[key] += 1

        for number in talking:
            say(number)
        link.send("up")
        while True:
            # Others are to get something done, too, unless they wait for us.
            ready = link.poll(0 if due else PAUSE)
            question = link.recv() if ready else None
            if question == "stop":
                break
            if question == "round":
                due = len(talking)
            if question == "fresh":
                # The earlier ones stay open: a source port that is had again
                # would be the same flow again, and rightly with the old one.
                fresh = flows.more(FRESH)
                talking = [*range(count), *fresh]
                for number in fresh:
                    say(number)
                link.send("done")
            for _ in range(STEP):
                say(talking[place % len(talking)])
                place += 1
            if due:
                due = max(due - STEP, 0)
                if not due:
                    link.send("done")
        link.send(dict(sent))


def ask_all(children, question):
    """Of all of them at a time."""
    for child in children:
        child.link.send(question)
    return [child.get() for child in children]


class Restarts:
    """Generations of a server, one after the other, under load."""

    def __init__(self, pool, text, kind, policy, wishes):
        self.text = text
        self._pool = pool
        self._make = (kind, net.port(), policy)
        self._wishes = wishes
        self.notes = []			# [(generation, member, seen, strays)]
        self.generation = 0
        self.worker = self.start()
        self.clients = [
            pool.enter_context(proc.Child(
                chatter, client, clients.addresses_of(kind, self._make[1]),
                FLOWS // CLIENTS)) for client in range(CLIENTS)]
        for client in self.clients:
            client.get(120)

    def path(self, name):
        kind, port, _ = self._make
        host = "0.0.0.0" if kind == "IPv4" else "[::]"
        return f"/sys/class/portsteer/udp:{host}:{port}/{name}"

    def start(self):
        kind, port, policy = self._make
        child = self._pool.enter_context(proc.Child(
            work, kind, port, policy, self._wishes(self.generation)))
        child.get()
        return child

    def restart(self, switch):
        """B joins, takes over, A goes when all its flows have gone on."""
        old = self.worker
        self.generation += 1
        new = self.start()
        ask_all(self.clients, "fresh")		# while both are there
        switch(self, old, new)
        old.ask(("freeze",))
        ask_all(self.clients, "fresh")
        ask_all(self.clients, "round")
        self.retire(old, self.generation - 1)
        self.worker = new
        ask_all(self.clients, "round")

    def retire(self, worker, generation):
        seen, strays = worker.ask(("retire",))
        for number, one in enumerate(seen):
            self.notes.append((generation, number, one))
        ok(not strays, f"{self.text}: restart {generation + 1}: none that is "
           "new to the old one", strays[:10])

    def end(self):
        sent = {}
        for found in ask_all(self.clients, "stop"):
            sent.update(found)
        self.retire(self.worker, self.generation)
        return sent


def check(text, restarts, sent):
    """What came where, from the workers' notes."""
    received, chains = {}, {}
    for generation, number, seen in restarts.notes:
        for key, (count, first, last) in seen.items():
            received[key] = received.get(key, 0) + count
            chains.setdefault(key, []).append((first, last, generation,
                                               number))
    lost = {key: (count, received.get(key, 0)) for key, count in sent.items()
            if received.get(key, 0) != count}
    ok(not lost and set(received) <= set(sent),
       f"{text}: {sum(sent.values())} datagrams sent, all received",
       f"{len(lost)}: {list(lost.items())[:10]}")
    # One member a generation, one after the other: it has moved only when
    # its member went.
    wrong = []
    for key, chain in chains.items():
        chain.sort()
        generations = [one[2] for one in chain]
        apart = all(a[1] < b[0] for a, b in zip(chain, chain[1:]))
        if generations != sorted(set(generations)) or not apart:
            wrong.append((key, chain))
    ok(not wrong, f"{text}: no flow moved while its member lived",
       f"{len(wrong)}: {wrong[:3]}")
    old = [chain for key, chain in chains.items()
           if key & 0xfffff < FLOWS // CLIENTS]
    equal((len(old), {len(chain) for chain in old}),
          (CLIENTS * (FLOWS // CLIENTS), {RESTARTS + 1}),
          f"{text}: each of {FLOWS} flows was with each generation")


def run_restarts(text, kind, policy, switches, wishes):
    with Pool() as pool:
        restarts = Restarts(pool, text, kind, policy, wishes)
        for turn in range(RESTARTS):
            restarts.restart(switches[turn % len(switches)])
        check(text, restarts, restarts.end())


def switch_option(restarts, _, new):
    new.ask(("set", ps.WORKING_GENERATION, restarts.generation))


def switch_sysfs(restarts, *_):
    ps.sysfs_write(restarts.path("working_generation"), restarts.generation)


def switch_drain(_, old, __):
    old.ask(("drain",))


@test
def restarts_by_generation():
    """by turns of one setsockopt and one write to sysfs"""
    run_restarts("generations", clients.KINDS[-1], "rr",
                 (switch_option, switch_sysfs),
                 lambda generation: {"generation": generation,
                                     "working_generation": 0})


@test
def restarts_by_draining():
    """affinity was asked for, under consistent; the old one drains"""
    run_restarts("draining", clients.KINDS[0], "consistent", (switch_drain,),
                 lambda _: {"affinity": 600})


# TCP

def tcp_worker(link, kind, port, generation):
    """Two listeners that answer; retired, it ends when all are answered."""
    with Pool() as pool:
        socks = clients.servers_of(pool, 2, kind, port, ps.member(
            "rr", generation=generation, working_generation=0))
        server = load.Echo(socks)
        link.send("up")
        while True:
            server.turn(0.01)
            if not link.poll(0):
                continue
            name, *args = link.recv()
            if name == "retire":
                break
            if name == "switch":
                ps.set(socks[0], ps.WORKING_GENERATION, *args)
            link.send([ps.info(sock).picked for sock in socks])
        for sock in socks:
            server.take_all(sock)
            server.remove(sock)
            sock.close()
        while server.waiting():
            server.turn(1)
        link.send("done")


@test
def tcp_restarts():
    """TCP under load: the old one is picked for nothing new, none is lost"""
    clients.need_migration()
    for kind in clients.KINDS:
        with Pool() as pool:
            port = net.port()
            old = load.start(pool, tcp_worker, kind, port, 0)
            load_on = [load.start(pool, load.generate, "tcp",
                                  clients.addresses_of(kind, port))
                       for _ in range(2)]
            late = []
            for generation in range(1, RESTARTS + 1):
                new = load.start(pool, tcp_worker, kind, port, generation)
                early = new.ask(("picked",))
                new.ask(("switch", generation))
                before = old.ask(("picked",))
                time.sleep(0.2)
                late.append((early, [now - then for now, then in zip(
                    old.ask(("picked",)), before)]))
                old.ask(("retire",))
                old = new
            ok(all(one == ([0, 0], [0, 0]) for one in late),
               f"{kind}: none to the new one before, to the old one after",
               late)
            for child in load_on:
                attempted, answered, failures = child.ask("stop")
                ok(attempted == answered > 0, f"{kind}: attempted {attempted} "
                   f"= answered {answered}", "\n".join(failures))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=400)
