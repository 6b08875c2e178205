#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""/sys/class/portsteer/rules: servers that know nothing of portsteer."""
import os
import socket
import time

from lib import net, ns, proc, ps, tap
from lib.net import INET, INET6, Pool, combinations
from lib.tap import equal, fails, ok, test

UDPLITE = 136
DEFAULT_FLAGS = {"lock=0", "migrate=1", "force=0"}

MALFORMED = [
    "\n", " ", "\n\n", "add", "add\n", "add tcp", "add tcp 80", "add 80 tcp",
    "add 80 policy=rr", "add tcp policy=rr", "add sctp 80 policy=rr",
    "add TCP 80 policy=rr", "add tcp6 80 policy=rr", "add tc 80 policy=rr",
    "add tcp 0 policy=rr", "add tcp 65536 policy=rr", "add tcp -1 policy=rr",
    "add tcp 4 43 policy=rr", "add tcp 4294967376 policy=rr",
    "add tcp 18446744073709551696 policy=rr", "add tcp http policy=rr",
    "add tcp 80x policy=rr", "add tcp 8.0 policy=rr", "add tcp 80 policy",
    "add tcp 80 policy=", "add tcp 80 policy=nonsense", "add tcp 80 policy=RR",
    "add tcp 80 policy=r", "add tcp 80 policy=rr,hash", "add tcp 80 =rr",
    "add tcp 80 rr", "add tcp 80 polic=rr", "add tcp 80 policy=rr colour=red",
    "add tcp 80 colour=red policy=rr", "add tcp 80 policy=rr extra",
    "add tcp 80 policy=rr policy=rr", "add tcp 80 policy=rr policy=hash",
    "add tcp 80 lock=1", "add tcp 80 force=1 migrate=0 lock=1",
    *(f"add tcp 80 policy=rr {flag}{value}"
      for flag in ("lock", "migrate", "force")
      for value in ("", "=", "=2", "=-1", "=01", "=1x", "=yes", "==1", " =1",
                    "= 1", "=1=1")),
    *(f"add tcp 80 policy=rr {flag}={one} {flag}={two}"
      for flag in ("lock", "migrate", "force")
      for one, two in ((0, 0), (0, 1), (1, 1))),
    "add tcp 80 policy=rr Lock=1", "add tcp 80 policy=rr lock=1,force=1",
    "add tcp 80 lock=1 policy=rr lock=1", "del tcp 9 lock=1", "clear lock=1",
    *(f"add udp 80 policy=quic {word}{value}"
      for word in ("affinity", "quic_offset", "quic_length")
      for value in ("", "=", "=-1", "=+1", "=0x1", "=1.0", "=1s", "=1=1",
                    "==1", "= 1", " =1", "=1,2", "=one", f"={2**31}",
                    f"={2**32}", f"={2**32 + 1}", f"={2**64 + 1}",
                    "=" + "9" * 300)),
    *(f"add udp 80 policy=quic {word}={one} {word}={two}"
      for word in ("affinity", "quic_offset", "quic_length")
      for one, two in ((1, 1), (1, 2))),
    # no room for it in a connection ID
    *(f"add udp 80 policy=quic quic_offset={offset}"
      for offset in (19, 20, 21, 255, 256, 257)),
    *(f"add udp 80 policy=quic quic_length={length}"
      for length in (0, 9, 20, 256, 258)),
    *(f"add udp 80 quic_length={length} policy=quic quic_offset={offset}"
      for offset, length in ((19, 2), (18, 3), (13, 8), (20, 1), (0, 0))),
    # of UDP, even if they say what is so anyway
    *(f"add tcp 80 policy=quic {words}"
      for words in ("affinity=60", "affinity=0", "quic_offset=1",
                    "quic_length=2", "quic_offset=1 quic_length=2")),
    "add udp 80 affinity=60", "add udp 80 quic_offset=1 quic_length=2",
    "add udp 80 policy=quic Affinity=60", "add udp 80 policy=quic offset=1",
    "add udp 80 policy=quic quic_offset=1,quic_length=2",
    "add udp 80 policy=quic affinity_flows=64", "del udp 9 affinity=60",
    "add tcp 80 policy==rr", "add,tcp,80,policy=rr", "addtcp 80 policy=rr",
    "ad tcp 80 policy=rr", "ADD tcp 80 policy=rr", "tcp 80 policy=rr",
    "nonsense", "del", "del tcp", "del 9", "del sctp 9", "del tcp 0",
    "del tcp 65536", "del tcp -9", "del tcp 9x", "del tcp 9 extra",
    "delete tcp 9", "clear now", "clear tcp 9", "clea", "clearx",
    "add tcp 80 policy=" + "r" * 300, "add tcp 80 policy=" + "r" * 4000,
    "add tcp " + "8" * 300 + " policy=rr", "x" * 4000, "x" * 10000,
    b"add tcp 80\0 policy=rr", b"add tcp 80 policy=rr\0junk",
    b"add tcp 80 policy=rr\0\0", b"\0add tcp 80 policy=rr", b"\0", b"clear\0x",
    b"add tcp 80 policy=\xff\xfe",
]


