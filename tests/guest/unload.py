#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=1200
"""rmmod at any moment: nothing is lost and sockets go on as plain ones."""
import os
import random
import signal
import socket
import sys
import time

from lib import linger, load, net, proc, ps, tap
from lib.net import INET, INET6, Pool, combinations
from lib.proc import urgent
from lib.tap import equal, fails, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
TURNS = int(sys.argv[1]) if len(sys.argv) > 1 else 10 if QUICK else 50
CALL_TURNS = 5 if QUICK else 20


@test
def under_load():
    """load and unload under connections and datagrams: none is lost"""
    with Pool() as pool:
        port = net.port()
        addresses = [("127.0.0.1", port), ("::1", port)]
        children = []
        for _ in range(4):
            workers = [pool.server(kind, family, port, net.reuseport,
                                   *([net.v6only] if family == INET6 else []))
                       for _, kind, family in combinations()]
            child = proc.Child(load.echo, workers)
            pool.push(child)
            child.get()
        for kind in net.TYPES:
            child = proc.Child(load.generate, kind, addresses)
            pool.push(child)
            child.get()
            children.append((kind, child))

        picked, trouble = 0, []
        for turn in range(TURNS):
            try:
                with urgent():
                    ps.load()
                    for kind in net.TYPES:
                        policy = ("rr", "hash")[turn % 2]
                        ps.rule(f"add {kind} {port} policy={policy}")
                if turn % 3:		# else unload at once
                    time.sleep(0.1)
                with urgent():
                    picked += sum(g["picked"] for g in ps.table().values())
                    ps.unload()
            except (OSError, RuntimeError) as error:
                trouble.append(f"{turn}: {error}")
                break
        ok(not trouble, f"{TURNS} times loaded and unloaded",
           "\n".join(trouble))
        ok(picked > 0, "it steered meanwhile")
        tap.diag(f"{picked} seen to be picked")
        for kind, child in children:
            attempted, answered, failures = child.ask("stop")
            ok(attempted == answered > 0, f"{kind}: attempted {attempted} = "
               f"answered {answered}", "\n".join(failures))
        for kind in net.TYPES:
            for number in range(10):
                load.ask(kind, addresses[number % 2], number)
        ok(True, "served after the last rmmod")


@test
def rules_under_load():
    """rules that come and go under load lose nothing either"""
    with Pool() as pool:
        ps.load()
        port = net.port()
        workers = pool.servers(4, "tcp", INET6, port, net.reuseport)
        server = pool.enter_context(proc.Child(load.echo, workers))
        server.get()
        client = pool.enter_context(proc.Child(
            load.generate, "tcp", [("127.0.0.1", port), ("::1", port)]))
        client.get()
        for turn in range(100):
            ps.rule(f"add tcp {port} policy={('rr', 'hash')[turn % 2]}")
            if turn % 2:
                ps.rule("clear")
        attempted, answered, failures = client.ask("stop")
        ok(attempted == answered > 0, f"attempted {attempted} = answered "
           f"{answered}", "\n".join(failures))
        ps.rule("clear")
        ps.unload()


@test
def members_go_on():
    """members are plain SO_REUSEPORT sockets after rmmod"""
    ps.load()
    with Pool() as pool:
        groups = []
        for text, kind, family in combinations():
            port = net.port()
            groups.append((text, kind, family, port, pool.servers(
                4, kind, family, port, ps.member("rr"))))
        ps.unload()
        for text, kind, family, port, servers in groups:
            shares = net.counts(net.burst(
                servers, (net.LOOPBACK[family], port), 80), 4)
            ok(sum(shares) == 80 and min(shares) > 0, f"{text}: all serve",
               shares)
            fails("ENOPROTOOPT", f"{text}: no options",
                  ps.get, servers[0], ps.JOIN)
            equal(servers[0].getsockopt(socket.SOL_SOCKET,
                                        socket.SO_REUSEPORT), 1,
                  f"{text}: SO_REUSEPORT is set")
            equal(tap.error_of(lambda: pool.server(kind, family, port,
                                                   net.reuseport)), None,
                  f"{text}: another may bind")
        ps.load()
        equal(ps.table(), {}, "loaded again it knows none of them")
        for text, kind, family, port, servers in groups:
            equal(ps.get(servers[0], ps.JOIN), 0, f"{text}: a stranger")
            ps.join(servers[2])
            equal(ps.get(servers[2], ps.ID), 0, f"{text}: that may join")
        ps.unload()


