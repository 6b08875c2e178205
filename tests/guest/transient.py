#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: smp=4 timeout=900
"""Listeners that come and go under load lose nothing: transient.py [ROUNDS]
DESIGN.md 2.5, acceptance case 3."""
import os
import sys
import time

from lib import kernel, load, net, proc, ps, tap
from lib.net import INET6, Pool
from lib.tap import equal, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 1
REQUESTS = 1000 if QUICK else 5000
SOURCES = 4
TRANSITIONS = 20


def worker(link, family, port, policy):
    with Pool() as pool:
        load.echo(link, pool.servers(1, "tcp", family, port,
                                     ps.member(policy)))


def ask(link, addresses, count, rate):
    """count requests, no more than so many a second; what went wrong."""
    link.recv()
    failures = []
    start = time.monotonic()
    for number in range(count):
        # An emulated machine may not keep up: then as fast as it goes.
        time.sleep(max(0, start + number / rate - time.monotonic()))
        try:
            load.ask("tcp", addresses[number % len(addresses)], number)
        except (OSError, ValueError) as error:
            failures.append(f"{number}: {error!r}")
    link.send(failures)


def come_and_go(link, family, port, policy, pause):
    """4 members for 20 ms, until told to stop; how many times."""
    times = 0
    link.recv()
    while not link.poll(0) or times < TRANSITIONS:
        with Pool() as pool:
            pool.servers(4, "tcp", family, port, ps.member(policy))
            time.sleep(0.02)
        times += 1
        time.sleep(pause)
    link.send(times)


def probe(text, family, policy, requests=REQUESTS):
    port = net.port()
    addresses = [(net.LOOPBACK[family], port)]
    if family == INET6:
        addresses.append(("127.0.0.1", port))
    with Pool() as pool:
        for _ in range(4):
            load.start(pool, worker, family, port, policy)
        each = requests // SOURCES
        clients = [proc.Child(ask, addresses, each, 500 / SOURCES)
                   for _ in range(SOURCES)]
        # More of them, if anything, than 20 in 5000 requests at 500 a second.
        guest = proc.Child(come_and_go, family, port, policy,
                           0.2 if requests >= 1000 else 0.02)
        for child in (*clients, guest):
            pool.push(child)
            child.link.send("go")
        start = time.monotonic()
        failures = sum((child.get(600) for child in clients), [])
        seconds = time.monotonic() - start
        times = guest.ask("enough")
        ok(times >= TRANSITIONS, f"{text}: {times} times 4 members came and "
           "went", f"{requests / seconds:.0f} requests a second")
        equal(failures[:10], [],
              f"{text}: {len(failures)} of {requests} requests failed")
        return times, len(failures), seconds


@test
def transient():
    """4 members join and are closed 20 ms later, again and again"""
    wrong = total = 0
    for turn in range(ROUNDS):
        policy = ps.POLICIES[turn % len(ps.POLICIES)]
        family = net.FAMILIES[turn % len(net.FAMILIES)]
        text = f"{turn + 1} {net.FAMILY_NAMES[family]} {policy}"
        times, failed, seconds = probe(text, family, policy)
        wrong += failed
        total += REQUESTS
        tap.diag(f"{text}: {failed} errors, {REQUESTS / seconds:.0f} requests "
                 f"a second, {times} times")
    tap.diag(f"{wrong} of {total} requests failed in {ROUNDS} rounds")


@test
def every_policy():
    """a shorter one, under each"""
    for number, policy in enumerate(ps.POLICIES):
        probe(policy, net.FAMILIES[number % len(net.FAMILIES)], policy, 200)


@test
def cookies():
    """handshakes by SYN cookies, of which no listener knows"""
    with kernel.sysctl("net.ipv4.tcp_syncookies", 2):
        before = kernel.snmp("TcpExt", "SyncookiesRecv")
        for family in net.FAMILIES:
            probe(f"cookies, {net.FAMILY_NAMES[family]}", family, "rr", 500)
        received = kernel.snmp("TcpExt", "SyncookiesRecv") - before
        ok(received >= 500 * len(net.FAMILIES), f"{received} cookies came back")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module,
            limit=400 * max(1, ROUNDS))