@test
def malformed():
    """each is EINVAL and changes nothing"""
    ps.rule("add tcp 9 policy=rr")
    before = ps.rules()
    for text in MALFORMED:
        shown = text[:40]
        fails("EINVAL", f"{shown!r}, {len(text)} bytes", ps.rule, text)
        if ps.rules() != before:
            ok(False, f"{shown!r} changes nothing", ps.rules())
            ps.rule("clear")
            ps.rule("add tcp 9 policy=rr")
    ps.rule("")
    equal(ps.rules(), [("tcp", 9, "rr")], "nothing has changed")


@test
def read_back():
    """one rule a line; add, replace, del, clear"""
    equal(ps.rules(), [], "none at first")
    ps.rule("add tcp 443 policy=rr")
    ps.rule("add udp 443 policy=hash\n")
    ps.rule("add tcp 1 policy=hash\n")
    ps.rule("add udp 65535 policy=rr")
    equal(sorted(ps.rules()), [("tcp", 1, "hash"), ("tcp", 443, "rr"),
                               ("udp", 443, "hash"), ("udp", 65535, "rr")],
          "added")
    ps.rule("add tcp 443 policy=hash")
    equal([r for r in ps.rules() if r[:2] == ("tcp", 443)],
          [("tcp", 443, "hash")], "a second one for a port replaces the first")
    for text in ("del tcp 444", "del udp 1", "del tcp 65535"):
        fails("ENOENT", text, ps.rule, text)
    equal(len(ps.rules()), 4, "and deletes nothing")
    ps.rule("del tcp 443")
    fails("ENOENT", "deleting twice", ps.rule, "del tcp 443")
    equal(sorted(ps.rules()), [("tcp", 1, "hash"), ("udp", 443, "hash"),
                               ("udp", 65535, "rr")], "del takes one")
    ps.rule("clear")
    equal(ps.rules(), [], "clear takes all")
    ps.rule("clear\n")
    equal(ps.rules(), [], "also none")


@test
def many_rules():
    """as many as the file can show, then a clear error"""
    wanted = []
    for port in range(2000, 2400):
        error = tap.error_of(ps.rule, f"add tcp {port} policy=hash")
        if error:
            break
        wanted.append(("tcp", port, "hash"))
    # A sysfs file ends at a page; a rule that it can't show is refused.
    ok(error in (None, "ENOSPC", "E2BIG"), f"{len(wanted)} rules, then {error}")
    ok(len(wanted) >= 50, "room for 50 at least")
    equal(sorted(ps.rules()), wanted, "all are read back")
    ps.rule("add tcp 2000 policy=rr")
    equal(sorted(ps.rules()), [("tcp", 2000, "rr"), *wanted[1:]],
          "replacing one still works")
    ps.rule("clear")
    equal(ps.rules(), [], "and cleared")


