#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900
"""A listener goes while handshakes are under way: they end on another one, and
nothing of it is kept longer. DESIGN.md 2.5, acceptance case 2."""
import contextlib
import os
import socket
import struct
import subprocess
import time

from lib import clients, kernel, net, ns, packet, proc, ps, tap
from lib.net import INET, Pool
from lib.tap import equal, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
CLIENTS = 200
TFO_ROUNDS = 20 if QUICK else 200


def defer(seconds):
    """The kernel doesn't end a handshake before the client says something,
    or the time is over."""
    return lambda sock: sock.setsockopt(socket.IPPROTO_TCP,
                                        socket.TCP_DEFER_ACCEPT, seconds)


def half_open(port):
    """How many handshakes of the port's listeners are under way."""
    count = 0
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):
            with open(f"/proc/thread-self/net/{name}") as file:
                next(file)
                for line in file:
                    words = line.split()
                    count += (words[3] == "03" and
                              int(words[1].split(":")[1], 16) == port)
    return count


# Case 2

def one(kind, policy, leave):
    text = f"{kind} {policy} {leave.__name__ if leave else 'SIGKILL'}"
    port = net.port()
    options = (ps.member(policy), defer(30))
    with Pool() as pool:
        if leave:
            first = clients.servers_of(pool, 1, kind, port, *options)[0]
        else:
            first = clients.Owner(pool, kind, port, *options)
        servers = clients.servers_of(pool, 3, kind, port, *options)
        found = clients.clients(pool, clients.addresses_of(kind, port),
                                CLIENTS, silent=True)
        equal(sum(map(len, clients.take_all(servers, 1, 0))), 0,
              f"{text}: nobody is accepted yet")
        with clients.no_reset(text):
            leave(first) if leave else first.kill()
            for client in found:
                client.speak()
            taken = clients.take_all(servers, CLIENTS)
            equal(sorted(sum(taken, [])), list(range(CLIENTS)),
                  f"{text}: each is taken once, what it said is whole")
            equal(clients.all_answered(found), [], f"{text}: all are answered")
        group = ps.group(servers[0])
        ok(group["migrated"] > 0 and group["migrate_failed"] == 0,
           f"{text}: {group['migrated']} moved", dict(group))
        equal(half_open(port), 0, f"{text}: none is under way any more")


def shutdown_and_close(sock):
    sock.shutdown(socket.SHUT_RDWR)
    sock.close()


@test
def deferred():
    """the same with TCP_DEFER_ACCEPT; clients speak after the close"""
    clients.need_migration()
    ways = (clients.close, clients.shutdown, None, shutdown_and_close)
    for number, policy in enumerate(ps.POLICIES):
        for turn, kind in enumerate(clients.KINDS):
            if QUICK and number % len(clients.KINDS) != turn:
                continue
            one(kind, policy, ways[(number + turn) % len(ways)])
    ok(ps.disarmed(), "nothing is kept", ps.hooks())


@test
def by_timer():
    """clients that say nothing: the SYN-ACK's timer moves them"""
    clients.need_migration()
    for kind in clients.KINDS:
        port = net.port()
        options = (ps.member("hash"), defer(1))
        with Pool() as pool:
            first, *rest = clients.servers_of(pool, 4, kind, port, *options)
            for sock in rest:
                ps.set(sock, ps.STATE, ps.STANDBY)
            found = clients.clients(pool, clients.addresses_of(kind, port), 20,
                                    silent=True)
            for sock in rest:
                ps.set(sock, ps.STATE, ps.ACTIVE)
            with clients.no_reset(kind):
                first.close()
                # Sent again, acknowledged again: now it counts.
                came = proc.wait_for(
                    lambda: sum(clients.backlog(s) for s in rest) == 20, 30)
                ok(came, f"{kind}: all 20 arrive", ps.group(rest[0]).members)
                for client in found:
                    client.speak()
                equal(sorted(sum(clients.take_all(rest, 20), [])),
                      list(range(20)), f"{kind}: each is taken once")
                equal(clients.all_answered(found), [], f"{kind}: answered")
    ok(ps.disarmed(), "nothing is kept", ps.hooks())


