#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The private socket options: values, errors, and that a failed call changes
nothing. Contract: DESIGN.md 2.1."""
import ctypes
import os
import socket
import struct

from lib import kernel, net, ps, tap
from lib.net import INET, INET6, Pool, combinations
from lib.tap import equal, fails, ok, test

LAST_CPU = kernel.cpu_list("possible")[-1]

# Numbers: what they are when nobody has said so, values that they take and
# that they don't.
INTS = {
    "WEIGHT": (1, (65535, 2, 1), (0, -1, 65536, 2**31 - 1, -2**31)),
    "CPU": (-1, (0, LAST_CPU, -1), (-2, LAST_CPU + 1, 2**31 - 1, -2**31)),
    "STATE": (0, (1, 2, 0), (-1, 3, 256, 2**31 - 1, -2**31)),
    "GENERATION": (0, (1, 2**31 - 1, 0), (-1, -2**31)),
    "WORKING_GENERATION": (-1, (0, 7, 2**31 - 1, -1), (-2, -2**31)),
    "RX_QUEUE": (-1, (0, 65535, -1), (-2, 65536, 2**31 - 1, -2**31)),
    "AFFINITY": (0, (1, 120, 2**31 - 1, 0), (-1, -2**31)),
}
OF_THE_GROUP = ("WORKING_GENERATION", "AFFINITY")
# One of each that is no default.
CHOSEN = {"WEIGHT": 3, "CPU": 0, "STATE": ps.STANDBY, "GENERATION": 4,
          "WORKING_GENERATION": 5, "RX_QUEUE": 6, "AFFINITY": 7}
DEFAULTS = {name: default for name, (default, _, _) in INTS.items()}
NAMES = ("JOIN", "POLICY", "ID", "KEY", *INTS)	# what can be set

UNMAPPED = 8		# no address of a process


def choose(sock, values=None):
    """Set every number."""
    for name, value in (CHOSEN if values is None else values).items():
        ps.set(sock, getattr(ps, name), value)


def ints(sock):
    """Of each number the value, or the errno that tells why there is none."""
    found = {}
    for name in INTS:
        number = getattr(ps, name)
        error = tap.error_of(ps.get, sock, number)
        found[name] = error or ps.get(sock, number)
    return found


def every_wish(sock):
    return (ps.get(sock, ps.JOIN), ps.policy(sock), ps.get(sock, ps.ID),
            ints(sock))


def wishful(pool, kind, family):
    """An unbound socket that has every wish there is."""
    sock = pool.new(kind, family)
    ps.member("rr", 5)(sock)
    choose(sock)
    return sock


def fulfilled(pool, kind, family):
    """A member that has been given all of that after bind."""
    sock = pool.server(kind, family, net.port(), ps.member("rr", 5))
    choose(sock)
    return sock


EVERY = (1, "rr", 5, CHOSEN)	# every_wish() of the two


@test
def version():
    """VERSION is 1 on any socket and can't be set"""
    for text, kind, family in combinations():
        with net.new(kind, family) as sock:
            equal(ps.get(sock, ps.VERSION), 1, f"{text}: VERSION")
            for option in (ps.VERSION, ps.INFO):
                error = tap.error_of(ps.set, sock, option, 1)
                ok(error not in (None, "ENOPROTOOPT"),
                   f"{text}: option {option} can't be set", f"got {error}")


@test
def strangers():
    """a socket with neither a wish nor a membership"""
    for text, kind, family in combinations():
        with Pool() as pool:
            strangers = {
                "unbound": pool.new(kind, family),
                "plain": pool.server(kind, family, net.port()),
                "SO_REUSEPORT": pool.server(kind, family, net.port(),
                                            net.reuseport),
            }
            for what, sock in strangers.items():
                what = f"{text}, {what}"
                equal(ps.get(sock, ps.JOIN), 0, f"{what}: JOIN reads 0")
                for option in ("POLICY", "ID", "INFO", *INTS):
                    fails("ENOENT", f"{what}: get {option}", sock.getsockopt,
                          ps.level(sock), getattr(ps, option), 16)
                fails("EINVAL", f"{what}: get KEY", sock.getsockopt,
                      ps.level(sock), ps.KEY, 32)
            equal(ps.table(), {}, f"{text}: strangers make no group")