@test
def later_binds():
    """sockets that bind after the rule"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            ps.rule(f"add {kind} {port} policy=rr")
            equal(ps.table(), {}, f"{text}: a rule alone makes no group")
            servers = pool.servers(4, kind, family, port, net.reuseport)
            equal(net.counts(net.burst(servers, (net.LOOPBACK[family], port),
                                       40), 4), [10] * 4, f"{text}: steered")
            group = ps.group(servers[0])
            equal((group["policy"], group["members"], group.picked()),
                  ("rr", 4, [10] * 4), f"{text}: seen in /proc")
            equal([ps.get(s, ps.JOIN) for s in servers], [1] * 4,
                  f"{text}: members like any")
            equal(sorted(ps.get(s, ps.ID) for s in servers), [0, 1, 2, 3],
                  f"{text}: with ids")


@test
def earlier_binds():
    """native groups that were there before, on all addresses of the port"""
    for kind in net.TYPES:
        with Pool() as pool:
            port = net.port()
            places = [(INET, "0.0.0.0", "127.0.0.9"),
                      (INET, "127.0.0.1", "127.0.0.1"),
                      (INET6, "::", None), (INET6, "::1", "::1"),
                      (INET6, "::ffff:127.0.0.2", "127.0.0.2")]
            groups = [pool.servers(2, kind, family, port, net.reuseport,
                                   addr=addr) for family, addr, _ in places]
            elsewhere = pool.servers(2, kind, INET, net.port(), net.reuseport)
            equal(ps.table(), {}, f"{kind}: strangers so far")
            ps.rule(f"add {kind} {port} policy=rr")
            equal(sorted(ps.table()), sorted(ps.name(g[0]) for g in groups),
                  f"{kind}: five groups at once")
            for servers, (_, addr, target) in zip(groups, places):
                group = ps.group(servers[0])
                equal((group["members"], group["policy"]), (2, "rr"),
                      f"{kind} {addr}: both members")
                if target:
                    equal(net.counts(net.burst(servers, (target, port), 20),
                                     2), [10, 10], f"{kind} {addr}: steered")
            ok(ps.group(elsewhere[0]) is None, f"{kind}: other ports aren't")


@test
def same_name():
    """groups that would share a name are told apart"""
    for kind in net.TYPES:
        with Pool() as pool:
            port = net.port()
            dual = pool.servers(2, kind, INET6, port, ps.member("rr"))
            only = pool.servers(2, kind, INET6, port, ps.member("hash"),
                                net.v6only)
            name = ps.name(dual[0])
            equal(sorted(ps.table()), [name, f"{name}~2"],
                  f"{kind}: dual and v6only")
            equal([ps.policy(dual[0]), ps.policy(only[0])], ["rr", "hash"],
                  f"{kind}: two groups they are")


@test
def bound_then_listening():
    """a TCP socket that was bound before the rule and listens after it"""
    for family in (INET, INET6):
        text = net.FAMILY_NAMES[family]
        with Pool() as pool:
            port = net.port()
            socks = [pool.new("tcp", family) for _ in range(3)]
            for sock in socks:
                net.reuseport(sock)
                sock.bind((net.WILDCARD[family], port))
                sock.setblocking(False)
            socks[0].listen()
            ps.rule(f"add tcp {port} policy=rr")
            for sock in socks[1:]:
                sock.listen()
            equal(net.counts(net.burst(socks, (net.LOOPBACK[family], port),
                                       30), 3), [10] * 3, f"{text}: steered")
            equal(ps.group(socks[0])["members"], 3, f"{text}: members")


@test
def not_adopted():
    """sockets without SO_REUSEPORT, other protocols, other ports"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port, later = net.port(), net.port()
            first = pool.server(kind, family, port)
            ps.rule(f"add {kind} {port} policy=rr")
            ps.rule(f"add {kind} {later} policy=rr")
            second = pool.server(kind, family, later)
            other = "udp" if kind == "tcp" else "tcp"
            pool.server(other, family, later, net.reuseport)
            pool.server(kind, family, net.port(), net.reuseport)
            equal(ps.table(), {}, f"{text}: no group")
            for sock in (first, second):
                equal(ps.get(sock, ps.JOIN), 0, f"{text}: JOIN reads 0")
                equal(net.burst([sock], (net.LOOPBACK[family],
                                         sock.getsockname()[1]), 5), [0] * 5,
                      f"{text}: it serves")
            fails("EADDRINUSE", f"{text}: and keeps its port to itself",
                  net.server, kind, family, port, net.reuseport)


@test
def udp_lite():
    """shares UDP's code, not its ports"""
    port = net.port()
    ps.rule(f"add udp {port} policy=rr")
    try:
        sock = socket.socket(INET, socket.SOCK_DGRAM, UDPLITE)
    except OSError as error:
        raise tap.Skip(error.strerror)
    with sock:
        net.reuseport(sock)
        sock.bind(("127.0.0.1", port))
        equal(ps.table(), {}, "not adopted at bind")
        ps.rule(f"add udp {port} policy=hash")
        equal(ps.table(), {}, "nor by a later rule")


