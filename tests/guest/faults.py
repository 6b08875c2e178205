#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900 allow="Call Trace"
"""Every allocation fails once, in every call that comes to the module; arming,
loading and unloading are in faults_module.py, failures by chance in
faults_chance.py. Needs a kernel with fault injection: a debug kernel.

Where ftrace or a module gets no memory for code the kernel shows its stack, as
a warning: that alone is no complaint. All reports of faults say more."""
import os
import socket

from lib import clients, daemons, fault, net, proc, ps, tap
from lib.net import INET, Pool
from lib.tap import equal, ok, test
from lib.walk import (OPTIONS, QUICK, Entry, armed, connect, some, value_of,
                      walk)


@test
def can_fail():
    """an allocation of a call fails, another one doesn't"""
    fault.need()
    with Pool() as pool, armed():
        nth = fault.Nth()
        sock = pool.new("udp", INET)
        count, error = nth.count(lambda: ps.set(sock, ps.WEIGHT, 2))
        ok(count > 0 and error is None, "a wish takes memory", (count, error))
        # Some of these may be the interpreter's.
        socks = [pool.new("udp", INET) for _ in range(count)]
        found = [nth.call(number + 1, lambda: ps.set(sock, ps.WEIGHT, 2))
                 for number, sock in enumerate(socks)]
        ok(("ENOMEM", 0) in found, "and isn't kept without", found)
        nth.close()


# Options

def setting(sock, name, value):
    option = getattr(ps, name)
    return Entry(lambda: ps.set(sock, option, value),
                 lambda: value_of(sock, option) == value, at_once=True)


def wish(kind, family, name, value):
    return lambda pool: setting(pool.new(kind, family), name, value)


def member_setting(kind, family, name, value):
    return lambda pool: setting(
        pool.servers(3, kind, family, net.port(), ps.member("hash"))[1],
        name, value)


@test
def wishes():
    """an option of a socket that isn't bound: kept, or ENOMEM"""
    fault.need()
    with armed():
        for text, kind, family in some():
            total = sum(walk(f"{text}: {name}", wish(kind, family, name, value))
                        for name, value in (("JOIN", 1), *OPTIONS))
            ok(total, f"{text}: there were {total} failures")


@test
def options():
    """an option of a member"""
    fault.need()
    with armed():
        for text, kind, family in some():
            for name, value in OPTIONS:
                walk(f"{text}: {name}",
                     member_setting(kind, family, name, value))


def adopted_by_option(kind, family, others):
    def prepare(pool):
        port = net.port()
        pool.servers(others, kind, family, port, ps.member("rr"))
        sock = pool.server(kind, family, port, net.reuseport)
        return Entry(lambda: ps.join(sock),
                     lambda: value_of(sock, ps.JOIN) == 1, at_once=True)
    return prepare


@test
def join_when_bound():
    """JOIN of a bound socket: a new group, a larger one, or ENOMEM"""
    fault.need()
    with armed():
        for text, kind, family in some():
            for others in (0, 3, 4):
                ok(walk(f"{text} with {others} others",
                        adopted_by_option(kind, family, others)),
                   f"{text} with {others} others: it takes memory")


# bind() and listen()

def members(port):
    return sum(len(g.members) for g in daemons.groups(port).values())


def bound(sock):
    return sock.getsockname()[1] != 0


def bind(kind, family, others, *wishes, rule="", key=None):
    """bind() of a socket that is to be a member, by its wish or by a rule."""
    keyed = {} if key is None else {"key": key}

    def prepare(pool):
        port = net.port()
        if rule:
            ps.rule(f"add {kind} {port} policy=rr {rule}")
            pool.callback(ps.rule, f"del {kind} {port}")
        pool.servers(others, kind, family, port, ps.member("rr", **keyed))
        sock = pool.new(kind, family)
        for prepare_sock in wishes:
            prepare_sock(sock)
        if key is not None:
            ps.member("rr", **keyed)(sock)

        def joined():
            # Rules find TCP sockets when those listen, at the latest.
            if kind == "tcp" and rule and bound(sock):
                sock.listen(16)
            return bound(sock) and members(port) == others + 1
        # A failed allocation of the kernel's own looks like a taken port.
        return Entry(lambda: sock.bind((net.WILDCARD[family], port)), joined,
                     "EADDRINUSE", undone=lambda: not bound(sock),
                     after=lambda failed: key_trouble(kind, family, port, key),
                     at_once=key is not None)
    return prepare