@test
def wishes():
    """before bind, options read back what was wished"""
    for text, kind, family in combinations():
        with net.new(kind, family) as sock:
            ps.set(sock, ps.ID, 7)
            equal(ps.get(sock, ps.ID), 7, f"{text}: ID")
            ps.set_policy(sock, "rr")
            equal(ps.policy(sock), "rr", f"{text}: POLICY")
            equal(ps.get(sock, ps.JOIN), 0, f"{text}: JOIN wasn't wished")
            ps.set(sock, ps.JOIN, 1)
            equal(every_wish(sock), (1, "rr", 7, dict.fromkeys(INTS,
                                                               "ENOENT")),
                  f"{text}: JOIN, and no other wish")
            ps.set(sock, ps.JOIN, 0)
            equal(ps.get(sock, ps.JOIN), 0, f"{text}: JOIN is taken back")
            equal(ps.table(), {}, f"{text}: a wish makes no group")


@test
def sizes():
    """an int may come in a longer buffer, a shorter one is EINVAL"""
    for text, kind, family in combinations():
        with net.new(kind, family) as sock:
            ps.member("rr", 5)(sock)
            choose(sock)
            for option in ("JOIN", "ID", *INTS):
                number = getattr(ps, option)
                for size in range(4):
                    fails("EINVAL", f"{text}: set {option}, {size} bytes",
                          ps.set, sock, number, struct.pack("i", 0)[:size])
            for option, size in (("POLICY", 0), ("KEY", 0), ("KEY", 33),
                                 ("KEY", 4096)):
                fails("EINVAL", f"{text}: set {option}, {size} bytes",
                      ps.set, sock, getattr(ps, option), b"k" * size)
            equal(every_wish(sock), EVERY, f"{text}: nothing changed")

            for size in (1, 4, 31, 32):
                equal(tap.error_of(ps.set, sock, ps.KEY, b"k" * size), None,
                      f"{text}: set KEY, {size} bytes")
            for option, value in (("JOIN", 0), ("ID", 6), ("JOIN", 1),
                                  *CHOSEN.items()):
                for size in (4, 5, 8, 64, 4096):
                    number = getattr(ps, option)
                    buffer = struct.pack("i", value).ljust(size, b"\xff")
                    error = tap.error_of(ps.set, sock, number, buffer)
                    equal((error, ps.get(sock, number)), (None, value),
                          f"{text}: set {option}, {size} bytes")

            buffer = ctypes.create_string_buffer(64)
            for option in ("JOIN", "ID", "VERSION", *INTS):
                number = getattr(ps, option)
                for size in (-1, 0, 1, 2, 3):
                    fails("EINVAL", f"{text}: get {option}, {size} bytes",
                          ps.get_at, sock, number, ctypes.addressof(buffer),
                          size)
                equal(ps.get_at(sock, number, ctypes.addressof(buffer), 64), 4,
                      f"{text}: get {option}, 64 bytes")


@test
def bad_values():
    """EINVAL, as a wish and as a member, and nothing changes"""
    policies = [b"none", b"RR", b"rr ", b"rr\n", b" rr", b"r", b"rrr", b"\0",
                b"\0rr", b"x" * 15, b"x" * 16, b"hash" + b"x" * 12,
                b"x" * 17, b"x" * 4096, b"\xff\xfe"]
    for text, kind, family in combinations():
        with Pool() as pool:
            for what, make in (("wish", wishful), ("member", fulfilled)):
                sock = make(pool, kind, family)
                what = f"{text}, {what}"
                for name, (_, _, bad) in INTS.items():
                    for value in bad:
                        fails("EINVAL", f"{what}: {name} {value}",
                              ps.set, sock, getattr(ps, name), value)
                for value in (-1, 2, 256, 2**31 - 1, -2**31):
                    fails("EINVAL", f"{what}: JOIN {value}",
                          ps.set, sock, ps.JOIN, value)
                for value in (-1, 65536, 2**31 - 1, -2**31):
                    fails("EINVAL", f"{what}: ID {value}",
                          ps.set, sock, ps.ID, value)
                for value in policies:
                    fails("EINVAL", f"{what}: POLICY {value[:20]}, "
                          f"{len(value)} bytes", ps.set, sock, ps.POLICY,
                          value)
                equal(every_wish(sock), EVERY, f"{what}: nothing changed")


