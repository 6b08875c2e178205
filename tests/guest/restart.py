#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900
"""Listeners that are drained, shut down, replaced, forgotten in another
process: who they are and what they have queued. DESIGN.md 2.5, acceptance
cases 4 and 7."""
import os
import resource
import socket
import time

from lib import clients, net, proc, ps, tap
from lib.net import INET, Pool
from lib.tap import equal, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
NEW = 200 if QUICK else 500
CYCLES = 10 if QUICK else 50
ROOM = 16


def serve(pool, servers, addresses, count):
    """count new connections, answered; how many each server had.

    They are closed with the pool: where a segment of theirs is sent twice, a
    client that is closed already answers by a reset, which is harmless.
    """
    shares = [0] * len(servers)
    for start in range(0, count, 50):
        found = clients.clients(pool, addresses, min(50, count - start))
        taken = clients.take_all(servers, len(found))
        shares = [a + len(b) for a, b in zip(shares, taken)]
        if clients.all_answered(found):
            raise AssertionError("not all were answered")
    return shares


# Case 4, to its end

@test
def drain_then_close():
    """A draining: none for A; what it has stays; closed when it is empty"""
    for kind, policy in clients.pairs():
        text = f"{kind} {policy}"
        port = net.port()
        addresses = clients.addresses_of(kind, port)
        with Pool() as pool, clients.no_reset(text):
            first = clients.servers_of(pool, 1, kind, port,
                                       ps.member(policy))[0]
            found = clients.clients(pool, addresses, 50)
            rest = clients.servers_of(pool, 3, kind, port, ps.member(policy))
            ps.set(first, ps.STATE, ps.DRAINING)
            shares = serve(pool, rest, addresses, NEW // 5)
            equal((sum(shares), clients.backlog(first)), (NEW // 5, 50),
                  f"{text}: A gets none, its 50 are there")
            equal(sorted(clients.take(first)), list(range(50)),
                  f"{text}: and can be accepted")
            equal(clients.backlog(first), 0, f"{text}: depth 0")
            first.close()
            equal(clients.all_answered(found), [], f"{text}: all answered")
            equal(sum(serve(pool, rest, addresses, 20)), 20,
                  f"{text}: the others go on")


@test
def drained_not_empty():
    """one that is closed while it drains: its queue moves"""
    clients.need_migration()
    with Pool() as pool, clients.no_reset("draining, closed early"):
        port = net.port()
        first = pool.server("tcp", INET, port, ps.member("least"))
        found = clients.clients(pool, [("127.0.0.1", port)], 50)
        rest = pool.servers(3, "tcp", INET, port, ps.member("least"))
        ps.set(first, ps.STATE, ps.DRAINING)
        first.close()
        equal(sorted(sum(clients.take_all(rest, 50), [])), list(range(50)),
              "all 50 are taken by the others")
        equal(clients.all_answered(found), [], "and answered")


# Case 7 for TCP

@test
def overlap():
    """a new generation takes over from the old one"""
    for kind, policy in clients.pairs():
        text = f"{kind} {policy}"
        port = net.port()
        addresses = clients.addresses_of(kind, port)
        with Pool() as pool, clients.no_reset(text):
            old = []
            for number in range(4):
                old += clients.servers_of(pool, 1, kind, port, ps.member(
                    policy, number, generation=1, working_generation=1))
            before = serve(pool, old, addresses, 40)
            waiting = clients.clients(pool, addresses, 20)
            new = []
            for number in range(4, 8):
                new += clients.servers_of(pool, 1, kind, port, ps.member(
                    policy, number, generation=2))
            equal(ps.group(old[0]).ids(), list(range(8)), f"{text}: ids 0 to 7")
            equal(sum(before), 40, f"{text}: the old one serves")
            more = clients.clients(pool, addresses, 20)
            equal(sum(clients.backlog(s) for s in new), 0,
                  f"{text}: joining changes nothing")
            ps.set(new[0], ps.WORKING_GENERATION, 2)
            shares = serve(pool, new, addresses, NEW // 5)
            equal((sum(shares), sum(clients.backlog(s) for s in old)),
                  (NEW // 5, 40), f"{text}: new ones go to the new one alone")
            # The last two are closed with what they have: that moves.
            moves = clients.migrates()
            left, taken = list(range(8)), []
            for sock in old[:2] if moves else old:
                taken += clients.take(sock)
            for number, sock in enumerate(old):
                sock.close()
                left.remove(number)
                if ps.group(new[0]).ids() != left:
                    ok(False, f"{text}: ids", ps.group(new[0]).ids())
            equal(ps.group(new[0]).ids(), [4, 5, 6, 7],
                  f"{text}: nobody was renumbered")
            taken += sum(clients.take_all(new, 40 - len(taken)), [])
            equal(sorted(taken), sorted(2 * list(range(20))),
                  f"{text}: what the old one had is taken")
            equal(clients.all_answered(waiting + more), [],
                  f"{text}: and answered")
            equal(sum(serve(pool, new, addresses, 20)), 20,
                  f"{text}: the new one serves")


# Identity

@test
def listens_again():
    """shutdown() and listen(): the same id, weight, state and generation"""
    clients.need_migration()
    for kind, policy in clients.pairs():
        port = net.port()
        addresses = clients.addresses_of(kind, port)
        with Pool() as pool, clients.no_reset(f"{kind} {policy}"):
            first = clients.servers_of(pool, 1, kind, port, ps.member(
                policy, 7, weight=3, generation=2))[0]
            found = clients.clients(pool, addresses, 20)
            rest = clients.servers_of(pool, 2, kind, port, ps.member(policy))
            was = ps.info(first)
            first.shutdown(socket.SHUT_RD)
            equal(ps.info(first).selectable, 2, f"{policy}: out of it")
            first.listen(1024)
            now = ps.info(first)
            equal((now.id, now.weight, now.state, now.generation, now.members,
                   now.selectable), (7, 3, ps.ACTIVE, 2, 3, 3),
                  f"{kind} {policy}: who it was")
            equal(was.id, now.id, f"{kind} {policy}: the same id")
            equal(sorted(sum(clients.take_all(rest, 20), [])), list(range(20)),
                  f"{kind} {policy}: what it had has moved")
            equal(clients.all_answered(found), [], f"{kind} {policy}: answered")
            more = clients.clients(pool, addresses, 60)
            clients.take_all((first, *rest), 60)
            equal(clients.all_answered(more), [], f"{kind} {policy}: it serves")
            if policy in ("rr", "random", "least"):
                ok(ps.info(first).picked > was.picked,
                   f"{kind} {policy}: and is picked")


@test
def forgotten_dup():
    """a listener that another process still holds: drained by its id"""
    clients.need_migration()

    def holder(link, kind, port, prepare):
        """Binds, hands the listener over and keeps it, as a forked worker."""
        with Pool() as pool:
            sock = clients.servers_of(pool, 1, kind, port, prepare)[0]
            link.send("up")
            link.recv()
            del sock

    for kind in clients.KINDS:
        port = net.port()
        addresses = clients.addresses_of(kind, port)
        with Pool() as pool, clients.no_reset(kind):
            child = pool.enter_context(
                proc.Child(holder, kind, port, ps.member("rr", 5)))
            child.get()
            # Its fd, as another process would have inherited it.
            rest = clients.servers_of(pool, 2, kind, port, ps.member("rr"))
            found = clients.clients(pool, addresses, 30)
            group = ps.group(rest[0])
            equal([m["backlog"] for m in group.members if m["id"] == 5], [10],
                  f"{kind}: it has its share, and nobody takes that")
            state = f"{ps.sysfs_dir(rest[0])}/members/5/state"
            ps.sysfs_write(state, "draining")
            taken = clients.take_all(rest, 20)
            more = serve(pool, rest, addresses, 30)
            equal((sum(map(len, taken)), more), (20, [15, 15]),
                  f"{kind}: drained by id, it gets no more")
            child.kill()
            taken += clients.take_all(rest, 10)
            equal(sorted(sum(taken, [])), list(range(30)),
                  f"{kind}: when its last holder dies its queue moves")
            equal(clients.all_answered(found), [], f"{kind}: all are answered")
            equal(ps.group(rest[0]).ids(), [0, 1], f"{kind}: and it has left")


@test
def held_by_two():
    """close() by one of two holders isn't the end of a listener"""
    clients.need_migration()
    with Pool() as pool, clients.no_reset("two holders"):
        port = net.port()
        first = pool.server("tcp", INET, port, ps.member("rr"))
        found = clients.clients(pool, [("127.0.0.1", port)], 10)
        dup = pool.add(socket.socket(fileno=os.dup(first.fileno())))
        rest = pool.servers(1, "tcp", INET, port, ps.member("rr"))
        first.close()
        group = ps.group(rest[0])
        equal((group["members"], group["migrated"]), (2, 0), "nothing moves")
        dup.close()
        equal(ps.group(rest[0])["migrated"], 10, "the second one's moves all")
        equal(sorted(clients.take_all(rest, 10)[0]), list(range(10)),
              "to where it is taken")
        equal(clients.all_answered(found), [], "and answered")


# Recv-Q

@test
def cycles():
    """fill, close, drain, again and again: no queue is miscounted"""
    clients.need_migration()
    port = net.port()
    address = [("127.0.0.1", port)]
    wrong = []
    with Pool() as pool, clients.no_reset("fill and close"):
        rest = pool.servers(2, "tcp", INET, port, ps.member("least"),
                            backlog=ROOM)
        for turn in range(CYCLES):
            for sock in rest:
                ps.set(sock, ps.STATE, ps.STANDBY)
            first = pool.server("tcp", INET, port, ps.member("least"),
                                backlog=ROOM)
            found = clients.clients(pool, address, ROOM)
            for sock in rest:
                ps.set(sock, ps.STATE, ps.ACTIVE)
            first.close()
            depths = [clients.backlog(sock) for sock in rest]
            taken = clients.take_all(rest, ROOM)
            lost = clients.all_answered(found)
            after = [clients.backlog(sock) for sock in rest]
            if (sum(depths), sorted(sum(taken, [])), lost, after) != \
                    (ROOM, list(range(ROOM)), [], [0, 0]):
                wrong.append(f"{turn}: {depths} {taken} {lost} {after}")
        ok(not wrong, f"{CYCLES} times: all move, and Recv-Q is 0 again",
           "\n".join(wrong[:5]))
        # A full backlog is as much as before, on each alone.
        for sock, other in (rest, rest[::-1]):
            ps.set(other, ps.STATE, ps.DRAINING)
            found = clients.clients(pool, address, ROOM + 1)
            equal(clients.backlog(sock), ROOM + 1, "a full backlog fits")
            client = pool.new("tcp", INET)
            client.settimeout(0.5)
            client.connect_ex(address[0])
            time.sleep(0.2)
            equal(clients.backlog(sock), ROOM + 1, "and not one more")
            client.close()
            clients.take_all([sock], ROOM + 1)
            clients.all_answered(found)
            ps.set(other, ps.STATE, ps.ACTIVE)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=400)