@test
def letting_go():
    """del leaves those alone that joined by themselves"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            adopted = pool.servers(2, kind, family, port, net.reuseport)
            ps.rule(f"add {kind} {port} policy=rr")
            own = pool.server(kind, family, port, ps.member())
            adopted.append(pool.server(kind, family, port, net.reuseport))
            equal(ps.group(own)["members"], 4, f"{text}: four members")
            ps.rule(f"del {kind} {port}")
            equal([ps.get(s, ps.JOIN) for s in adopted], [0] * 3,
                  f"{text}: the adopted ones are strangers again")
            equal((ps.get(own, ps.JOIN), ps.group(own)["members"]), (1, 1),
                  f"{text}: the one that joined isn't")
            reached = net.burst([own, *adopted], address, 40)
            ok(None not in reached, f"{text}: all serve", reached)
            own.close()
            equal(ps.table(), {}, f"{text}: the group goes with it")

            ps.rule(f"add {kind} {port} policy=rr")
            equal(net.counts(net.burst(adopted, address, 30), 3), [10] * 3,
                  f"{text}: adopted again")
            ps.rule("clear")
            equal((ps.table(), ps.get(adopted[0], ps.JOIN)), ({}, 0),
                  f"{text}: clear lets go too")


@test
def left_for_good():
    """who leaves a rule's group stays out, whatever rules are looked at next,
    until it binds or listens again"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            other = net.port()
            ps.rule(f"add {kind} {port} policy=rr")
            servers = pool.servers(3, kind, family, port, net.reuseport)
            left = servers[0]

            def out():
                return (ps.get(left, ps.JOIN), ps.group(left)["members"])

            ps.leave(left)
            # The rule looks again for sockets, a second after it was written.
            time.sleep(2)
            equal(out(), (0, 2), f"{text}: stays out")
            ps.rule(f"add {kind} {port} policy=hash")
            equal(out(), (0, 2), f"{text}: also when the rule is replaced")
            ps.rule(f"add {kind} {other} policy=rr")
            time.sleep(2)
            equal(out(), (0, 2), f"{text}: also when another port's comes")
            if kind == "tcp":
                left.shutdown(socket.SHUT_RDWR)
                left.listen(8)
                equal(out(), (1, 3), f"{text}: listen() brings it back")
                ps.leave(left)
            ps.join(left)
            equal(out(), (1, 3), f"{text}: JOIN too")
            ps.leave(left)
            ps.rule(f"del {kind} {port}")
            ps.rule(f"add {kind} {port} policy=rr")
            equal(out(), (1, 3), f"{text}: a new rule has it")
            ps.leave(left)
            ps.rule("clear")
            ok(ps.disarmed(), f"{text}: nothing is hooked after the last rule",
               ps.hooks())


@test
def operator_wins():
    """a rule beats the application's wish"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            sock = pool.server(kind, family, port, ps.member("hash"))
            ps.rule(f"add {kind} {port} policy=rr")
            equal(ps.policy(sock), "rr", f"{text}: of a group that is there")
            ps.rule(f"add {kind} {port} policy=hash")
            equal(ps.policy(sock), "hash", f"{text}: another rule at once")
            port = net.port()
            ps.rule(f"add {kind} {port} policy=rr")
            sock = pool.server(kind, family, port, ps.member("hash"))
            equal(ps.policy(sock), "rr", f"{text}: of a group to come")


@test
def switching_under_traffic():
    """a running group changes its policy at once"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            servers = pool.servers(4, kind, family, port, net.reuseport)
            for policy in ("rr", "hash", "rr"):
                ps.rule(f"add {kind} {port} policy={policy}")
                shares = net.counts(net.burst(servers, address, 40), 4)
                ok(sum(shares) == 40 and (policy != "rr" or
                                          shares == [10] * 4),
                   f"{text}: {policy}", shares)