@test
def good_values():
    """the ends of the ranges"""
    for text, kind, family in combinations():
        with net.new(kind, family) as sock:
            for value in (0, 1, 65535):
                ps.set(sock, ps.ID, value)
                equal(ps.get(sock, ps.ID), value, f"{text}: ID {value}")
            for value in (b"rr", b"hash", b"rr\0", b"hash\0"):
                ps.set(sock, ps.POLICY, value)
                equal(ps.policy(sock), value.rstrip(b"\0").decode(),
                      f"{text}: POLICY {value}")
            for name in ps.POLICIES:
                ps.set_policy(sock, name)
                equal(ps.policy(sock), name, f"{text}: POLICY {name}")


@test
def bad_pointers():
    """EFAULT, and nothing changes"""
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = fulfilled(pool, kind, family)
            wish = wishful(pool, kind, family)
            buffer = ctypes.create_string_buffer(128)
            for option in NAMES:
                for pointer in (0, UNMAPPED, 2**64 - 4096):
                    for what, one in (("member", sock), ("wish", wish)):
                        fails("EFAULT", f"{text}, {what}: set {option} from "
                              f"{pointer:#x}", ps.set_at, one,
                              getattr(ps, option), pointer, 4)
            for option in ("JOIN", "POLICY", "ID", "INFO", "VERSION", *INTS):
                number = getattr(ps, option)
                for pointer in (UNMAPPED, 2**64 - 4096):
                    fails("EFAULT", f"{text}: get {option} to {pointer:#x}",
                          ps.get_at, sock, number, pointer, 16)
                result = net.ns.libc.getsockopt(
                    sock.fileno(), ps.level(sock), number, buffer,
                    ctypes.c_void_p(UNMAPPED))
                equal((result, ctypes.get_errno()), (-1, 14),
                      f"{text}: get {option}, length at {UNMAPPED}: EFAULT")
            equal(every_wish(sock), EVERY, f"{text}: nothing changed")
            equal(every_wish(wish), EVERY, f"{text}: no wish changed")


@test
def join_after_bind():
    """only for a socket that was bound with SO_REUSEPORT"""
    for text, kind, family in combinations():
        with Pool() as pool:
            plain = pool.server(kind, family, net.port())
            fails("EINVAL", f"{text}: JOIN of a plain socket", ps.join, plain)
            equal(ps.get(plain, ps.JOIN), 0, f"{text}: JOIN still reads 0")
            equal(ps.table(), {}, f"{text}: and there is no group")

            shared = pool.server(kind, family, net.port(), net.reuseport)
            ps.join(shared)
            equal((ps.get(shared, ps.JOIN), ps.get(shared, ps.ID)), (1, 0),
                  f"{text}: JOIN of an SO_REUSEPORT socket")
            equal(ps.group(shared) and ps.group(shared)["members"], 1,
                  f"{text}: its group has one member")
            ps.join(shared)
            equal(ps.info(shared).members, 1, f"{text}: JOIN twice is once")

            # a wish made before bind waits for the JOIN
            late = pool.server(kind, family, net.port(), net.reuseport,
                               ps.wish_id(9))
            equal(ps.get(late, ps.JOIN), 0, f"{text}: a wished id isn't JOIN")
            ps.join(late)
            equal(ps.get(late, ps.ID), 9, f"{text}: but JOIN grants it")