def key_trouble(kind, family, port, key):
    """A group with a key lets nobody in without."""
    if key is not None:
        with Pool() as pool:
            error = tap.error_of(pool.server, kind, family, port,
                                 net.reuseport)
        if error != "EADDRINUSE":
            yield f"a stranger beside a key: {error}"


@test
def binds():
    """bind() of a member doesn't fail for our sake: it joins a little later"""
    fault.need()
    with armed():
        for text, kind, family in some():
            for others in (0, 4):
                ok(walk(f"{text}, a wish, {others} others",
                        bind(kind, family, others, ps.member("rr"))),
                   f"{text}, {others} others: it takes memory")
            walk(f"{text}, a rule",
                 bind(kind, family, 0, net.reuseport, rule="lock=1"))
            walk(f"{text}, a rule by force",
                 bind(kind, family, 0, rule="force=1"))


@test
def keyed_binds():
    """bind() with a key: it's in force, or bind() fails"""
    fault.need()
    with armed():
        for text, kind, family in some():
            for others in (0, 4):
                walk(f"{text}, {others} others",
                     bind(kind, family, others, key=b"secret"))


def listens(sock):
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


def listen(family, others, *prepare_sock):
    def prepare(pool):
        port = net.port()
        pool.servers(others, "tcp", family, port, ps.member("rr"))
        sock = pool.new("tcp", family)
        for option in prepare_sock:
            option(sock)
        sock.bind((net.WILDCARD[family], port))
        return Entry(lambda: sock.listen(16),
                     lambda: listens(sock) and
                     ps.info(sock).selectable == others + 1,
                     "EADDRINUSE", undone=lambda: not listens(sock))
    return prepare


@test
def listening():
    """listen() of a member"""
    fault.need()
    with armed():
        for text, _, family in some(("tcp",)):
            for others in (0, 4):
                walk(f"{text}, {others} others",
                     listen(family, others, ps.member("rr")))


# What operators write

def written(fd, text, done, **keywords):
    return Entry(lambda: os.write(fd, text.encode()), done, **keywords)


def opened(pool, path):
    fd = os.open(path, os.O_WRONLY)
    pool.callback(os.close, fd)
    return fd


def adopting_rule(kind, family, old=""):
    """A rule for servers that are there already."""
    def prepare(pool):
        port = net.port()
        pool.servers(3, kind, family, port, net.reuseport)
        if old:
            ps.rule(f"add {kind} {port} {old}")
        line = f"add {kind} {port} policy=rr"
        pool.callback(tap.error_of, ps.rule, f"del {kind} {port}")
        return written(opened(pool, ps.rules_path()), line,
                       lambda: line in ps.rule_lines() and members(port) == 3
                       and {g["policy"] for g in daemons.groups(port).values()}
                       == {"rr"},
                       undone=lambda: line not in ps.rule_lines())
    return prepare


@test
def rules():
    """a rule stands and finds its servers, or ENOMEM"""
    fault.need()
    with armed():
        for text, kind, family in some():
            ok(walk(f"{text}: add", adopting_rule(kind, family)),
               f"{text}: it takes memory")
            walk(f"{text}: replace",
                 adopting_rule(kind, family, "policy=hash"))


GROUP_FILES = (("working_generation", "1"), ("affinity", "60"),
               ("affinity_flows", "8192"), ("locked", "1"), ("migrate", "0"),
               ("quic_offset", "2"), ("members/0/state", "standby"),
               ("members/0/weight", "9"), ("members/0/cpu", "1"),
               ("members/0/rx_queue", "1"), ("members/0/generation", "4"))


