#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The private socket options: values, errors, and that a failed call changes
nothing. Contract: DESIGN.md 2.1."""
import ctypes
import os
import socket
import struct

from lib import net, ps, tap
from lib.net import INET, INET6, Pool, combinations
from lib.tap import equal, fails, ok, test

# Options with a number that this version doesn't serve yet.
UNBUILT = (ps.WEIGHT, ps.CPU, ps.STATE, ps.GENERATION, ps.WORKING_GENERATION,
           ps.KEY, ps.RX_QUEUE, ps.AFFINITY)

UNMAPPED = 8		# no address of a process


def every_wish(sock):
    return ps.get(sock, ps.JOIN), ps.policy(sock), ps.get(sock, ps.ID)


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
def unbuilt_options():
    """options of later versions say so, before bind and after"""
    for text, kind, family in combinations():
        with Pool() as pool:
            for sock in (pool.new(kind, family),
                         pool.server(kind, family, net.port(), ps.member())):
                for option in UNBUILT:
                    fails("EOPNOTSUPP", f"{text}: set {option}",
                          ps.set, sock, option, 1)
                    fails("EOPNOTSUPP", f"{text}: get {option}",
                          ps.get, sock, option)


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
                for option in ("POLICY", "ID", "INFO"):
                    fails("ENOENT", f"{what}: get {option}", sock.getsockopt,
                          ps.level(sock), getattr(ps, option), 16)
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
            equal(every_wish(sock), (1, "rr", 7), f"{text}: JOIN")
            ps.set(sock, ps.JOIN, 0)
            equal(ps.get(sock, ps.JOIN), 0, f"{text}: JOIN is taken back")
            equal(ps.table(), {}, f"{text}: a wish makes no group")


@test
def sizes():
    """an int may come in a longer buffer, a shorter one is EINVAL"""
    for text, kind, family in combinations():
        with net.new(kind, family) as sock:
            ps.member("rr", 5)(sock)
            for option, value in (("JOIN", 0), ("ID", 6)):
                number = getattr(ps, option)
                for size in range(4):
                    fails("EINVAL", f"{text}: set {option}, {size} bytes",
                          ps.set, sock, number,
                          struct.pack("i", value)[:size])
            fails("EINVAL", f"{text}: set POLICY, 0 bytes",
                  ps.set, sock, ps.POLICY, b"")
            equal(every_wish(sock), (1, "rr", 5), f"{text}: nothing changed")

            for option, value in (("JOIN", 0), ("ID", 6), ("JOIN", 1)):
                for size in (4, 5, 8, 64, 4096):
                    number = getattr(ps, option)
                    buffer = struct.pack("i", value).ljust(size, b"\xff")
                    error = tap.error_of(ps.set, sock, number, buffer)
                    equal((error, ps.get(sock, number)), (None, value),
                          f"{text}: set {option}, {size} bytes")

            buffer = ctypes.create_string_buffer(64)
            for option in ("JOIN", "ID", "VERSION"):
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
            for what, sock in (
                    ("wish", pool.new(kind, family)),
                    ("member", pool.server(kind, family, net.port(),
                                           ps.member("rr", 5)))):
                if what == "wish":
                    ps.member("rr", 5)(sock)
                what = f"{text}, {what}"
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
                equal(every_wish(sock), (1, "rr", 5),
                      f"{what}: nothing changed")


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


@test
def bad_pointers():
    """EFAULT, and nothing changes"""
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = pool.server(kind, family, net.port(), ps.member("rr", 5))
            wish = pool.new(kind, family)
            ps.member("rr", 5)(wish)
            buffer = ctypes.create_string_buffer(128)
            for option in ("JOIN", "POLICY", "ID"):
                for pointer in (0, UNMAPPED, 2**64 - 4096):
                    for what, one in (("member", sock), ("wish", wish)):
                        fails("EFAULT", f"{text}, {what}: set {option} from "
                              f"{pointer:#x}", ps.set_at, one,
                              getattr(ps, option), pointer, 4)
            for option in ("JOIN", "POLICY", "ID", "INFO", "VERSION"):
                number = getattr(ps, option)
                for pointer in (UNMAPPED, 2**64 - 4096):
                    fails("EFAULT", f"{text}: get {option} to {pointer:#x}",
                          ps.get_at, sock, number, pointer, 16)
                result = net.ns.libc.getsockopt(
                    sock.fileno(), ps.level(sock), number, buffer,
                    ctypes.c_void_p(UNMAPPED))
                equal((result, ctypes.get_errno()), (-1, 14),
                      f"{text}: get {option}, length at {UNMAPPED}: EFAULT")
            equal(every_wish(sock), (1, "rr", 5), f"{text}: nothing changed")
            equal(every_wish(wish), (1, "rr", 5), f"{text}: no wish changed")


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
            sock = pool.new(kind, family)
            ps.member("rr", 3)(sock)
            before = sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
            fails("EADDRINUSE", f"{text}: the port is taken",
                  sock.bind, (net.WILDCARD[family], taken))
            equal(sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT),
                  before, f"{text}: SO_REUSEPORT is as it was")
            equal(ps.table(), {}, f"{text}: no group")
            equal(every_wish(sock), (1, "rr", 3), f"{text}: the wish stands")
            sock.bind((net.WILDCARD[family], net.port()))
            equal(every_wish(sock), (1, "rr", 3), f"{text}: and is granted")

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
            equal(every_wish(twin), (1, "rr", 4), text)


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module)
