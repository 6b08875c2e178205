#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: smp=4 timeout=600
"""Policies and settings changed a thousand times under load, by programs and
by operators: nothing is lost."""
import os
import random

from lib import load, net, ps, tap
from lib.net import INET6, Pool, combinations
from lib.tap import equal, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
TURNS = 200 if QUICK else 1000
WORKERS = 4

choose = random.Random(20564)


def start_load(pool, port, *prepare):
    """([one list of four groups' sockets per worker], clients by kind)"""
    workers = []
    for _ in range(WORKERS):
        workers.append([pool.server(
            kind, family, port, *prepare,
            *([net.v6only] if family == INET6 else []))
            for _, kind, family in combinations()])
        load.start(pool, load.echo, workers[-1])
    addresses = [(net.LOOPBACK[family], port) for family in net.FAMILIES]
    clients = {kind: load.start(pool, load.generate, kind, addresses)
               for kind in net.TYPES}
    return workers, clients


def check_load(text, clients):
    for kind, child in clients.items():
        attempted, answered, failures = child.ask("stop")
        ok(attempted == answered > 0, f"{text}, {kind}: attempted "
           f"{attempted} = answered {answered}", "\n".join(failures))


@test
def policies_by_option():
    """any member switches its group's policy"""
    with Pool() as pool:
        workers, clients = start_load(pool, net.port(), ps.member("rr"))
        wrong = []
        for _ in range(TURNS):
            policy = choose.choice(ps.POLICIES)
            number = choose.randrange(len(workers[0]))
            ps.set_policy(choose.choice(workers)[number], policy)
            found = ps.policy(choose.choice(workers)[number])
            if found != policy:
                wrong.append((policy, found))
        equal(wrong, [], f"{TURNS} times, and each is in force at once")
        check_load("by option", clients)


@test
def policies_by_rule():
    """an operator switches the policy of a server that knows nothing"""
    with Pool() as pool:
        port = net.port()
        workers, clients = start_load(pool, port, net.reuseport)
        wrong = []
        for turn in range(TURNS):
            policy = choose.choice(ps.POLICIES)
            kind = choose.choice(tuple(net.TYPES))
            if turn % 50 == 49:
                for kind_ in net.TYPES:
                    tap.error_of(ps.rule, f"del {kind_} {port}")
            ps.rule(f"add {kind} {port} policy={policy} "
                    f"lock={choose.randrange(2)}")
            sock = [s for s in workers[0]
                    if s.type == net.TYPES[kind]][choose.randrange(
                        len(net.FAMILIES))]
            found = ps.policy(sock)
            if found != policy:
                wrong.append((policy, found))
        equal(wrong, [], f"{TURNS} times, and each is in force at once")
        check_load("by rule", clients)


def any_setting():
    """An option of a member's or its group's, and a value."""
    return choose.choice((
        ("WEIGHT", choose.choice((1, 2, 3, 100, 65535))),
        ("CPU", choose.randrange(-1, 4)),
        ("STATE", choose.randrange(3)),
        ("STATE", ps.ACTIVE),
        ("ID", choose.choice((0, 1, 2, 3, 77, 65535))),
        ("GENERATION", choose.randrange(3)),
        ("WORKING_GENERATION", choose.randrange(-1, 3)),
        ("RX_QUEUE", choose.randrange(-1, 4)),
    ))


def shake(workers, turns):
    """Change something of some member, so many times; what was refused."""
    refused = set()
    for _ in range(turns):
        sock = choose.choice(choose.choice(workers))
        name, value = any_setting()
        error = tap.error_of(ps.set, sock, getattr(ps, name), value)
        if error and (name, error) != ("ID", "EEXIST"):
            refused.add(f"{name} {value}: {error}")
    return refused


@test
def settings():
    """weights, states, generations and the rest at random"""
    for policy in ps.POLICIES:
        with Pool() as pool:
            workers, clients = start_load(pool, net.port(), ps.member(policy))
            equal(shake(workers, TURNS // 5), set(),
                  f"{policy}: {TURNS // 5} changes")
            check_load(policy, clients)


@test
def all_at_once():
    """settings and policies, while one worker leaves and joins again"""
    with Pool() as pool:
        workers, clients = start_load(pool, net.port(), ps.member("rr"))
        refused = set()
        for turn in range(TURNS // 5):
            for sock in workers[0]:
                (ps.leave if turn % 2 else ps.join)(sock)
            for sock in workers[1]:
                ps.set_policy(sock, choose.choice(ps.POLICIES))
            refused |= shake(workers[1:], 3)
        equal(refused, set(), f"{TURNS // 5} times")
        check_load("all at once", clients)


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=300)
