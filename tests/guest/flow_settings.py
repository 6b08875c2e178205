#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900
"""UDP flow affinity: how it is switched on and off, and its values. DESIGN.md
2.5."""
from lib import clients, flow, net, ps, tap
from lib.flow import Flows, group_of, live, setting, shares, stays
from lib.net import Pool
from lib.tap import equal, fails, ok, test


def check_on(text, servers, addresses, on=True):
    """Under rr: do the datagrams of one flow stay together?"""
    with Pool() as pool:
        flows = Flows(pool, addresses, 1)
        found = [flows.owners(servers)[0] for _ in range(8)]
    each = 8 // len(servers)
    equal(sorted(shares(found, servers)),
          [0] * (len(servers) - 1) + [8] if on else [each] * len(servers),
          f"{text}: {'on' if on else 'off'}")


@test
def by_option_and_sysfs():
    """the option, the file, a wish: on at once, and read back"""
    for kind in clients.KINDS:
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, "rr")
            one, other = servers[:2]
            for seconds in (60, 0, 2**31 - 1):
                ps.set(one, ps.AFFINITY, seconds)
                equal((ps.get(other, ps.AFFINITY), setting(one, "affinity"),
                       ps.group(one)["affinity"]), (seconds,) * 3,
                      f"{kind}: option {seconds}")
                check_on(f"{kind} option", servers, addresses, seconds)
            for seconds in (0, 1, 2**31 - 1, 0):
                setting(one, "affinity", seconds)
                equal((ps.get(other, ps.AFFINITY), setting(one, "affinity")),
                      (seconds,) * 2, f"{kind}: sysfs {seconds}")
                check_on(f"{kind} sysfs", servers, addresses, seconds)
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 1, "rr", affinity=60)
            with Pool() as inner:
                flows = Flows(inner, addresses, 1)
                flows.owners(servers)
                servers += flow.members_of(pool, kind, addresses[0][1], 3,
                                           affinity=0)
                found = [flows.owners(servers)[0] for _ in range(8)]
            equal(shares(found, servers), [8, 0, 0, 0],
                  f"{kind}: the founder's wish, from the first datagram on")
            equal(ps.get(servers[3], ps.AFFINITY), 60,
                  f"{kind}: others' wishes don't count")


@test
def by_working_generation():
    """a working generation alone switches it on for as long as it is set"""
    for kind in clients.KINDS:
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, "rr")
            one = servers[0]
            check_on(kind, servers, addresses, False)
            for generation in (0, 7):
                ps.set(one, ps.WORKING_GENERATION, generation)
                check_on(f"{kind}: generation {generation}", servers,
                         addresses)
            flows = Flows(pool, addresses, 20)
            first = flows.owners(servers)
            ps.set(one, ps.AFFINITY, 60)
            ps.set(one, ps.WORKING_GENERATION, -1)
            stays(f"{kind}: affinity goes on", flows, servers, first)
            setting(one, "working_generation", 0)
            setting(one, "affinity", 0)
            stays(f"{kind}: and so does a working generation", flows, servers,
                  first)
            equal(ps.get(one, ps.AFFINITY), 0, f"{kind}: affinity reads 0")
            setting(one, "working_generation", -1)
            equal(live(one), 0, f"{kind}: neither: no flow is known")
            check_on(kind, servers, addresses, False)
        with Pool() as pool:
            servers, addresses = group_of(pool, kind, 4, "rr",
                                          working_generation=0)
            check_on(f"{kind}: the founder's wish", servers, addresses)