@test
def flags_read_back():
    """those that aren't at their default, in whatever order they came"""
    written = {
        "add tcp 80 policy=rr": "add tcp 80 policy=rr",
        "add tcp 81 policy=rr lock=1": "add tcp 81 policy=rr lock=1",
        "add tcp 82 policy=rr migrate=0": "add tcp 82 policy=rr migrate=0",
        "add tcp 83 policy=rr force=1": "add tcp 83 policy=rr force=1",
        "add udp 84 force=1 lock=1 policy=hash migrate=0":
            "add udp 84 policy=hash lock=1 migrate=0 force=1",
        "add udp 85 lock=0 migrate=1 policy=hash force=0":
            "add udp 85 policy=hash",
        "add udp 86 affinity=600 policy=rr":
            "add udp 86 policy=rr affinity=600",
        "add udp 87 affinity=0 policy=rr": "add udp 87 policy=rr affinity=0",
        f"add udp 88 policy=rr affinity={2**31 - 1}":
            f"add udp 88 policy=rr affinity={2**31 - 1}",
        # both or neither: one alone leaves the other at its default
        "add udp 89 policy=quic quic_offset=0":
            "add udp 89 policy=quic quic_offset=0 quic_length=2",
        "add udp 90 quic_length=8 policy=quic":
            "add udp 90 policy=quic quic_offset=1 quic_length=8",
        "add udp 91 policy=quic quic_length=1 quic_offset=19":
            "add udp 91 policy=quic quic_offset=19 quic_length=1",
        "add udp 92 quic_offset=12 affinity=007 quic_length=8 policy=rr lock=1":
            "add udp 92 policy=rr lock=1 affinity=7 quic_offset=12 "
            "quic_length=8",
    }
    for text in written:
        ps.rule(text)
    # What is read back can be written again; more than that isn't promised.
    for _ in range(2):
        lines = ps.rule_lines()
        equal([set(line.split()) - DEFAULT_FLAGS for line in sorted(lines)],
              [set(line.split()) for line in sorted(written.values())],
              "one line each")
        ps.rule("clear")
        for line in lines:
            ps.rule(line)
    ps.rule("add tcp 81 policy=rr")
    ok(not [line for line in ps.rule_lines()
            if " 81 " in line and "lock=1" in line],
       "a second one for a port takes the lock back", ps.rule_lines())
    ps.rule("add udp 92 policy=rr")
    equal([set(line.split()) - DEFAULT_FLAGS for line in ps.rule_lines()
           if " 92 " in line], [{"add", "udp", "92", "policy=rr"}],
          "and all other words")


def settings(sock):
    """What a rule's words for UDP say."""
    return tuple(int(ps.sysfs_read(f"{ps.sysfs_dir(sock)}/{name}"))
                 for name in ("affinity", "quic_offset", "quic_length"))


@test
def words_for_udp():
    """affinity= and the place of ids: set, replaced, and gone with the rule"""
    unset = (0, 1, 2)
    # each follows the one before it
    rules = (("affinity=60", (60, 1, 2)),
             ("quic_offset=3 quic_length=4", (0, 3, 4)),
             ("quic_length=1", (0, 1, 1)),
             ("affinity=5 quic_offset=19 quic_length=1", (5, 19, 1)),
             ("affinity=0 quic_offset=0", (0, 0, 2)),
             ("affinity=9 lock=1", (9, 1, 2)), ("", unset))
    for family in net.FAMILIES:
        text = net.FAMILY_NAMES[family]
        for policy in ("quic", "rr"):
            with Pool() as pool:
                port, later = net.port(), net.port()
                sock = pool.server("udp", family, port, ps.member())
                equal(settings(sock), unset, f"{text} {policy}: at first")
                for words, want in rules:
                    what = f"{text} {policy} {words or 'no words'}"
                    ps.rule(f"add udp {port} policy={policy} {words}")
                    equal((ps.policy(sock), settings(sock)), (policy, want),
                          f"{what}: a group that is there")
                    ps.rule(f"add udp {later} policy={policy} {words}")
                    with net.server("udp", family, later,
                                    net.reuseport) as one:
                        equal((ps.policy(one), settings(one)), (policy, want),
                              f"{what}: one to come")
                for words, want in rules:
                    ps.rule(f"add udp {port} policy={policy} {words}")
                    ps.rule(f"del udp {port}" if want[0] else "clear")
                    equal(settings(sock), unset,
                          f"{text} {policy} {words or 'no words'}: gone")


@test
def words_left_out():
    """a rule that says nothing of them leaves alone what an operator wrote"""
    for family in net.FAMILIES:
        text = net.FAMILY_NAMES[family]
        with Pool() as pool:
            port = net.port()
            sock = pool.server("udp", family, port, ps.member())
            for name, value in (("affinity", 7), ("quic_offset", 8),
                                ("quic_length", 3)):
                ps.sysfs_write(f"{ps.sysfs_dir(sock)}/{name}", value)
            for command in ("add udp {} policy=rr", "add udp {} policy=quic",
                            "del udp {}"):
                ps.rule(command.format(port))
                equal(settings(sock), (7, 8, 3), f"{text}: {command}")
            ps.rule(f"add udp {port} policy=rr affinity=5")
            equal(settings(sock), (5, 8, 3), f"{text}: but affinity=5")
            ps.rule(f"add udp {port} policy=rr quic_length=4")
            equal(settings(sock), (0, 1, 4), f"{text}: then quic_length=4")