@test
def tcp_states():
    """bound but not listening, connected, accepted"""
    for family in net.FAMILIES:
        text = f"tcp {net.FAMILY_NAMES[family]}"
        with Pool() as pool:
            port = net.port()
            bound = pool.new("tcp", family)
            net.reuseport(bound)
            bound.bind((net.WILDCARD[family], port))
            ps.join(bound)
            info = ps.info(bound)
            equal((info.members, info.selectable), (1, 0),
                  f"{text}: a member that doesn't listen isn't selectable")
            bound.listen()
            info = ps.info(bound)
            equal((info.members, info.selectable), (1, 1),
                  f"{text}: and is once it listens")

            client = pool.add(net.client("tcp", (net.LOOPBACK[family], port)))
            served = pool.add(bound.accept()[0])
            for what, sock in (("connected", client), ("accepted", served)):
                what = f"{text}, {what}"
                fails("EINVAL", f"{what}: JOIN", ps.join, sock)
                fails("EINVAL", f"{what}: ID", ps.set, sock, ps.ID, 3)
                fails("EINVAL", f"{what}: POLICY", ps.set_policy, sock, "rr")
                equal(ps.get(sock, ps.JOIN), 0, f"{what}: JOIN reads 0")
                fails("ENOENT", f"{what}: get ID", ps.get, sock, ps.ID)
            client.close()
            served.close()
            equal(ps.info(bound).members, 1,
                  f"{text}: their end doesn't touch the listener")

            # a wish dies with a socket that becomes a client
            wish = pool.new("tcp", family)
            ps.member("rr", 4)(wish)
            wish.connect((net.LOOPBACK[family], port))
            bound.accept()[0].close()
            ok(list(ps.table()) == [ps.name(bound)],
               f"{text}: connect() with a wish makes no group", ps.table())


@test
def ids():
    """unique, lowest free by default, never renumbered, used again"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()

            def add(*prepare):
                return pool.server(kind, family, port, *prepare)

            members = [add(ps.member()) for _ in range(3)]
            seven = add(ps.member(id=7))
            late = add(ps.member(id=7))
            members += [seven, late]
            equal([ps.get(s, ps.ID) for s in members], [0, 1, 2, 7, 3],
                  f"{text}: lowest free, also where a wished one is taken")
            equal(sorted(ps.group(late).ids()), [0, 1, 2, 3, 7],
                  f"{text}: /proc says the same")

            fails("EEXIST", f"{text}: a taken id", ps.set, late, ps.ID, 7)
            equal(ps.get(late, ps.ID), 3, f"{text}: the id stays")
            ps.set(late, ps.ID, 3)
            ps.set(late, ps.ID, 65535)
            equal((ps.get(late, ps.ID), ps.info(late).id), (65535, 65535),
                  f"{text}: a free id")
            equal(sorted(ps.group(late).ids()), [0, 1, 2, 7, 65535],
                  f"{text}: and /proc shows it")

            members[1].close()
            rest = [members[0], *members[2:]]
            equal([ps.get(s, ps.ID) for s in rest], [0, 2, 7, 65535],
                  f"{text}: a leave renumbers nobody")
            equal([ps.get(add(ps.member()), ps.ID) for _ in range(2)], [1, 3],
                  f"{text}: a free id is used again")
            ps.set(rest[0], ps.ID, 100)
            equal(ps.get(add(ps.member()), ps.ID), 0,
                  f"{text}: also one that its owner changed")


@test
def info():
    """struct portsteer_info, and buffers of other sizes"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            sock = pool.server(kind, family, port, ps.member("rr", 3))
            pool.server(kind, family, port, ps.member())
            equal(ps.info(sock), ps.Info(
                size=ps.INFO_SIZE, id=3, state=0, weight=1, cpu=-1,
                rx_queue=-1, generation=0, working_generation=-1, members=2,
                selectable=2, policy="rr", picked=0, migrated_in=0,
                migrated_out=0, fallbacks=0), f"{text}: a fresh member")

            whole = sock.getsockopt(ps.level(sock), ps.INFO, ps.INFO_SIZE)
            for size in (0, 1, 4, 7, 40, ps.INFO_SIZE - 1, ps.INFO_SIZE,
                         ps.INFO_SIZE + 1, 1024):
                filled = min(size, ps.INFO_SIZE)
                buffer = ctypes.create_string_buffer(b"\xa5" * 1024, 1024)
                length = ps.get_at(sock, ps.INFO, ctypes.addressof(buffer),
                                   size)
                equal((length, buffer.raw),
                      (filled, whole[:filled].ljust(1024, b"\xa5")),
                      f"{text}: {size} bytes")
            fails("EINVAL", f"{text}: -1 bytes", ps.get_at, sock, ps.INFO,
                  ctypes.addressof(buffer), -1)