@test
def group_anew():
    """the whole group has gone, and a new server has come meanwhile"""
    clients.need_migration()
    for kind in clients.KINDS:
        # The kernel gives up those whose timer finds no listener: a second.
        for _ in range(5):
            port = net.port()
            options = (ps.member("rr"), defer(30))
            with Pool() as pool:
                old = clients.servers_of(pool, 4, kind, port, *options)
                start = time.monotonic()
                found = clients.clients(
                    pool, clients.addresses_of(kind, port), 10, silent=True)
                for sock in old:
                    sock.close()
                gone = not ps.table()
                new = clients.servers_of(pool, 2, kind, port, *options)
                resets = kernel.snmp("Tcp", "OutRsts")
                for client in found:
                    client.speak()
                late = time.monotonic() - start > 0.8
                taken = sorted(sum(clients.take_all(new, 10, 5), []))
                unanswered = clients.all_answered(found)
                resets = kernel.snmp("Tcp", "OutRsts") - resets
            if not late:
                break
            tap.diag("too slow, once more")
        else:
            tap.skip(f"{kind}: group anew", "this machine is too slow")
            continue
        ok(gone, f"{kind}: the group has gone in between")
        equal(taken, list(range(10)), f"{kind}: the new one has them all")
        equal((unanswered, resets), ([], 0), f"{kind}: answered, 0 RST")
    ok(ps.disarmed(), "nothing is kept", ps.hooks())


# Nothing is kept longer

def silent(pool, count=20, kind="IPv4"):
    """(servers, clients): a group whose clients have said nothing yet."""
    port = net.port()
    servers = clients.servers_of(pool, 2, kind, port, ps.member("hash"),
                                 defer(30))
    return servers, clients.clients(pool, clients.addresses_of(kind, port),
                                    count, silent=True)


@test
def abandoned():
    """clients that go without a word"""
    clients.need_migration()
    with Pool() as pool:
        servers, found = silent(pool)
        for sock in servers:
            sock.close()
        equal(ps.table(), {}, "the group has gone")
        for client in found:
            client.abort()
        ok(proc.wait_for(lambda: not ps.hooks(), 5), "nothing is kept",
           ps.hooks())


@test
def timed_out():
    """handshakes that never end"""
    clients.need_migration()
    with Pool() as pool, kernel.sysctl("net.ipv4.tcp_synack_retries", 1):
        servers, _ = silent(pool)
        for sock in servers:
            sock.close()
        ok(proc.wait_for(lambda: not ps.hooks(), 20), "nothing is kept",
           ps.hooks())


@test
def flag_taken_back():
    """SO_REUSEPORT is switched off behind our back"""
    with Pool() as pool:
        port = net.port()
        servers = pool.servers(3, "tcp", INET, port, ps.member("hash"))
        found = clients.clients(pool, [("127.0.0.1", port)], 30)
        servers[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)
        servers[0].close()
        equal(ps.info(servers[1]).members, 2, "it has left")
        clients.take_all(servers[1:], len(found), 0.5)
    ok(ps.disarmed(), "nothing is kept", ps.hooks())


@test
def listens_again():
    """shutdown() and listen() while handshakes are under way"""
    clients.need_migration()
    with Pool() as pool:
        (first, second), found = silent(pool)
        before = ps.info(first)
        with clients.no_reset("shut down for a moment"):
            first.shutdown(socket.SHUT_RD)
            first.listen(1024)
            for client in found:
                client.speak()
            equal(sorted(sum(clients.take_all((first, second), 20), [])),
                  list(range(20)), "each is taken once")
            equal(clients.all_answered(found), [], "all are answered")
        equal(ps.info(first).id, before.id, "and it is who it was")


@test
def forgotten_by_rule():
    """a rule is deleted while handshakes of a closed listener are under way"""
    clients.need_migration()
    port = net.port()
    ps.rule(f"add tcp {port} policy=rr")
    with Pool() as pool:
        servers = pool.servers(2, "tcp", INET, port, net.reuseport, defer(30))
        found = clients.clients(pool, [("127.0.0.1", port)], 10, silent=True)
        servers[0].close()
        ps.rule(f"del tcp {port}")
        for client in found:
            client.abort()
        clients.take_all(servers[1:], 10, 0.2)
        servers[1].close()
    ok(ps.disarmed(), "nothing is kept", ps.hooks())