@test
def every_policy():
    """a rule names any of them"""
    for number, policy in enumerate(ps.POLICIES):
        ps.rule(f"add tcp {3000 + number} policy={policy}")
    equal([name for _, _, name in sorted(ps.rules())], list(ps.POLICIES),
          "all are read back")


GROUP_OPTIONS = (("WORKING_GENERATION", 3), ("AFFINITY", 4))
MEMBER_OPTIONS = (("WEIGHT", 2), ("CPU", 0), ("STATE", ps.STANDBY),
                  ("GENERATION", 5), ("RX_QUEUE", 6), ("ID", 77))


def check_locked(text, sock, policy):
    """The group's options are refused, its members' aren't."""
    fails("EPERM", f"{text}: POLICY", ps.set_policy, sock,
          "hash" if policy == "rr" else "rr")
    for name, value in GROUP_OPTIONS:
        fails("EPERM", f"{text}: {name}", ps.set, sock, getattr(ps, name),
              value)
    equal((ps.policy(sock), ps.get(sock, ps.WORKING_GENERATION),
           ps.get(sock, ps.AFFINITY)), (policy, -1, 0),
          f"{text}: nothing changed")
    fails("EINVAL", f"{text}: an unknown policy", ps.set_policy, sock, "none")
    id_before = ps.get(sock, ps.ID)
    for name, value in MEMBER_OPTIONS:
        ps.set(sock, getattr(ps, name), value)
        equal(ps.get(sock, getattr(ps, name)), value,
              f"{text}: {name} is the member's own")
    ps.set(sock, ps.STATE, ps.ACTIVE)
    ps.set(sock, ps.ID, id_before)


def check_unlocked(text, sock):
    ps.set_policy(sock, "random")
    for name, value in GROUP_OPTIONS:
        ps.set(sock, getattr(ps, name), value)
    equal((ps.policy(sock), ps.get(sock, ps.WORKING_GENERATION),
           ps.get(sock, ps.AFFINITY)), ("random", 3, 4),
          f"{text}: programs decide")
    ps.set(sock, ps.WORKING_GENERATION, -1)
    ps.set(sock, ps.AFFINITY, 0)


@test
def lock():
    """lock=1: POLICY, WORKING_GENERATION and AFFINITY are the operator's"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            before = pool.server(kind, family, port, ps.member("hash"))
            ps.rule(f"add {kind} {port} policy=rr lock=1")
            later = pool.server(kind, family, port, ps.member("hash"))
            for what, sock in (("before", before), ("after", later)):
                check_locked(f"{text}, there {what} the rule", sock, "rr")
            equal(ps.group(before)["locked"], 1, f"{text}: /proc shows it")
            ps.rule(f"add {kind} {port} policy=least lock=1")
            equal(ps.policy(before), "least", f"{text}: the operator changes")
            fails("EPERM", f"{text}: still locked", ps.set_policy, later, "rr")
            ps.rule(f"add {kind} {port} policy=rr")
            equal((ps.policy(before), ps.group(before)["locked"]), ("rr", 0),
                  f"{text}: a rule without lock unlocks")
            check_unlocked(f"{text}, no lock", before)

            for how in (f"del {kind} {port}", "clear"):
                ps.rule(f"add {kind} {port} policy=rr lock=1")
                fails("EPERM", f"{text}: locked again",
                      ps.set_policy, before, "hash")
                ps.rule(how)
                equal(ps.group(before)["locked"], 0, f"{text}: {how}")
                check_unlocked(f"{text}, after {how}", before)

            port = net.port()
            ps.rule(f"add {kind} {port} policy=rr lock=1")
            founder = pool.server(kind, family, port, ps.member("hash"))
            adopted = pool.server(kind, family, port, net.reuseport)
            for what, sock in (("founder", founder), ("adopted", adopted)):
                check_locked(f"{text}, {what}", sock, "rr")


@test
def lock_of_one_port():
    """other ports, protocols and addresses"""
    with Pool() as pool:
        port = net.port()
        ps.rule(f"add tcp {port} policy=rr lock=1")
        places = [(INET, "127.0.0.1"), (INET, "0.0.0.0"), (INET6, "::")]
        for family, addr in places:
            sock = pool.server("tcp", family, port, ps.member(), addr=addr)
            check_locked(f"{addr}", sock, "rr")
        for kind, number in (("udp", port), ("tcp", net.port())):
            sock = pool.server(kind, INET, number, ps.member("rr"))
            check_unlocked(f"{kind} {number - port}", sock)


@test
def migrate():
    """migrate=0 is seen in /proc and goes with the rule"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            sock = pool.server(kind, family, port, ps.member("rr"))
            seen = [ps.group(sock)["migrate"]]
            for text_ in (f"add {kind} {port} policy=rr migrate=0",
                          f"add {kind} {port} policy=rr",
                          f"add {kind} {port} policy=rr migrate=0",
                          f"del {kind} {port}"):
                ps.rule(text_)
                seen.append(ps.group(sock)["migrate"])
            equal(seen, [1, 0, 1, 0, 1], f"{text}: a group that is there")
            port = net.port()
            ps.rule(f"add {kind} {port} policy=rr migrate=0")
            sock = pool.server(kind, family, port, net.reuseport)
            equal(ps.group(sock)["migrate"], 0, f"{text}: one to come")