@test
def beside_binds():
    """loaded and removed while others bind: hooks are armed at load, once"""
    def binder(link, kind):
        count = 0
        while not link.poll(0):
            with net.new(kind, INET) as sock:
                net.reuseport(sock)
                sock.bind(("127.0.0.1", 0))
                count += 1
        link.send(count)

    with Pool() as pool:
        children = [pool.enter_context(proc.Child(binder, kind))
                    for kind in net.TYPES]
        for _ in range(CALL_TURNS // 2):
            with urgent():
                ps.load()
                ps.unload()
        counts = [child.ask("stop") for child in children]
        ok(all(counts), f"{CALL_TURNS // 2} times", counts)


@test
def pending_wishes():
    """wishes go with the module"""
    for text, kind, family in combinations():
        ps.load()
        with Pool() as pool:
            socks = [pool.new(kind, family) for _ in range(20)]
            for sock in socks:
                ps.member("rr", 3)(sock)
            ps.unload()
            port = net.port()
            socks[0].bind((net.LOOPBACK[family], port))
            # JOIN took the place of SO_REUSEPORT: that much stays.
            equal(tap.error_of(socks[1].bind, (net.LOOPBACK[family], port)),
                  None, f"{text}: plain SO_REUSEPORT sockets now")
            socks[2].close()
            ps.load()
            equal([ps.get(s, ps.JOIN) for s in socks[3:]], [0] * 17,
                  f"{text}: no wish survives a reload")
            fails("ENOENT", f"{text}: of any option", ps.policy, socks[3])
            ps.unload()


@test
def blocked_tasks():
    """rmmod while tasks sleep in accept(), recv() and close()"""
    ps.load()

    def accept(link, sock):
        sock.setblocking(True)
        link.send("up")
        sock.accept()[0].close()
        link.send("served")

    def receive(link, sock):
        sock.setblocking(True)
        link.send("up")
        sock.recv(64)
        link.send("served")

    with Pool() as pool:
        waiting = []
        for text, kind, family in combinations():
            port = net.port()
            sock = pool.server(kind, family, port, ps.member("rr"))
            child = pool.enter_context(proc.Child(
                accept if kind == "tcp" else receive, sock))
            child.get()
            waiting.append((text, kind, family, port, child))

        closing = linger.closing(pool)
        started = time.monotonic()
        ps.unload()
        tap.diag(f"rmmod took {time.monotonic() - started:.1f} s")
        ok(not ps.loaded(), "rmmod succeeds")
        tap.diag(f"close() took {closing.get():.1f} s")
        ok(closing.wait(), "close() comes back")
        for text, kind, family, port, child in waiting:
            with net.client(kind, (net.LOOPBACK[family], port)):
                equal(child.get(), "served", f"{text}: who slept is served")


@test
def with_everything():
    """rmmod with groups, wishes and rules present, and nobody minds later"""
    for _ in range(5):
        ps.load()
        with Pool() as pool:
            for _, kind, family in combinations():
                port = net.port()
                pool.servers(3, kind, family, port, ps.member("rr"))
                ps.rule(f"add {kind} {net.port()} policy=rr")
                ps.rule(f"add {kind} {port} policy=hash")
                ps.member("rr")(pool.new(kind, family))
                pool.servers(2, kind, family, port, net.reuseport)
            ps.unload()
    ok(True, "sockets closed after rmmod")
    ps.load()
    equal((ps.table(), ps.rules(), ps.hooks()), ({}, [], set()),
          "a fresh start")
    ps.unload()


@test
def under_calls():
    """rmmod while other tasks join, leave, read and close"""
    def churn(link, seed):
        choose = random.Random(seed)
        link.send("up")
        count = 0
        while not link.poll(0):
            try:
                with net.new(choose.choice(list(net.TYPES)),
                             choose.choice((INET, INET6))) as sock:
                    ps.member("rr")(sock)
                    sock.bind((net.WILDCARD[sock.family], 9999))
                    if sock.type == socket.SOCK_STREAM:
                        sock.listen()
                    ps.info(sock)
                    ps.table()
            except (OSError, ValueError):
                pass		# the module is away, or the port is taken
            count += 1
        link.send(count)

    with Pool() as pool:
        children = [pool.enter_context(proc.Child(churn, i)) for i in range(2)]
        for child in children:
            child.get()
        refused = 0
        for _ in range(CALL_TURNS):
            with urgent():
                ps.load()
            time.sleep(0.1)
            # A task inside a sockopt handler or reading /proc holds the
            # module for that moment: rmmod may have to try again.
            for attempt in range(50):
                try:
                    with urgent():
                        ps.unload()
                    break
                except RuntimeError as error:
                    last = error
                    refused += 1
                    time.sleep(0.02)
            else:
                raise last
        counts = [child.ask("stop") for child in children]
        ok(all(counts), f"{CALL_TURNS} times", counts)
        tap.diag(f"{counts} sockets; rmmod was refused {refused} times")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    net.ns.lo_up()
    tap.run(limit=800)
