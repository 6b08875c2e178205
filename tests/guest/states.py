#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=600
"""Draining, standby and generations, under every policy: acceptance cases 4
and 5, and who is chosen from when members differ. DESIGN.md 2.1 and 2.4."""
import os
import random
import select
import socket
import time

from lib import kernel, load, net, ps, tap
from lib.net import INET, Pool, combinations
from lib.tap import equal, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
TOGGLES = 5 if QUICK else 20
STEPS = 2 if QUICK else 6

choose = random.Random(20567)


def group_of(pool, kind, family, count, policy, **wishes):
    """(servers, address) of a new group; all of them serve CPU 0."""
    port = net.port()
    servers = pool.servers(count, kind, family, port,
                           ps.member(policy, cpu=0, **wishes))
    return servers, (net.LOOPBACK[family], port)


def set_states(servers, states):
    for sock, state in zip(servers, states):
        ps.set(sock, ps.STATE, state)


def picked(sock):
    return ps.info(sock).picked


# Case 4

def queue(pool, sock, rest, address, count):
    """count clients whose connections wait on sock."""
    set_states(rest, [ps.DRAINING] * len(rest))
    clients = net.hold(pool, address, count)
    for number, client in enumerate(clients):
        client.sendall(number.to_bytes(4, "big"))
    set_states(rest, [ps.ACTIVE] * len(rest))
    return clients


def waiting(sock):
    """How many connections wait to be accepted."""
    inode = os.fstat(sock.fileno()).st_ino
    return [member["backlog"] for member in ps.group(sock).members
            if member["inode"] == inode][0]


def tags(pool, sock, count):
    """Accept count connections; what each of their clients has sent."""
    found = []
    for _ in range(count):
        select.select([sock], [], [], 20)
        served = pool.add(sock.accept()[0])
        served.settimeout(20)
        tag = served.recv(4)
        served.sendall(tag)
        found.append(int.from_bytes(tag, "big"))
    return sorted(found)


def drain(text, family, policy, count):
    """Case 4 with so many new connections."""
    with Pool() as pool:
        servers, address = group_of(pool, "tcp", family, 4, policy)
        first, rest = servers[0], servers[1:]
        clients = queue(pool, first, rest, address, 50)
        equal(waiting(first), 50, f"{text}: 50 are queued on A")
        ps.set(first, ps.STATE, ps.DRAINING)
        equal(sum(net.deal(rest, address, count)), count,
              f"{text}: the others get {count} of {count}")
        equal((waiting(first), ps.info(first).picked), (50, 50),
              f"{text}: A none of them")
        equal(tags(pool, first, 50), list(range(50)),
              f"{text}: its 50 stay acceptable")
        ok(all(client.recv(4) == number.to_bytes(4, "big")
               for number, client in enumerate(clients)),
           f"{text}: and are answered")
        resets = kernel.snmp("Tcp", "OutRsts")
        first.close()
        equal(kernel.snmp("Tcp", "OutRsts") - resets, 0,
              f"{text}: closing A at depth 0 resets nothing")
        for client in clients:
            client.setblocking(False)
        equal({tap.error_of(client.recv, 1) for client in clients},
              {"EAGAIN"}, f"{text}: its connections go on")


def restored(text, kind, family, policy, count, low, high):
    """A's share of count when it is active again."""
    with Pool() as pool:
        servers, address = group_of(pool, kind, family, 4, policy)
        ps.set(servers[0], ps.STATE, ps.DRAINING)
        shares = net.deal(servers, address, 50)
        ok(shares[0] == 0 and sum(shares) == 50 and min(shares[1:]) > 0,
           f"{text}: nothing for the draining one", shares)
        ps.set(servers[0], ps.STATE, ps.ACTIVE)
        shares = net.deal(servers, address, count)
        ok(sum(shares) == count and low <= shares[0] <= high,
           f"{text}: active again it gets its share", shares)