@test
def numbers_before_bind():
    """kept, readable, and applied when the socket joins"""
    for text, kind, family in combinations():
        with Pool() as pool:
            for name, (default, good, _) in INTS.items():
                sock = pool.new(kind, family)
                number = getattr(ps, name)
                for value in good:
                    ps.set(sock, number, value)
                    equal(ps.get(sock, number), value,
                          f"{text}: {name} {value} is wished")
                others = {other: value for other, value in ints(sock).items()
                          if other != name}
                equal((set(others.values()), ps.get(sock, ps.JOIN)),
                      ({"ENOENT"}, 0), f"{text}: {name} and nothing else")
                ps.set(sock, number, CHOSEN[name])
                ps.join(sock)
                sock.bind((net.WILDCARD[family], net.port()))
                equal(ints(sock), {**DEFAULTS, name: CHOSEN[name]},
                      f"{text}: {name} is granted, the others are defaults")
            before = ps.table()
            granted = wishful(pool, kind, family)
            equal(ps.table(), before, f"{text}: wishes make no group")
            granted.bind((net.WILDCARD[family], net.port()))
            equal(every_wish(granted), EVERY, f"{text}: all at once")


@test
def numbers_before_join():
    """wishes of a bound SO_REUSEPORT socket wait for the JOIN"""
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = pool.server(kind, family, net.port(), net.reuseport,
                               lambda s: ps.set(s, ps.WEIGHT, 9))
            equal((ps.get(sock, ps.JOIN), ps.get(sock, ps.WEIGHT)), (0, 9),
                  f"{text}: a wish is no JOIN")
            equal(ps.table(), {}, f"{text}: and makes no group")
            ps.join(sock)
            equal((ps.info(sock).weight, ints(sock)),
                  (9, {**DEFAULTS, "WEIGHT": 9}), f"{text}: JOIN grants it")
            plain = pool.server(kind, family, net.port())
            for name, value in CHOSEN.items():
                fails("EINVAL", f"{text}: {name} of a plain server",
                      ps.set, plain, getattr(ps, name), value)
                fails("ENOENT", f"{text}: and none is kept",
                      ps.get, plain, getattr(ps, name))


@test
def numbers_before_listen():
    """a bound TCP member that doesn't listen yet"""
    for family in net.FAMILIES:
        text = f"tcp {net.FAMILY_NAMES[family]}"
        with Pool() as pool:
            sock = pool.new("tcp", family)
            ps.member("rr", 5)(sock)
            sock.bind((net.WILDCARD[family], net.port()))
            equal(ints(sock), DEFAULTS, f"{text}: defaults")
            choose(sock)
            equal(every_wish(sock), EVERY, f"{text}: set")
            sock.listen()
            equal(every_wish(sock), EVERY, f"{text}: listen() keeps them")
            equal(ps.info(sock).selectable, 1, f"{text}: it's selectable")


@test
def numbers_of_members():
    """set at any time, seen in INFO and /proc"""
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = pool.server(kind, family, net.port(), ps.member("rr", 5))
            equal(ints(sock), DEFAULTS, f"{text}: defaults")
            for name, (_, good, _) in INTS.items():
                for value in good:
                    ps.set(sock, getattr(ps, name), value)
                    equal(ints(sock), {**DEFAULTS, name: value},
                          f"{text}: {name} {value}")
            choose(sock)
            info = ps.info(sock)
            equal({name: getattr(info, name.lower()) for name in INTS
                   if name != "AFFINITY"},
                  {name: value for name, value in CHOSEN.items()
                   if name != "AFFINITY"}, f"{text}: INFO")
            group = ps.group(sock)
            equal((group["working_generation"], group["affinity"]), (5, 7),
                  f"{text}: /proc, the group")
            member = group.members[0]
            equal([member[name] for name in ("state", "weight", "cpu",
                                             "rx_queue", "generation")],
                  ["standby", 3, 0, 6, 4], f"{text}: /proc, the member")
            ps.set(sock, ps.STATE, ps.DRAINING)
            equal(ps.group(sock).members[0]["state"], "draining",
                  f"{text}: /proc, draining")