def shares_port(sock):
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)


@test
def force():
    """force=1: several copies of a program that doesn't share its port"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            ps.rule(f"add {kind} {port} policy=rr force=1")
            copies = pool.servers(3, kind, family, port)
            copies.append(pool.server(kind, family, port, net.reuseport))
            copies.append(pool.server(kind, family, port, ps.member(id=9)))
            equal(net.counts(net.burst(copies, address, 50), 5), [10] * 5,
                  f"{text}: five share it in turn")
            equal([ps.get(s, ps.JOIN) for s in copies], [1] * 5,
                  f"{text}: as members")
            equal(sorted(ps.group(copies[0]).ids()), [0, 1, 2, 3, 9],
                  f"{text}: with ids")
            elsewhere = net.port()
            pool.server(kind, family, elsewhere)
            fails("EADDRINUSE", f"{text}: other ports are as ever",
                  net.server, kind, family, elsewhere)

            ps.rule(f"del {kind} {port}")
            equal([ps.get(s, ps.JOIN) for s in copies], [0] * 4 + [1],
                  f"{text}: del lets go of them")
            shares = net.deal(copies, address, 50)
            equal(sum(shares), 50, f"{text}: who go on serving")
            fails("EADDRINUSE", f"{text}: without the rule no further copy",
                  net.server, kind, family, port)
            ps.rule(f"add {kind} {port} policy=rr")
            fails("EADDRINUSE", f"{text}: nor by a rule without force",
                  net.server, kind, family, port)


@test
def force_those_already_bound():
    """a plain server that was there before makes room for copies"""
    for text, kind, family in combinations():
        for addr in (net.WILDCARD[family], net.LOOPBACK[family]):
            with Pool() as pool:
                port = net.port()
                copies = [pool.server(kind, family, port, addr=addr)]
                ps.rule(f"add {kind} {port} policy=rr")
                fails("EADDRINUSE", f"{text} {addr}: not yet",
                      net.server, kind, family, port, addr=addr)
                ps.rule(f"add {kind} {port} policy=rr force=1")
                copies += pool.servers(2, kind, family, port, addr=addr)
                equal(ps.group(copies[0]).ids(), [0, 1, 2],
                      f"{text} {addr}: three members")
                equal(net.counts(net.burst(
                    copies, (net.LOOPBACK[family], port), 30), 3), [10] * 3,
                    f"{text} {addr}: share it in turn")


@test
def force_bound_then_listening():
    """plain TCP sockets that were bound before the rule and listen after"""
    for family in net.FAMILIES:
        text = net.FAMILY_NAMES[family]
        with Pool() as pool:
            port = net.port()
            first = pool.new("tcp", family)
            first.bind((net.WILDCARD[family], port))
            first.setblocking(False)
            ps.rule(f"add tcp {port} policy=rr force=1")
            first.listen(1024)
            copies = [first, pool.server("tcp", family, port)]
            equal(net.counts(net.burst(
                copies, (net.LOOPBACK[family], port), 20), 2), [10, 10],
                f"{text}: two share it in turn")


@test
def force_and_other_users():
    """the kernel's own rule about uids isn't loosened"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            ps.rule(f"add {kind} {port} policy=rr force=1")
            ours = pool.server(kind, family, port)

            def attempt(*prepare):
                return tap.error_of(lambda: net.server(
                    kind, family, port, *prepare).close())

            for what, prepare in (("plain", ()), ("JOIN", (ps.member(),)),
                                  ("SO_REUSEPORT", (net.reuseport,))):
                equal(proc.as_nobody(attempt, *prepare), "EADDRINUSE",
                      f"{text}: {what} socket of another uid")
            equal(ps.group(ours)["members"], 1, f"{text}: one member")

            def refused():
                sock = net.new(kind, family)
                error = tap.error_of(sock.bind, (net.WILDCARD[family], port))
                return error, shares_port(sock)

            equal(proc.as_nobody(refused), ("EADDRINUSE", 0),
                  f"{text}: SO_REUSEPORT is as it was")