@test
def draining():
    """case 4: 2000 new connections pass by a member that drains"""
    with kernel.on_cpu(0):
        for text, kind, family in combinations():
            if kind == "tcp":
                drain(f"{text} hash", family, "hash",
                      2000 if family == INET else 400)
        for policy in ps.POLICIES[1:]:
            drain(f"tcp IPv4 {policy}", INET, policy, 100)


@test
def share_after_draining():
    """case 4: within 20 % of what it had"""
    with kernel.on_cpu(0):
        restored("tcp IPv4 hash", "tcp", INET, "hash", 2000, 400, 600)
        for policy in ps.POLICIES:
            for text, kind, family in combinations():
                # a binomial of 100 and 1/4: 25, give or take 5 times 4.3
                restored(f"{text} {policy}", kind, family, policy, 100, 3, 47)


@test
def draining_under_load():
    """nothing is given to a member after the call has returned"""
    for policy in ("least", "consistent"):
        with Pool() as pool:
            socks, addresses = [], {}
            for _, kind, family in combinations():
                servers, address = group_of(pool, kind, family, 4, policy)
                socks.append(servers)
                addresses.setdefault(kind, []).append(address)
            for i in range(4):
                load.start(pool, load.echo, [servers[i] for servers in socks])
            clients = [load.start(pool, load.generate, kind, addresses[kind])
                       for kind in net.TYPES]
            late = []
            for turn in range(TOGGLES):
                for servers in socks:
                    one = servers[turn % 4]
                    ps.set(one, ps.STATE, ps.DRAINING)
                    before = picked(one)
                    time.sleep(0.005)
                    late.append(picked(one) - before)
                    ps.set(one, ps.STATE, ps.ACTIVE)
            equal(sum(late), 0, f"{policy}: {len(late)} times")
            for child in clients:
                attempted, answered, failures = child.ask("stop")
                ok(attempted == answered > 0, f"{policy}: attempted "
                   f"{attempted} = answered {answered}", "\n".join(failures))


# Case 5

class Standby:
    """An active and two standby members, and what probes of them found."""

    def __init__(self, pool, text, kind, family, policy):
        self.text = f"{text} {policy}"
        self._pool = pool
        self._make = (kind, family, net.port())
        self._policy = policy
        self.active = None
        self.servers = [self._server(ps.STANDBY) for _ in range(2)]
        self.come()
        self.found = {"active": [], "standby": [], "nobody": []}

    def _server(self, state):
        return self._pool.server(*self._make, ps.member(
            self._policy, state=state, cpu=0))

    def come(self):
        self.active = self._server(ps.ACTIVE)

    def go(self):
        self.active.close()
        self.active = None

    def probe(self):
        kind, family, port = self._make
        servers = self.servers + ([self.active] if self.active else [])
        try:
            reached = net.burst(servers, (net.LOOPBACK[family], port), 1)[0]
        except OSError as error:
            self.found["nobody"].append(repr(error))
            return
        who = "active" if reached == 2 else "standby"
        self.found[who if reached is not None else "nobody"].append(reached)

    def take(self):
        found = {who: len(what) for who, what in self.found.items()}
        for what in self.found.values():
            what.clear()
        return found


def probe_all(groups, seconds):
    """Every 50 ms, or as often as it can be done."""
    end = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < end or not rounds:
        next_one = time.monotonic() + 0.05
        for group in groups:
            group.probe()
        rounds += 1
        time.sleep(max(0, next_one - time.monotonic()))
    return rounds


@test
def standby():
    """case 5: it takes over for as long as no member is active"""
    with Pool() as pool, kernel.on_cpu(0):
        groups = [Standby(pool, text, kind, family, policy)
                  for policy in ps.POLICIES
                  for text, kind, family in combinations()]
        for what, change, seconds, who in (
                ("at first", None, 0.5, "active"),
                ("closed", Standby.go, 1.5, "standby"),
                ("back again", Standby.come, 0.5, "active")):
            for group in groups:
                if change:
                    change(group)
            rounds = probe_all(groups, seconds)
            for group in groups:
                want = dict.fromkeys(group.found, 0)
                want[who] = rounds
                equal(group.take(), want, f"{group.text}: {what}")