@test
def unloaded():
    """rmmod while handshakes of closed listeners are under way"""
    clients.need_migration()
    with Pool() as pool:
        servers, found = silent(pool)
        servers[0].close()
        ps.unload()
        for client in found:
            with contextlib.suppress(OSError):
                client.speak()
        taken = sum(clients.take_all(servers[1:], len(found), 1), [])
        equal(len(taken), len(set(taken)), f"{len(taken)} went on unharmed")
        ps.load()
        servers, found = silent(pool)
        for sock in servers:
            sock.close()
        ps.unload()
        ps.load()


@test
def namespace_dies():
    """with connections queued and handshakes under way"""
    clients.need_migration()

    def inside(link):
        space = ns.Namespace()
        with Pool() as pool, space:
            port = net.port()
            servers = pool.servers(4, "tcp", INET, port, ps.member("least"))
            found = clients.clients(pool, [("127.0.0.1", port)], 50)
            _, more = silent(pool)
            link.send((len(ps.table()), len(found) + len(more)))
            link.recv()
            del servers

    for _ in range(5 if QUICK else 20):
        with proc.Child(inside) as child:
            groups, _ = child.get()
            if groups != 2:
                ok(False, "two groups in the namespace", groups)
    equal(ps.table(), {}, "nothing came over")
    ok(proc.wait_for(lambda: not ps.hooks(), 20), "nothing is kept", ps.hooks())
    with open("/proc/net/sockstat") as file:
        tap.diag(file.read())


# TCP_FASTOPEN: a child before its handshake has ended

@test
def fast_open():
    """10 pending children, again and again: counted where they are"""
    clients.need_migration()
    # Nobody answers there, so no handshake ever ends.
    subprocess.run(["ip", "route", "add", "192.0.2.0/24", "dev", "lo"],
                   check=True)
    limit = 10
    port = net.port()
    sources = (("192.0.2.1", number) for number in range(1024, 65536))

    def send(count, base=0):
        for number in range(base, base + count):
            packet.send_syn_data(next(sources), ("127.0.0.1", port),
                                 clients.TAG.pack(number))

    def take(servers, count):
        tags = []

        def more():
            for sock in servers:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        conn = sock.accept()[0]
                        conn.settimeout(5)
                        tags.append(clients.TAG.unpack(conn.recv(8))[0])
                        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                        struct.pack("ii", 1, 0))
                        conn.close()
            return len(tags) >= count
        proc.wait_for(more)
        return sorted(tags)

    def listener(pool):
        return pool.server(
            "tcp", INET, port, ps.member("rr"),
            lambda sock: sock.setsockopt(socket.IPPROTO_TCP, clients.TFO,
                                         limit))

    wrong = []
    with Pool() as pool, kernel.sysctl("net.ipv4.tcp_fastopen", 0x602), \
            kernel.sysctl("net.ipv4.tcp_synack_retries", 1):
        rest = [listener(pool), listener(pool)]
        for sock in rest:
            ps.set(sock, ps.STATE, ps.STANDBY)
        for turn in range(TFO_ROUNDS):
            with listener(pool) as first:
                send(10, 10 * turn)
                if not proc.wait_for(lambda: clients.backlog(first) == 10):
                    wrong.append(f"{turn}: {clients.backlog(first)} pending")
            tags = take(rest, 10)
            if tags != list(range(10 * turn, 10 * turn + 10)):
                wrong.append(f"{turn}: got {tags}")
        ok(not wrong, f"{TFO_ROUNDS} times: all 10 move and have their data",
           "\n".join(wrong[:10]))
        equal(ps.group(rest[0])["migrated"], 10 * TFO_ROUNDS, "all counted")
        # Each may have so many of them pending, and not one more or less.
        send(4 * limit)
        proc.wait_for(lambda: [clients.backlog(s) for s in rest]
                      == [limit] * 2, 2)
        equal([clients.backlog(s) for s in rest], [limit] * 2,
              "their limit is what it was")
        take(rest, 2 * limit)
    subprocess.run(["ip", "route", "del", "192.0.2.0/24", "dev", "lo"],
                   check=True)
    ok(proc.wait_for(lambda: not ps.hooks(), 30), "nothing is kept", ps.hooks())


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=400)