@test
def force_and_clients():
    """a connection from the port is none of its servers"""
    for family in net.FAMILIES:
        text, host = net.FAMILY_NAMES[family], net.LOOPBACK[family]
        with Pool() as pool:
            port, elsewhere = net.port(), net.port()
            server = pool.server("tcp", family, elsewhere)
            client = pool.add(net.client("tcp", (host, elsewhere),
                                         (host, port)))
            ps.rule(f"add tcp {port} policy=rr force=1")
            equal((ps.table(), ps.get(client, ps.JOIN), shares_port(client)),
                  ({}, 0, 0), f"{text}: left alone")
            server.close()


@test
def unprivileged():
    """the file can be written by nobody else than an administrator"""
    ps.rule("add tcp 9 policy=rr")
    for text in ("add tcp 80 policy=rr", "del tcp 9", "clear", "nonsense"):
        equal(proc.as_nobody(tap.error_of, ps.rule, text), "EPERM",
              f"{text!r} by another uid")

    def from_inside():
        # /sys is still that of the initial namespace here
        ns.unshare(ns.CLONE_NEWUSER | ns.CLONE_NEWNET)
        return tap.error_of(ps.rule, "clear")

    equal(proc.call(from_inside), "EPERM", "by root of a namespace below")
    equal(ps.rules(), [("tcp", 9, "rr")], "nothing has changed")


@test
def namespace_owner():
    """nobody, as root of its own namespaces, has rules of its own"""
    port = net.port()
    ps.rule(f"add udp {port} policy=hash")

    def inside(link):
        proc.become_nobody()
        ns.own_everything()
        link.send(ps.rules())
        ps.rule(f"add tcp {port} policy=rr")
        link.send(ps.rules())
        with Pool() as pool:
            servers = pool.servers(4, "tcp", INET, port, net.reuseport)
            link.send(net.counts(net.burst(servers, ("127.0.0.1", port), 40),
                                 4))
            link.send(list(ps.table()))
            link.recv()
            fails_with = tap.error_of(ps.rule, "nonsense")
            ps.rule("clear")
            link.send((fails_with, ps.rules()))

    with Pool() as pool, proc.Child(inside) as child:
        outside = pool.servers(4, "tcp", INET, port, net.reuseport)
        equal(child.get(), [], "sees none of ours")
        equal(child.get(), [("tcp", port, "rr")], "writes its own")
        equal(child.get(), [10] * 4, "which steers its servers")
        equal(child.get(), [f"tcp:0.0.0.0:{port}"], "in its table")
        equal(ps.rules(), [("udp", port, "hash")], "we don't see its rule")
        ok(ps.group(outside[0]) is None, "nor are our servers adopted")
        equal(child.ask("on"), ("EINVAL", []), "it clears its own")
        equal(ps.rules(), [("udp", port, "hash")], "ours stays")


@test
def dead_namespace():
    """rules and groups go with their namespace"""
    port = net.port()
    space = ns.Namespace()
    with space:
        ps.rule(f"add tcp {port} policy=rr")
        ps.rule(f"add udp {port} policy=rr")
    space.close()
    equal(ps.rules(), [], "no rule of it here")
    ok(ps.disarmed(), "the hooks are disarmed when it is gone", ps.hooks())


@test
def open_file():
    """the file read in pieces, and written through one descriptor"""
    fd = os.open(ps.rules_path(), os.O_RDWR)
    try:
        for text in (b"add tcp 90 policy=rr", b"add tcp 91 policy=rr",
                     b"del tcp 90"):
            os.pwrite(fd, text, 0)
        equal(ps.rules(), [("tcp", 91, "rr")], "three writes")
    finally:
        os.close(fd)


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module)