@test
def by_rule():
    """affinity=: on for servers that know nothing of it; del puts it back"""
    for kind in clients.KINDS:
        family, options = clients.listener_of(kind)
        with Pool() as pool:
            port = net.port()
            addresses = clients.addresses_of(kind, port)
            before = pool.servers(2, "udp", family, port, *options,
                                  net.reuseport)
            ps.rule(f"add udp {port} policy=rr affinity=60")
            servers = before + pool.servers(2, "udp", family, port, *options,
                                            net.reuseport)
            check_on(f"{kind} rule", servers, addresses)
            equal(setting(servers[0], "affinity"), 60, f"{kind}: 60 s")
            ok(any("affinity=60" in line for line in ps.rule_lines()),
               f"{kind}: reads back", ps.rule_lines())
            ps.set(servers[0], ps.AFFINITY, 5)
            equal(ps.get(servers[0], ps.AFFINITY), 5,
                  f"{kind}: a program changes it")
            ps.rule(f"add udp {port} policy=rr lock=1 affinity=30")
            for option, value in ((ps.AFFINITY, 7), (ps.AFFINITY, 0),
                                  (ps.WORKING_GENERATION, 1)):
                fails("EPERM", f"{kind} locked: {option}", ps.set, servers[0],
                      option, value)
            fails("EPERM", f"{kind} locked: policy", ps.set_policy,
                  servers[0], "hash")
            equal(ps.get(servers[0], ps.AFFINITY), 30, f"{kind}: it is 30")
            check_on(f"{kind} locked", servers, addresses)
            setting(servers[0], "affinity", 0)
            check_on(f"{kind} locked, by the operator", servers, addresses,
                     False)
            ps.rule(f"del udp {port}")
            equal(ps.group(servers[0]), None, f"{kind}: the rule lets go")


@test
def rule_and_wish():
    """members of their own: a rule beats their wish, and goes"""
    for kind in clients.KINDS:
        with Pool() as pool:
            port = net.port()
            ps.rule(f"add udp {port} policy=rr affinity=60")
            servers = flow.members_of(pool, kind, port, 4, affinity=9)
            addresses = clients.addresses_of(kind, port)
            equal(ps.get(servers[0], ps.AFFINITY), 60, f"{kind}: the rule's")
            ps.rule(f"del udp {port}")
            equal((ps.get(servers[0], ps.AFFINITY), live(servers[0])), (0, 0),
                  f"{kind}: gone with it")
            check_on(f"{kind} without", servers, addresses, False)
            ps.rule(f"add udp {port} policy=rr affinity=60")
            check_on(f"{kind} once more", servers, addresses)
            ps.rule(f"add udp {port} policy=rr")
            equal(ps.get(servers[0], ps.AFFINITY), 0,
                  f"{kind}: another rule, which says nothing of it")
            check_on(f"{kind} another rule", servers, addresses, False)
            ps.rule(f"del udp {port}")


@test
def refused():
    """values that mean nothing are EINVAL and change nothing"""
    with Pool() as pool:
        servers, _ = group_of(pool, "IPv4", 2, "rr", affinity=60)
        one = servers[0]
        fails("EINVAL", "option -1", ps.set, one, ps.AFFINITY, -1)
        fails("EINVAL", "option, too short", ps.set, one, ps.AFFINITY, b"\1")
        for value in (-1, 2**31, 2**32, "\n", "x", "6 0", "60s"):
            fails("EINVAL", f"affinity {value!r}", setting, one, "affinity",
                  value)
        setting(one, "affinity_flows", 1024)
        for value in (0, -1, (1 << 20) + 1, 2**32 + 64, "\n", "x",
                      "64 64"):
            fails("EINVAL", f"affinity_flows {value!r}", setting, one,
                  "affinity_flows", value)
        equal((setting(one, "affinity"), setting(one, "affinity_flows")),
              (60, 1024), "nothing has changed")
        port = net.port()
        for words in ("udp {} policy=rr affinity=-1",
                      "udp {} policy=rr affinity=2147483648",
                      "udp {} policy=rr affinity=",
                      "udp {} policy=rr affinity=x",
                      "udp {} policy=rr affinity",
                      "udp {} policy=rr affinity=1 affinity=1",
                      "tcp {} policy=rr affinity=60"):
            fails("EINVAL", words, ps.rule, "add " + words.format(port))
        equal(ps.rules(), [], "no rule")


@test
def rounded():
    """affinity_flows: a power of two, at least 64; the default is 65536"""
    with Pool() as pool:
        one = group_of(pool, "IPv4", 1, "rr")[0][0]
        equal(setting(one, "affinity_flows"), 65536, "default")
        for seconds in (0, 60):
            setting(one, "affinity", seconds)
            for value, want in ((1, 64), (64, 64), (65, 128), (1000, 1024),
                                (1 << 20, 1 << 20), (70000, 131072)):
                setting(one, "affinity_flows", value)
                equal(setting(one, "affinity_flows"), want,
                      f"affinity {seconds}: {value}")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=300)