@test
def numbers_of_the_group():
    """the founder's wish counts, a joiner's is ignored, any member changes"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            founder = pool.server(kind, family, port, ps.member(
                "rr", working_generation=3, affinity=4))
            joiner = pool.server(kind, family, port, ps.member(
                working_generation=8, affinity=9, weight=2))
            for what, sock in (("founder", founder), ("joiner", joiner)):
                equal((ps.get(sock, ps.WORKING_GENERATION),
                       ps.get(sock, ps.AFFINITY)), (3, 4), f"{text}: {what}")
            equal((ps.get(joiner, ps.WEIGHT), ps.get(founder, ps.WEIGHT)),
                  (2, 1), f"{text}: what is a member's is its own")
            ps.set(joiner, ps.WORKING_GENERATION, 8)
            ps.set(founder, ps.AFFINITY, 9)
            equal([(ps.get(s, ps.WORKING_GENERATION), ps.get(s, ps.AFFINITY),
                    ps.info(s).working_generation) for s in (founder, joiner)],
                  [(8, 9, 8)] * 2, f"{text}: a member changes it for all")
            founder.close()
            equal((ps.get(joiner, ps.WORKING_GENERATION),
                   ps.get(joiner, ps.AFFINITY)), (8, 9),
                  f"{text}: outlives its founder")
            joiner.close()
            fresh = pool.server(kind, family, port, ps.member())
            equal(ints(fresh), DEFAULTS, f"{text}: a new group knows nothing")


@test
def key():
    """before bind only, never readable"""
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = pool.new(kind, family)
            ps.member("rr", 5)(sock)
            for value in (b"a", b"\0", b"k" * 32):
                ps.set(sock, ps.KEY, value)
            member = pool.server(kind, family, net.port(), ps.member(key=b"k"))
            for what, one in (("wish", sock), ("member", member)):
                for size in (0, 1, 4, 32, 64):
                    fails("EINVAL", f"{text}, {what}: get {size} bytes",
                          ps.get_at, one, ps.KEY, ctypes.addressof(
                              ctypes.create_string_buffer(64)), size)
            sock.bind((net.WILDCARD[family], net.port()))
            plain = pool.server(kind, family, net.port())
            shared = pool.server(kind, family, net.port(), net.reuseport)
            for what, one in (("member", sock), ("plain", plain),
                              ("SO_REUSEPORT", shared)):
                fails("EINVAL", f"{text}, {what}: set after bind",
                      ps.set, one, ps.KEY, b"k" * 32)
            equal(every_wish(sock), (1, "rr", 5, DEFAULTS),
                  f"{text}: nothing changed")


@test
def selectable():
    """INFO counts who could be picked now"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(4, kind, family, port, ps.member("rr"))

            def counts(*states):
                for sock, state in zip(servers, states):
                    ps.set(sock, ps.STATE, state)
                return {ps.info(sock).selectable for sock in servers}

            for states, want in (((0, 0, 0, 0), 4), ((0, 0, 1, 2), 2),
                                 ((2, 1, 1, 2), 2), ((1, 1, 1, 1), 4),
                                 ((0, 2, 2, 2), 1), ((2, 2, 2, 2), 0)):
                equal(counts(*states), {want}, f"{text}: states {states}")
            counts(0, 0, 0, 0)
            for generation, sock in enumerate(servers):
                ps.set(sock, ps.GENERATION, generation // 3)
            found = []
            for working in (-1, 0, 1, 2):
                ps.set(servers[0], ps.WORKING_GENERATION, working)
                found.append(ps.info(servers[3]).selectable)
            equal(found, [4, 3, 1, 4], f"{text}: working generations")


@test
def forgotten():
    """JOIN 0 forgets what was set for the member"""
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = fulfilled(pool, kind, family)
            ps.leave(sock)
            equal(set(ints(sock).values()), {"ENOENT"}, f"{text}: after JOIN 0")
            ps.join(sock)
            equal(ints(sock), DEFAULTS, f"{text}: JOIN again")


@test
def numbers_of_clients():
    """a connection has no settings"""
    for family in net.FAMILIES:
        text = f"tcp {net.FAMILY_NAMES[family]}"
        with Pool() as pool:
            port = net.port()
            sock = pool.server("tcp", family, port, ps.member("rr", 5))
            client = pool.add(net.client("tcp", (net.LOOPBACK[family], port)))
            net.select.select([sock], [], [], 20)
            served = pool.add(sock.accept()[0])
            for what, one in (("connected", client), ("accepted", served)):
                for name, value in CHOSEN.items():
                    fails("EINVAL", f"{text}, {what}: {name}",
                          ps.set, one, getattr(ps, name), value)
                equal(set(ints(one).values()), {"ENOENT"},
                      f"{text}, {what}: none is kept")


@test
def policy_of_the_group():
    """the founder's, until a member changes it for all"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            founder = pool.server(kind, family, port, ps.member("rr"))
            joiner = pool.server(kind, family, port, ps.member("hash"))
            equal([ps.policy(founder), ps.policy(joiner)], ["rr", "rr"],
                  f"{text}: a joiner's wish doesn't count")
            ps.set_policy(joiner, "hash")
            equal([ps.policy(founder), ps.info(joiner).policy,
                   ps.group(founder)["policy"]], ["hash"] * 3,
                  f"{text}: a member changes it for all")
            fails("EINVAL", f"{text}: unknown policy",
                  ps.set_policy, founder, "nonsense")
            equal(ps.policy(joiner), "hash", f"{text}: nothing changed")
            founder.close()
            equal(ps.policy(joiner), "hash", f"{text}: outlives its founder")
            other = pool.server(kind, family, net.port(), ps.member())
            equal(ps.policy(other), ps.parameter("policy"),
                  f"{text}: nobody's choice is the module's parameter")


@test
def leave():
    """JOIN 0: a plain SO_REUSEPORT socket again"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            both = pool.servers(2, kind, family, port, ps.member("rr"))
            ps.leave(both[0])
            equal(ps.get(both[0], ps.JOIN), 0, f"{text}: JOIN reads 0")
            fails("ENOENT", f"{text}: no id", ps.get, both[0], ps.ID)
            equal(ps.group(both[1]).ids(), [1], f"{text}: the other stays")
            shares = net.counts(net.burst(both, address, 60), 2)
            ok(min(shares) > 0 and sum(shares) == 60,
               f"{text}: both serve", shares)
            error = tap.error_of(ps.leave, both[0])
            equal((error, ps.get(both[0], ps.JOIN)), (None, 0),
                  f"{text}: leaving twice is once")

            ps.leave(both[1])
            equal(ps.table(), {}, f"{text}: the last one takes the group along")
            reached = net.burst(both, address, 20)
            ok(None not in reached, f"{text}: the kernel serves", reached)
            ps.join(both[1])
            equal((ps.get(both[1], ps.ID), ps.info(both[1]).members), (0, 1),
                  f"{text}: back again")


@test
def join_for_reuseport():
    """JOIN before bind takes the place of SO_REUSEPORT"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            both = pool.servers(2, kind, family, port, ps.member())
            equal(ps.info(both[0]).members, 2, f"{text}: two share a port")
            plain = pool.server(kind, family, port, net.reuseport)
            equal((ps.get(plain, ps.JOIN), ps.info(both[0]).members), (0, 2),
                  f"{text}: with SO_REUSEPORT alone one is a stranger")

            taken_back = pool.new(kind, family)
            ps.member()(taken_back)
            ps.leave(taken_back)
            fails("EADDRINUSE", f"{text}: without the wish",
                  taken_back.bind, (net.WILDCARD[family], port))


@test
def failed_bind():
    """leaves no trace, and the wish for a better port"""
    for text, kind, family in combinations():
        with Pool() as pool:
            taken = net.port()
            pool.server(kind, family, taken)
            sock = wishful(pool, kind, family)
            before = sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
            fails("EADDRINUSE", f"{text}: the port is taken",
                  sock.bind, (net.WILDCARD[family], taken))
            equal(sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT),
                  before, f"{text}: SO_REUSEPORT is as it was")
            equal(ps.table(), {}, f"{text}: no group")
            equal(every_wish(sock), EVERY, f"{text}: the wish stands")
            sock.bind((net.WILDCARD[family], net.port()))
            equal(every_wish(sock), EVERY, f"{text}: and is granted")

            # a listener whose bind() went well and whose listen() doesn't:
            # two with SO_REUSEADDR may bind, only one may listen
            if kind == "udp":
                continue
            port = net.port()
            first, second = pool.new(kind, family), pool.new(kind, family)
            for one in (first, second):
                net.reuseaddr(one)
                one.bind((net.WILDCARD[family], port))
            first.listen()
            fails("EADDRINUSE", f"{text}: listen()", second.listen)
            ok(f"tcp:{net.WILDCARD[family]}:{port}" not in ps.table(),
               f"{text}: no group either")


@test
def changed_flags():
    """SO_REUSEPORT that changes after bind() breaks nothing"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            both = pool.servers(2, kind, family, port, ps.member("rr"))
            both[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 0)
            reached = net.burst(both, address, 20)
            ok(None not in reached, f"{text}: taken back, the group serves",
               reached)
            late = pool.server(kind, family, net.port())
            net.reuseport(late)
            tap.diag(f"JOIN with SO_REUSEPORT set after bind(): "
                     f"{tap.error_of(ps.join, late)}")
            reached = net.burst([late], (net.LOOPBACK[family],
                                         late.getsockname()[1]), 5)
            equal(reached, [0] * 5, f"{text}: set after bind() it serves")


@test
def levels():
    """the other family's level"""
    net.need_ipv6()
    for kind in net.TYPES:
        with net.new(kind, INET6) as six, net.new(kind, INET) as four:
            for option in ps.OPTIONS:
                fails(("EOPNOTSUPP", "ENOPROTOOPT"),
                      f"{kind} IPv6: set {option} at IPPROTO_IP",
                      six.setsockopt, socket.IPPROTO_IP, option, 1)
                fails(("EOPNOTSUPP", "ENOPROTOOPT"),
                      f"{kind} IPv6: get {option} at IPPROTO_IP",
                      six.getsockopt, socket.IPPROTO_IP, option, 64)
            fails(("EOPNOTSUPP", "ENOPROTOOPT"),
                  f"{kind} IPv4: JOIN at IPPROTO_IPV6",
                  four.setsockopt, socket.IPPROTO_IPV6, ps.JOIN, 1)
            equal((ps.get(six, ps.JOIN), ps.get(four, ps.JOIN)), (0, 0),
                  f"{kind}: nothing was joined")


@test
def other_protocols():
    """sockets that are neither TCP nor UDP over IP"""
    net.need_ipv6()
    others = {
        "raw": (INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        "raw UDP": (INET, socket.SOCK_RAW, socket.IPPROTO_UDP),
        "raw IPv6": (INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6),
        "ping": (INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
        "unix": (socket.AF_UNIX, socket.SOCK_STREAM, 0),
        "netlink": (socket.AF_NETLINK, socket.SOCK_RAW, 0),
        "packet": (socket.AF_PACKET, socket.SOCK_RAW, 0),
        "SCTP": (INET, socket.SOCK_STREAM, 132),
        "SCTP IPv6": (INET6, socket.SOCK_STREAM, 132),
        "UDP-Lite": (INET, socket.SOCK_DGRAM, 136),
        "UDP-Lite IPv6": (INET6, socket.SOCK_DGRAM, 136),
        "MPTCP": (INET, socket.SOCK_STREAM, 262),
    }
    refusals = ("EOPNOTSUPP", "ENOPROTOOPT")
    with open("/proc/sys/net/ipv4/ping_group_range", "w") as file:
        file.write("0 2147483647")
    for text, (family, type_, protocol) in others.items():
        try:
            sock = socket.socket(family, type_, protocol)
        except OSError as error:
            tap.skip(text, f"no such socket: {error.strerror}")
            continue
        with sock:
            errors = set()
            for option in ps.OPTIONS:
                for level in (socket.IPPROTO_IP, socket.IPPROTO_IPV6):
                    errors.add(tap.error_of(sock.setsockopt, level, option, 1))
                    errors.add(tap.error_of(sock.getsockopt, level, option,
                                            64))
            ok(errors <= set(refusals), f"{text}: every option is refused",
               errors)
            if family in (INET, INET6) and protocol not in (132, 262):
                net.reuseport(sock)
                sock.bind((net.LOOPBACK[family], 0))
    equal(ps.table(), {}, "none of them made a group")


@test
def many_wishes():
    """sockets that wish and go without ever binding"""
    for text, kind, family in combinations():
        for _ in range(100):
            with net.new(kind, family) as sock:
                ps.member("rr", 1)(sock)
        equal(ps.table(), {}, f"{text}: 100 came and went")


@test
def closed_in_passing():
    """a duplicate answers as the socket does"""
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = pool.server(kind, family, net.port(), ps.member("rr", 4))
            twin = pool.add(socket.socket(fileno=os.dup(sock.fileno())))
            sock.close()
            equal(every_wish(twin), (1, "rr", 4, DEFAULTS), text)


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module)
