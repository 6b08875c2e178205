#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The policy "hash": uniform, stable, and keyed by the seed."""
import random

from lib import net, ps, stats, tap
from lib.net import INET, INET6, Pool, combinations
from lib.tap import equal, fails, ok, test

SEED = "000102030405060708090a0b0c0d0e0f"
OTHER_SEED = "f00102030405060708090a0b0c0d0e0f"

choose = random.Random(20563)


def loopback_source(_):
    """Some address of 127/8 and a port that the kernel chooses."""
    return (f"127.{choose.randrange(1, 255)}.{choose.randrange(256)}."
            f"{choose.randrange(1, 255)}", 0)


def mapping(kind, family, port, sources=64):
    """Which id of a fresh group of four serves each of so many sources."""
    host = net.LOOPBACK[family]
    with Pool() as pool:
        servers = pool.servers(4, kind, family, port, ps.member("hash"))
        return net.burst(servers, (host, port), sources,
                         source=lambda i: (host, 20000 + i))


def spread(text, kind, family, members, count, source=None):
    with Pool() as pool:
        port = net.port()
        servers = pool.servers(members, kind, family, port, ps.member("hash"))
        reached = net.burst(servers, (net.LOOPBACK[family], port), count,
                            source)
        shares = net.counts(reached, members)
        equal(sum(shares), count, f"{text}: all arrived")
        ok(stats.uniform(shares), f"{text}: uniform",
           f"{shares} p={stats.p_value(shares)}")
        group = ps.group(servers[0])
        equal(group.picked(), shares, f"{text}: it was the policy's doing")
        equal((group["picked"], group["fallbacks"]), (count, 0),
              f"{text}: and no fallback's")
        ok(any(len(set(reached[i:i + members])) < members
               for i in range(count - members)), f"{text}: and not in turn")


@test
def uniform():
    """by chi-square, once in a million"""
    spread("udp IPv4", "udp", INET, 8, 2000, loopback_source)
    spread("udp IPv6", "udp", INET6, 8, 1000)
    spread("tcp IPv4", "tcp", INET, 4, 400, loopback_source)
    spread("tcp IPv6", "tcp", INET6, 4, 400)


@test
def addresses_count():
    """sources that differ in the address alone"""
    spread("udp, one port", "udp", INET, 4, 400,
           lambda i: (f"127.1.{i // 250}.{i % 250 + 1}", 20000))


@test
def default():
    """hash is the policy of those who choose none"""
    equal(ps.parameter("policy"), "hash", "module parameter")
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = pool.server(kind, family, net.port(), ps.member())
            equal(ps.policy(sock), "hash", text)


@test
def stays():
    """a 4-tuple keeps its socket while the group stands"""
    for text, kind, family in combinations():
        host = net.LOOPBACK[family]
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(4, kind, family, port, ps.member("hash"))
            rounds = [net.burst(servers, (host, port), 32,
                                source=lambda i: (host, 21000 + i))
                      for _ in range(3)]
            ok(rounds[0] == rounds[1] == rounds[2], f"{text}: 32 tuples",
               rounds)
            ok(len(set(rounds[0])) > 1, f"{text}: not all on one socket",
               rounds[0])
            if kind == "udp":
                reached = net.burst(servers, (host, port), 50,
                                    through=pool.new(kind, family))
                equal(len(set(reached)), 1, f"{text}: 50 of one flow")


@test
def seeds():
    """the mapping depends on the seed, and on nothing that a reload changes"""
    ports = {text: net.port() for text, _, _ in combinations()}

    def mappings(**parameters):
        ps.unload()
        ps.load(**parameters)
        return {text: mapping(kind, family, ports[text])
                for text, kind, family in combinations()}

    first, other = mappings(seed=SEED), mappings(seed=OTHER_SEED)
    again = mappings(seed=SEED)
    for text in ports:
        equal(again[text], first[text], f"{text}: same seed, same mapping")
        ok(other[text] != first[text], f"{text}: other seed, other mapping")
    one, two = mappings(), mappings()
    for text in ports:
        ok(one[text] != two[text], f"{text}: random without a seed", one[text])


@test
def remade():
    """a group made anew under one seed maps alike"""
    for text, kind, family in combinations():
        port = net.port()
        equal(mapping(kind, family, port), mapping(kind, family, port), text)


@test
def bad_seeds():
    """a seed is 32 hexadecimal digits"""
    with Pool() as pool:
        sock = pool.server("udp", INET, net.port(), ps.member())
        for seed in ("", "zz", "12 34", "g" * 32, SEED[:-1] + "x", SEED + "0",
                     "f" * 4000):
            error = tap.error_of(ps.parameter, "seed", seed + "\n")
            ok(error in ("EINVAL", "EACCES", "EPERM"),
               f"seed {seed[:40]!r}", f"got {error}")
        equal(ps.info(sock).members, 1, "the group doesn't mind")
    ps.unload()
    for seed in ("zz", "g" * 32, SEED + "0"):
        try:
            ps.load(seed=seed)
        except RuntimeError as error:
            ok("Invalid" in str(error), f"load with seed={seed[:40]}", error)
        else:
            ok(False, f"load with seed={seed[:40]} is refused")
            ps.unload()
    ps.load()


@test
def as_written():
    """an unknown policy can't be made the default; a known one can"""
    fails("EINVAL", "policy=nonsense", ps.parameter, "policy", "nonsense\n")
    equal(ps.parameter("policy"), "hash", "nothing changed")
    ps.parameter("policy", "rr\n")
    with Pool() as pool:
        sock = pool.server("udp", INET, net.port(), ps.member())
        equal(ps.policy(sock), "rr", "the next group has it")
        ps.parameter("policy", "hash")
        equal(ps.policy(sock), "rr", "and keeps it")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module)