# States and generations

def deal(servers, address, count):
    """net.deal(), no UDP client's port twice: while a working generation is
    set that would be a live flow, which stays where it is."""
    udp = servers[0].type == socket.SOCK_DGRAM
    return net.deal(servers, address, count, source=(
        lambda: (address[0], net.port())) if udp else None)


def chosen_from(members, working):
    """Which of [(state, generation)] get something: the contract's words."""
    def rank(state, generation):
        other = working >= 0 and generation != working
        return 2 * state + other

    ranks = [rank(*member) for member in members]
    best = min(ranks)
    if best >= 2 * ps.DRAINING:
        return []
    return [i for i, value in enumerate(ranks) if value == best]


def configure(servers, members, working):
    for sock, (state, generation) in zip(servers, members):
        ps.set(sock, ps.STATE, state)
        ps.set(sock, ps.GENERATION, generation)
    ps.set(servers[0], ps.WORKING_GENERATION, working)


def check_choice(text, servers, address, members, working):
    """A few of them come to whom they should."""
    want = chosen_from(members, working)
    before = ps.info(servers[0])
    shares = deal(servers, address, 2 * len(servers))
    info = ps.info(servers[0])
    got = [i for i, share in enumerate(shares) if share]
    right = (set(got) <= set(want) if want else True) and \
        sum(shares) == 2 * len(servers) and info.selectable == len(want) and \
        info.fallbacks - before.fallbacks == (0 if want else sum(shares))
    return None if right else \
        f"{text}: {members}, working {working}: want {want}, got {shares}, " \
        f"selectable {info.selectable}, fallbacks {info.fallbacks}"


def ladder():
    """One member of each kind there is, best first, for generation 1."""
    return [(state, generation) for state in
            (ps.ACTIVE, ps.STANDBY, ps.DRAINING) for generation in (1, 2)]


@test
def ranks():
    """the best there are, down to the last that isn't draining"""
    with kernel.on_cpu(0):
        for policy in ps.POLICIES:
            for text, kind, family in combinations():
                text = f"{text} {policy}"
                trouble = []
                with Pool() as pool:
                    servers, address = group_of(pool, kind, family, 6, policy)
                    members = ladder()
                    configure(servers, members, 1)
                    while servers:
                        trouble.append(check_choice(text, servers, address,
                                                    members, 1))
                        servers.pop(0).close()
                        members.pop(0)
                    trouble = [one for one in trouble if one]
                    ok(not trouble, text, "\n".join(trouble))


@test
def any_combination():
    """members, states and generations at random"""
    with kernel.on_cpu(0):
        for text, kind, family in combinations():
            trouble = []
            with Pool() as pool:
                servers, address = group_of(pool, kind, family, 4, "rr")
                for step in range(STEPS * len(ps.POLICIES)):
                    policy = ps.POLICIES[step % len(ps.POLICIES)]
                    ps.set_policy(servers[0], policy)
                    members = [(choose.randrange(3), choose.randrange(3))
                               for _ in servers]
                    working = choose.randrange(-1, 3)
                    configure(servers, members, working)
                    trouble.append(check_choice(policy, servers, address,
                                                members, working))
            trouble = [one for one in trouble if one]
            ok(not trouble, f"{text}: {step + 1} combinations",
               "\n".join(trouble))


