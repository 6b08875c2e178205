#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: smp=4 timeout=600 threads
"""Everything at once, in random order: stress.py [SECONDS [SEED]]"""
import os
import random
import resource
import sys
import time

from lib import chaos, net, ns, proc, ps, quic, tap
from lib.net import INET
from lib.tap import equal, ok, test

# Every kernel of the matrix but the host's own gets the short form.
QUICK = os.environ.get("PS_QUICK")
SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 10 if QUICK else 30
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else \
    random.SystemRandom().randrange(2**32)
WORKERS = 6


@test
def everything():
    """nothing is left, and nothing broke"""
    tap.diag(f"{SECONDS:g} seconds, seed {SEED}")
    choose = random.Random(SEED)
    until = time.monotonic() + SECONDS
    space = ns.Namespace()
    # Hooks must not be armed under traffic in a guest of several threads, see
    # docs/testing.md: a group that stays keeps them armed, and one with a peer
    # those that are for such groups.
    stays = net.Pool()
    stays.server("tcp", INET, net.port(), ps.join)
    stays.server("udp", INET, net.port(), ps.join).connect(("127.0.0.1", 9))

    # Half the workers share this namespace, and one more of each kind dies
    # in the middle of things again and again.
    children = [proc.Child(chaos.work, SEED + i, until)
                for i in range(WORKERS - 2)]
    with space:
        children += [proc.Child(chaos.work, SEED - i, until) for i in (1, 2)]
    victim, victims = None, 0
    trouble, reads, most = [], 0, 0
    groups = {}
    while time.monotonic() < until:
        if victim is None:
            victim = proc.Child(chaos.work, SEED + 100 + victims, until + 60)
            victims += 1
            dies = time.monotonic() + choose.uniform(0.1, 2)
        elif time.monotonic() > dies:
            victim.kill()
            victim = None
        trouble += chaos.operate(choose, groups)
        try:
            groups = ps.table()
        except (ValueError, NameError) as error:
            trouble.append(f"/proc/net/portsteer: {error!r}")
            continue
        reads += 1
        most = max(most, sum(len(g.members) for g in groups.values()))
        trouble += chaos.inconsistencies(groups)
        time.sleep(0.01)
    if victim:
        victim.kill()

    done = {}
    for child in children:
        for key, count in child.get(120).items():
            done[key] = done.get(key, 0) + count
        ok(child.wait(), f"worker {child.pid} comes to its end")
    tap.diag(f"{reads} reads of the table, {most} members at most, "
             f"{victims} victims")
    for key in sorted(done):
        tap.diag(f"{key}: {done[key]}")
    ok(not trouble, "the table made sense whenever it was read",
       "\n".join(trouble[:20]))
    ok(most > 1, "there were members to look at")
    ps.rule("clear")
    stays.close()
    ok(proc.wait_for(lambda: not ps.table()), "no group remains", ps.table())
    with space:
        ok(proc.wait_for(lambda: not ps.table()), "nor in the namespace",
           ps.table())
    space.close()
    ok(ps.disarmed(), "the hooks are disarmed", ps.hooks())


@test
def afterwards():
    """it still does its work"""
    with net.Pool() as pool:
        port = net.port()
        servers = pool.servers(4, "tcp", INET, port, ps.member("rr"))
        equal(net.counts(net.burst(servers, ("127.0.0.1", port), 40), 4),
              [10] * 4, "round robin")
        servers = pool.servers(4, "udp", INET, port, ps.member("quic"))
        with net.Watch(servers) as watch:
            client = pool.new("udp", INET)
            reached = []
            for number in (0, 1, 2, 3) * 3:
                client.sendto(quic.short(quic.connection_id(number)),
                              ("127.0.0.1", port))
                reached.append(watch.take())
        equal(reached, [0, 1, 2, 3] * 3, "quic")
        ps.set_policy(servers[0], "rr")
        servers[2].connect(client.getsockname())
        equal(net.counts(net.burst(servers, ("127.0.0.1", port), 30), 4),
              [10, 10, 0, 10], "UDP, one with a peer")
        ps.set(servers[0], ps.AFFINITY, 60)
        home = set(net.burst(servers, ("127.0.0.1", port), 12,
                             through=pool.new("udp", INET)))
        equal(len(home), 1, "affinity")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module,
            limit=int(SECONDS) + 300)
