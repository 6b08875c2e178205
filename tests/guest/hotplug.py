#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: smp=4 timeout=900
"""CPUs go and come back under load: nothing is lost, what is counted stays
exact, and members are picked for the CPUs that there are."""
import contextlib
import os
import select
import time

from lib import kernel, linger, load, net, ns, proc, ps, tap
from lib.net import INET, INET6, Pool, combinations
from lib.tap import equal, ok, test

QUICK = os.environ.get("PS_QUICK")
CPUS = (1, 2, 3)		# not 0, which may have to stay
ROUNDS = 1 if QUICK else 3
WORKERS = 4


def worker(link, servers, cpu):
    """Serve, where the kernel lets us; a CPU that goes takes the wish along."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, {cpu})
    load.echo(link, servers)


def start_load(pool, policy):
    """(port, clients by kind) of a load on groups of that policy."""
    port = net.port()
    options = {INET: (), INET6: (net.v6only,)}
    for number in range(WORKERS):
        servers = [pool.server(kind, family, port, ps.member(policy),
                               *options[family])
                   for _, kind, family in combinations()]
        load.start(pool, worker, servers, number)
    addresses = [(net.LOOPBACK[family], port) for family in net.FAMILIES]
    return port, {kind: load.start(pool, load.generate, kind, addresses)
                  for kind in net.TYPES}


def in_turn():
    """CPUs go one by one and come back: one, another, then all but the first."""
    for cpu in CPUS:
        with kernel.offline(cpu):
            time.sleep(0.2)
            yield
    with kernel.offline(*CPUS):
        time.sleep(0.2)
        yield


def picked(kind, port):
    return sum(group["picked"] for name, group in ps.table().items()
               if name.startswith(kind) and name.endswith(f":{port}"))


@test
def under_load():
    """every policy: what is asked is answered, and counted"""
    for policy in ps.POLICIES:
        with Pool() as pool:
            port, asking = start_load(pool, policy)
            for _ in range(ROUNDS):
                for _ in in_turn():
                    pass
            for kind, child in asking.items():
                attempted, answered, failures = child.ask("stop")
                ok(attempted == answered > 0, f"{policy}, {kind}: attempted "
                   f"{attempted} = answered {answered}", "\n".join(failures))
                # a datagram to begin with, and one that asks
                each = 2 if kind == "udp" else 1
                equal(picked(kind, port), each * attempted,
                      f"{policy}, {kind}: picked as often")


def deal_from(cpu, servers, address, count):
    with kernel.on_cpu(cpu):
        return net.deal(servers, address, count)


def one(number, count):
    return [count if other == number else 0 for other in range(4)]


@test
def cpu_policy():
    """each CPU that is there has its member; one's that went gets the rest"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            servers = [pool.server(kind, family, port,
                                   ps.member("cpu", cpu=cpu))
                       for cpu in range(4)]
            for away in CPUS:
                there = [cpu for cpu in range(4) if cpu != away]
                with kernel.offline(away):
                    equal([deal_from(cpu, servers, address, 5)
                           for cpu in there],
                          [one(cpu, 5) for cpu in there],
                          f"{text}: CPU {away} is away")
                    ps.set(servers[away], ps.CPU, 0)
                    shares = deal_from(0, servers, address, 40)
                    ok(shares[0] and shares[away] and
                       shares[0] + shares[away] == 40,
                       f"{text}: its member serves another one", shares)
                    ps.set(servers[away], ps.CPU, away)
                equal(deal_from(away, servers, address, 5), one(away, 5),
                      f"{text}: CPU {away} is back")
            equal(ps.group(servers[0])["picked"], 3 * (15 + 40 + 5),
                  f"{text}: all are counted")


@test
def other_policies():
    """rr deals out, all others pick from all, whatever CPUs there are"""
    for policy in ps.POLICIES:
        if policy == "cpu":
            continue
        with Pool() as pool:
            groups = []
            for text, kind, family in combinations():
                port = net.port()
                groups.append((text, pool.servers(4, kind, family, port,
                                                  ps.member(policy)),
                               (net.LOOPBACK[family], port), []))
            for _ in in_turn():
                for _, servers, address, found in groups:
                    found.append(net.deal(servers, address, 8))
            for text, servers, _, found in groups:
                equal((sum(map(sum, found)), ps.group(servers[0])["picked"]),
                      (32, 32), f"{policy}, {text}: served and counted")
                if policy == "rr":
                    equal(found, [[2] * 4] * 4, f"{policy}, {text}: by turns")


def learn(link, port, cpu):
    """A worker that is on that CPU, or on any when it has gone."""
    os.sched_setaffinity(0, {cpu})
    with net.server("udp", INET, port, ps.member("cpu")) as sock:
        sock.setblocking(True)
        link.send(ps.get(sock, ps.ID))
        while True:
            ready, _, _ = select.select([sock, link], [], [])
            if sock in ready:
                sock.recv(64)
            if link in ready:
                link.recv()
                link.send((ps.info(sock).cpu, len(os.sched_getaffinity(0))))


@test
def learned():
    """a worker whose CPU goes is found where it runs then"""
    port = net.port()
    with Pool() as pool:
        workers = [load_worker(pool, port, cpu) for cpu in (2, 3)]
        address = ("127.0.0.1", port)

        def knock():
            for cpu in kernel.cpu_list("online"):
                with kernel.on_cpu(cpu), net.client("udp", address):
                    pass
            time.sleep(0.05)
            return [worker.ask("look")[0] for worker in workers]
        ok(proc.wait_for(lambda: knock() == [2, 3], 20), "both are learned",
           knock())
        with kernel.offline(3):
            ok(proc.wait_for(lambda: knock()[1] in (0, 1, 2), 20),
               "elsewhere when its CPU has gone", knock())
            equal(knock()[0], 2, "the other one where it was")


def load_worker(pool, port, cpu):
    child = pool.enter_context(proc.Child(learn, port, cpu))
    child.get()
    return child


@test
def inside():
    """who is in our code on a CPU that goes is waited for all the same"""
    with Pool() as pool:
        closing = linger.closing(pool, 3)
        with kernel.offline(3):
            ps.unload()
            ok(closing.link.poll(5), "rmmod comes back after close()")
            ok(closing.get() > 0.1, "which is well")
    ps.load()


@test
def loading():
    """loaded, armed and unloaded while CPUs go and come"""
    def turning(link):
        link.send("up")
        count = 0
        while not link.poll(0):
            with kernel.offline(CPUS[count % 3]):
                count += 1
        link.send(count)

    ps.unload()
    with proc.Child(turning) as child:
        child.get()
        wrong = []
        for _ in range(2 if QUICK else 6):
            ps.load()
            with Pool() as pool:
                port = net.port()
                servers = pool.servers(2, "tcp", INET, port, ps.member("rr"))
                shares = net.deal(servers, ("127.0.0.1", port), 10)
                if shares != [5, 5]:
                    wrong.append(shares)
            ps.unload()
        turns = child.ask("stop")
    ok(turns and not wrong, f"while a CPU went {turns} times", wrong)
    equal(kernel.cpu_list("online"), [0, 1, 2, 3], "all are back")
    ps.load()


if __name__ == "__main__":
    ns.lo_up()
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=600)