@test
def everyone_of_the_best():
    """all of the best rank get something, by turns"""
    for text, kind, family in combinations():
        with Pool() as pool:
            servers, address = group_of(pool, kind, family, 6, "rr")
            for members, working, want in (
                    ([(0, 1), (0, 1), (0, 2), (1, 1), (2, 1), (0, 0)], 1,
                     [6, 6, 0, 0, 0, 0]),
                    ([(0, 1), (0, 1), (0, 2), (1, 1), (2, 1), (0, 0)], -1,
                     [3, 3, 3, 0, 0, 3]),
                    ([(1, 1), (0, 2), (1, 1), (2, 1), (0, 3), (0, 2)], 1,
                     [0, 4, 0, 0, 4, 4]),
                    ([(1, 1), (1, 2), (1, 1), (2, 1), (2, 1), (2, 2)], 1,
                     [6, 0, 6, 0, 0, 0]),
                    ([(1, 5), (1, 2), (1, 3), (2, 1), (2, 1), (2, 2)], 1,
                     [4, 4, 4, 0, 0, 0])):
                configure(servers, members, working)
                equal(deal(servers, address, 12), want,
                      f"{text}: {members}, working generation {working}")


@test
def switched_generations():
    """a working generation takes effect at once, for all that is new"""
    for text, kind, family in combinations():
        with Pool() as pool:
            servers, address = group_of(pool, kind, family, 4, "rr")
            for sock, generation in zip(servers, (1, 1, 2, 2)):
                ps.set(sock, ps.GENERATION, generation)
            found = []
            for working in (-1, 1, 2, 1, 7, 2):
                ps.set(servers[3], ps.WORKING_GENERATION, working)
                found.append(deal(servers, address, 40))
            equal(found, [[10] * 4, [20, 20, 0, 0], [0, 0, 20, 20],
                          [20, 20, 0, 0], [10] * 4, [0, 0, 20, 20]],
                  f"{text}: as it is switched")
            servers.pop().close()
            servers.pop().close()
            equal(deal(servers, address, 40), [20, 20],
                  f"{text}: the others while none of it is there")
            servers.append(pool.server(kind, family, address[1],
                                       ps.member(generation=2)))
            equal(deal(servers, address, 40), [0, 0, 40],
                  f"{text}: and none of them when one comes")


@test
def nobody_selectable():
    """all draining: the kernel's own choice stands and is counted"""
    for text, kind, family in combinations():
        for policy in ("rr", "consistent"):
            with Pool() as pool:
                servers, address = group_of(pool, kind, family, 4, policy,
                                            state=ps.DRAINING)
                shares = net.deal(servers, address, 40)
                info = ps.info(servers[0])
                ok(sum(shares) == 40 and max(shares) < 40,
                   f"{text} {policy}: all are served", shares)
                equal((info.selectable, info.fallbacks,
                       sum(ps.group(servers[0]).picked())), (0, 40, 0),
                      f"{text} {policy}: as fallbacks")


@test
def listening_again():
    """shutdown() and listen(): the same member in every respect"""
    for family in net.FAMILIES:
        text = f"tcp {net.FAMILY_NAMES[family]}"
        wanted = {"id": 9, "weight": 3, "state": ps.STANDBY, "generation": 4,
                  "cpu": 0, "rx_queue": 5}
        with Pool() as pool:
            servers, address = group_of(pool, "tcp", family, 3, "rr",
                                        working_generation=4)
            one = servers[0]
            for name, value in wanted.items():
                ps.set(one, getattr(ps, name.upper()), value)
            for _ in range(3):
                one.shutdown(socket.SHUT_RDWR)
                info = ps.info(one)
                equal({name: getattr(info, name) for name in wanted}, wanted,
                      f"{text}: stopped")
                equal(net.deal(servers[1:], address, 10), [5, 5],
                      f"{text}: gets nothing")
                one.listen(1024)
                info = ps.info(one)
                equal({name: getattr(info, name) for name in wanted}, wanted,
                      f"{text}: listening again")
                equal((info.working_generation, net.deal(servers, address,
                                                         10)),
                      (4, [0, 5, 5]), f"{text}: it is a standby still")
            ps.set(one, ps.STATE, ps.ACTIVE)
            equal(net.deal(servers, address, 10), [10, 0, 0],
                  f"{text}: and of the working generation")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=300)