def group_file(kind, family, file, value, shown=None):
    def prepare(pool):
        prepare_sock = [ps.member("hash")]
        if file == "affinity_flows":
            prepare_sock = [ps.member("hash", affinity=9)]
        sock = pool.servers(3, kind, family, net.port(), *prepare_sock)[0]
        path = f"{ps.sysfs_dir(sock)}/{file}"
        return written(opened(pool, path), value, lambda:
                       (shown or value) in ps.sysfs_read(path).split(),
                       at_once=True)
    return prepare


@test
def files():
    """what is written to a group's files"""
    fault.need()
    with armed():
        for text, kind, family in some(("udp",) if QUICK else net.TYPES):
            for file, value in GROUP_FILES:
                ok(walk(f"{text}: {file}",
                        group_file(kind, family, file, value)),
                   f"{text}: {file}: sysfs itself takes memory")
            for policy in ps.POLICIES:
                if policy != "hash":
                    walk(f"{text}: policy {policy}",
                         group_file(kind, family, "policy", policy,
                                    f"[{policy}]"))


# Reading

def reading(path_of):
    def prepare(pool):
        sock = pool.servers(3, "udp", INET, net.port(), ps.member("rr"))[0]
        path, found = path_of(sock), []

        def read():
            fd = os.open(path, os.O_RDONLY)
            try:
                found[:] = [os.read(fd, 65536)]
            finally:
                os.close(fd)
        return Entry(read, lambda: any(found), at_once=True)
    return prepare


@test
def reads():
    """what is read is whole, or ENOMEM"""
    fault.need()
    with armed():
        for text, path_of in (
                ("/proc", lambda sock: "/proc/thread-self/net/portsteer"),
                ("rules", lambda sock: ps.rules_path()),
                ("policy", lambda sock: f"{ps.sysfs_dir(sock)}/policy"),
                ("stats", lambda sock: f"{ps.sysfs_dir(sock)}/stats/flows"),
                ("state", lambda sock:
                 f"{ps.sysfs_dir(sock)}/members/1/state")):
            if text == "rules":
                ps.rule("add tcp 9 policy=rr")
            ok(walk(text, reading(path_of)), f"{text}: it takes memory")

        def info(pool):
            sock = pool.server("udp", INET, net.port(), ps.member("rr"))
            found = []
            return Entry(lambda: found.append(ps.info(sock).members),
                         lambda: 1 in found)
        equal(walk("INFO", info), 0, "INFO: takes none")
        ps.rule("clear")


# Where members stop

@test
def peers():
    """connect() of a member: its peer's datagrams are its own, whatever fails"""
    fault.need()
    with armed():
        for text, _, family in some(("udp",)):
            walk(text, connect(family, net.LOOPBACK[family]))
            walk(f"{text}, wildcard", connect(family, net.WILDCARD[family]))


def going(kind, leave, count=4):
    """A listener goes, with connections queued."""
    def prepare(pool):
        port = net.port()
        servers = clients.servers_of(pool, 3, kind, port, ps.member("rr"))
        waiting = clients.clients(pool, clients.addresses_of(kind, port),
                                  3 * count)
        proc.wait_for(lambda: clients.backlog(servers[0]) == count)
        before = ps.info(servers[1]).selectable

        def after(failed):
            # What the kernel has no memory to move is reset.
            shares = clients.take_all(servers[1:], 3 * count - failed, 10)
            lost = len(clients.all_answered(waiting))
            if lost > failed:
                yield f"{lost} of {3 * count} lost, {shares}"
        return Entry(lambda: leave(servers[0]),
                     lambda: ps.info(servers[1]).selectable == before - 1,
                     after=after)
    return prepare


@test
def migration():
    """a listener goes: no more is lost than the kernel had no memory for"""
    fault.need()
    clients.need_migration()
    with armed():
        for leave in (clients.close, clients.shutdown):
            for kind in clients.KINDS[:1 if QUICK else None]:
                ok(walk(f"{kind}, {leave.__name__}()", going(kind, leave)),
                   f"{kind}, {leave.__name__}(): it takes memory")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=3000)
