#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=600
"""SYN cookies on every connection: between the SYN and the ACK the kernel knows
nothing of it, so the ACK's member need not be the SYN's. 400 of 400 are
answered under every policy. DESIGN.md 2.4."""
import contextlib
import os
import time

from lib import kernel, load, net, ps, tap
from lib.net import INET, INET6, Pool
from lib.tap import ok, test

# Every kernel of the matrix but the host's own gets the short form.
COUNT = 100 if os.environ.get("PS_QUICK") else 400
MOMENT = 0.01


def places():
    """(family, host of the client, options) that cover both families."""
    yield INET, "127.0.0.1", ()
    if INET6 in net.FAMILIES:
        yield INET6, "::1", (net.v6only,)


def ask_all(addresses, count):
    """How many are answered, and why not if not."""
    answered, trouble = 0, []
    for number in range(count):
        try:
            load.ask("tcp", addresses[number % len(addresses)], number)
            answered += 1
        except (OSError, ValueError) as error:
            trouble.append(f"{number}: {error!r}")
    return answered, trouble[:10]


def start_workers(pool, port, count):
    """Each serves both families; their sockets."""
    workers = []
    for _ in range(count):
        socks = [pool.server("tcp", family, port, ps.member("rr"), *options)
                 for family, _, options in places()]
        load.start(pool, load.echo, socks)
        workers.append(socks)
    return workers


def every_policy(what, workers, port):
    addresses = [(host, port) for _, host, _ in places()]
    for policy in ps.POLICIES:
        for sock in workers[0]:
            ps.set_policy(sock, policy)
        answered, trouble = ask_all(addresses, COUNT)
        ok(answered == COUNT, f"{policy}, {what}: {answered} of {COUNT}",
           "\n".join(trouble))


@contextlib.contextmanager
def cookies():
    """Cookies for all, and the check that there were any."""
    before = kernel.snmp("TcpExt", "SyncookiesRecv")
    with kernel.sysctl("net.ipv4.tcp_syncookies", 2):
        yield
    after = kernel.snmp("TcpExt", "SyncookiesRecv")
    # Now and then one is used twice, when packets overtake each other.
    ok(after - before >= COUNT * len(ps.POLICIES), "every one was by cookie",
       after - before)


@test
def steady():
    """four members that stay"""
    with Pool() as pool, cookies():
        port = net.port()
        every_policy("steady", start_workers(pool, port, 4), port)


def serve_for(echo, seconds):
    """Answer what comes; how many that were."""
    end = time.monotonic() + seconds
    done = 0
    while (rest := end - time.monotonic()) > 0:
        done += echo.turn(rest)
    return done


def rejoin(link, port):
    """Sockets that join and leave by JOIN, and are served all the time."""
    with Pool() as pool:
        socks = [pool.server("tcp", family, port, ps.member(), *options)
                 for family, _, options in places()]
        echo = load.Echo(socks)
        link.send("up")
        served = turns = 0
        while not link.poll(0):
            for sock in socks:
                (ps.leave if turns % 2 else ps.join)(sock)
            served += serve_for(echo, MOMENT)
            turns += 1
        link.send((turns, served))
        link.recv()


def come_and_go(link, port):
    """Sockets that open, drain, take what they have, and close."""
    echo = load.Echo()
    link.send("up")
    served = turns = 0
    while not link.poll(0):
        with Pool() as pool:
            socks = [pool.server("tcp", family, port, ps.member(), *options)
                     for family, _, options in places()]
            for sock in socks:
                echo.add(sock)
            served += serve_for(echo, MOMENT)
            for sock in socks:
                ps.set(sock, ps.STATE, ps.DRAINING)
            for sock in socks:
                echo.take_all(sock)
                echo.remove(sock)
        turns += 1
    link.send((turns, served))
    link.recv()


@test
def unsteady():
    """a fifth joins and leaves, a sixth opens and closes, every 10 ms"""
    with Pool() as pool, cookies():
        port = net.port()
        workers = start_workers(pool, port, 4)
        # Drained before it closes: what is queued then is for another test.
        children = [load.start(pool, function, port)
                    for function in (rejoin, come_and_go)]
        every_policy("unsteady", workers, port)
        for child, what in zip(children, ("joined and left",
                                          "came and went")):
            turns, served = child.ask("stop")
            ok(turns > 10 and served > 0,
               f"one {what} {turns} times and served {served}")


@test
def not_to_a_draining_one():
    """nor does a cookie's ACK reach a member that drains"""
    with kernel.sysctl("net.ipv4.tcp_syncookies", 2):
        port = net.port()
        address = ("127.0.0.1", port)
        for policy in ps.POLICIES:
            with Pool() as pool:
                servers = pool.servers(4, "tcp", INET, port,
                                        ps.member(policy))
                ps.set(servers[1], ps.STATE, ps.DRAINING)
                shares = net.deal(servers, address, 60)
                ok(shares[1] == 0 and sum(shares) == 60, policy, shares)


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=300)
