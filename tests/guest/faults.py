#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900 allow="Call Trace"
"""Every allocation fails once, in every call that comes to the module; and by
chance, in what it does later and in the packet path. Needs a kernel with fault
injection: a debug kernel.

Where ftrace or a module gets no memory for code the kernel shows its stack, as
a warning: that alone is no complaint. All reports of faults say more."""
import collections
import contextlib
import itertools
import os
import random
import socket
import sys
import time

from lib import clients, daemons, fault, net, ns, proc, ps, tap
from lib.net import INET, INET6, Pool, combinations
from lib.tap import equal, ok, test

# Where a call makes hundreds of allocations, so many of them fail.
QUICK = not os.environ.get("PS_FULL")
POINTS = 12 if QUICK else 10000
SECONDS = 5 if QUICK else 30
SEED = int(sys.argv[1]) if len(sys.argv) > 1 else \
    random.SystemRandom().randrange(2**32)

ROUNDS = 1 if QUICK else 2

FINIT_MODULE, DELETE_MODULE = 313, 176		# system calls


def some(kinds=net.TYPES):
    """Kinds and families; in the short form one of each kind, by chance."""
    every = [found for found in combinations() if found[1] in kinds]
    if not QUICK:
        return every
    choose = random.Random(SEED)
    return [choose.choice([found for found in every if found[1] == kind])
            for kind in kinds]


class Entry:
    """call() is to do something: done() tells that it is done, undone() that
    nothing of it is, after() what else has come of it, if that is wrong."""

    def __init__(self, call, done, *allowed, undone=None, after=None,
                 at_once=False):
        self.call = call
        self.done = done
        self.undone = undone or (lambda: not done())
        self.after = after or (lambda failed: ())
        # What may be put off for want of memory is done a second later.
        self.at_once = at_once
        self.allowed = ("ENOMEM",) + allowed


def state():
    """All that /proc shows."""
    return {name: (dict(group), group.members)
            for name, group in ps.table().items()}


def inconsistencies():
    for name, group in ps.table().items():
        if len(set(group.ids())) != group["members"]:
            yield f"{name}: {dict(group)}, ids {group.ids()}"
        if group["selectable"] > group["members"]:
            yield f"{name}: {dict(group)}"


def attempt(nth, entry, number):
    """Let one allocation fail; (the errno, was it made, what is wrong)."""
    wrong = []
    before = state()
    error, left = nth.call(number, entry.call)
    if error:
        if error not in entry.allowed:
            wrong.append(error)
        if not entry.undone() or state() != before:
            wrong.append(f"{error}, but something has changed")
        again = tap.error_of(entry.call)
        if again:
            wrong.append(f"{again} on trying again after {error}")
    elif entry.at_once and not entry.done():
        wrong.append("not done, yet no error")
    if not proc.wait_for(entry.done, 10):
        wrong.append(f"{error or 'no error'}, and it's never done")
    wrong += inconsistencies()
    wrong += entry.after(not left)
    return error, left, [f"allocation {number}: {text}" for text in wrong]


def walk(text, prepare, numbers=None):
    """prepare(pool) makes an entry: let its first allocation fail, its second…
    until it makes no more."""
    nth = fault.Nth()
    before = set(ps.table())
    outcomes, trouble = collections.Counter(), []
    for number in numbers or itertools.count(1):
        with Pool() as pool:
            error, left, wrong = attempt(nth, prepare(pool), number)
        if not proc.wait_for(lambda: set(ps.table()) == before):
            wrong.append(f"left behind: {ps.table()}")
        trouble += wrong
        if left:
            break
        outcomes[error or "done"] += 1
    nth.close()
    told = ", ".join(f"{count} {name}" for name, count in outcomes.items())
    ok(not trouble, f"{text}: {told or 'no allocation'}",
       "\n".join(trouble[:12]))
    return sum(outcomes.values())


def spread(begin, end):
    """All of these, or as many as there is time for, and what comes behind."""
    step = max(1, -(-(end - begin) // POINTS))
    offset = random.Random(SEED).randrange(step)
    return itertools.chain(range(begin + offset, end, step),
                           itertools.count(end))


@contextlib.contextmanager
def armed():
    """All hooks are: arming them has a test of its own."""
    with Pool() as pool:
        pool.server("tcp", INET, net.port(), ps.member())
        pool.server("udp", INET, net.port(), ps.member(), addr="127.0.0.1"
                    ).connect(("127.0.0.1", 9))
        yield


@test
def can_fail():
    """an allocation of a call fails, another one doesn't"""
    fault.need()
    tap.diag(f"seed {SEED}")
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

def value_of(sock, option):
    with contextlib.suppress(OSError):
        return ps.policy(sock).encode() if option == ps.POLICY else \
            ps.get(sock, option)
    return None


OPTIONS = (("WEIGHT", 3), ("CPU", 1), ("STATE", ps.STANDBY), ("ID", 7),
           ("GENERATION", 2), ("WORKING_GENERATION", 1), ("RX_QUEUE", 1),
           ("AFFINITY", 60), ("POLICY", b"rr"))


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

def connect(family, host):
    """A member gets a peer: what that sends comes to it, all else doesn't."""
    def prepare(pool):
        port = net.port()
        peer = pool.server("udp", family, net.port(),
                           addr=net.LOOPBACK[family])
        servers = pool.servers(3, "udp", family, port, ps.member("rr"),
                               addr=host)
        address = (net.LOOPBACK[family], port)

        def after(_failed):
            reached = net.burst(servers, address, 3, through=peer)
            if reached != [1] * 3:
                yield f"the peer's datagrams came to {reached}"
            shares = net.counts(net.burst(servers, address, 4), 3)
            if shares != [2, 0, 2]:
                yield f"the others' {shares}"
        return Entry(lambda: servers[1].connect(peer.getsockname()),
                     lambda: ps.info(servers[0]).selectable == 2, "ENOBUFS",
                     after=after)
    return prepare


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


# Arming, namespaces, the module

def syscall(*args):
    ns.check(ns.libc.syscall(*args))


@test
def arming():
    """the first wish arms all hooks, or none"""
    fault.need()

    def first_wish(pool):
        if not ps.disarmed():
            raise RuntimeError(f"armed: {ps.hooks()}")
        sock = pool.new("udp", INET)
        return Entry(lambda: ps.join(sock),
                     lambda: value_of(sock, ps.JOIN) == 1 and ps.hooks(),
                     undone=lambda: not ps.hooks() and
                     not value_of(sock, ps.JOIN), at_once=True)
    with Pool() as pool:
        nth = fault.Nth()
        count, _ = nth.count(first_wish(pool).call)
        nth.close()
    tap.diag(f"{count} allocations")
    ok(walk("JOIN", first_wish, spread(1, count)), "it takes memory")
    ok(ps.disarmed(), "disarmed", ps.hooks())


@test
def arming_for_peers():
    """the first connect() arms what is for peers, or does without"""
    fault.need()

    def first_connect(pool):
        if not ps.disarmed():
            raise RuntimeError(f"armed: {ps.hooks()}")
        return connect(INET, "127.0.0.1")(pool)
    with Pool() as pool:
        nth = fault.Nth()
        count, _ = nth.count(first_connect(pool).call)
        nth.close()
    tap.diag(f"{count} allocations")
    ok(walk("connect()", first_connect, spread(1, count)), "it takes memory")


def new_namespace():
    ns.unshare(ns.CLONE_NEWNET)


@test
def namespaces():
    """a network namespace is made whole, or isn't"""
    fault.need()
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    nth = fault.Nth()
    # The module was loaded last, so its part comes at the end. How many there
    # are before differs from one time to the next.
    total = min(nth.count(new_namespace)[0] for _ in range(3))
    ns.check(ns.libc.setns(home, ns.CLONE_NEWNET))
    tap.diag(f"{total} allocations")
    trouble, refused = [], 0
    for number in itertools.count(total - (30 if QUICK else 100)):
        error, left = nth.call(number, new_namespace)
        # Other parts of the kernel have errors of their own.
        if error not in (None, "ENOMEM", "ENOBUFS"):
            trouble.append(f"allocation {number}: {error}")
        if not error:
            if ps.table() != {}:
                trouble.append(f"allocation {number}: {ps.table()}")
            ns.check(ns.libc.setns(home, ns.CLONE_NEWNET))
        refused += bool(error)
        if left:
            break
    nth.close()
    os.close(home)
    ok(not trouble and refused, f"{refused} are refused",
       "\n".join(trouble[:12]))
    space = ns.Namespace()
    with space, Pool() as pool:
        port = net.port()
        servers = pool.servers(2, "tcp", INET, port, ps.member("rr"))
        equal(net.counts(net.burst(servers, ("127.0.0.1", port), 4), 2),
              [2, 2], "the next one is as it should be")
    space.close()


class Module:
    """insmod and rmmod as one system call each."""

    def __init__(self):
        self._fd = os.open(ps.KO, os.O_RDONLY)

    def load(self, parameters=b""):
        syscall(FINIT_MODULE, self._fd, parameters, 0)

    @staticmethod
    def unload():
        syscall(DELETE_MODULE, b"portsteer", os.O_NONBLOCK)

    def close(self):
        os.close(self._fd)


PATHS = ("/sys/module/portsteer", "/sys/class/portsteer",
         "/proc/net/portsteer")


def remains():
    """What there is of the module that isn't loaded."""
    return [path for path in PATHS if os.path.exists(path)] + \
        sorted(ps.hooks())


@test
def loading():
    """the module is loaded, or nothing of it is there"""
    fault.need()
    ps.unload()
    module, nth = Module(), fault.Nth()
    # The kernel's own part, before our first line runs: it ends where this
    # parameter is refused.
    before, error = nth.count(lambda: module.load(b"policy=nonsense"))
    equal(error, "EINVAL", "a bad parameter")
    total, _ = nth.count(module.load)
    module.unload()
    tap.diag(f"allocations {before} to {total}")
    trouble, outcomes = [], collections.Counter()
    for number in spread(before + 1, total):
        error, left = nth.call(number, module.load)
        outcomes[error] += not left
        if error not in (None, "ENOMEM"):
            trouble.append(f"allocation {number}: {error}")
        elif not error:
            module.unload()
        if remains():
            trouble.append(f"allocation {number}: {remains()}")
        if left:
            break
    ok(not trouble and outcomes["ENOMEM"], f"{sum(outcomes.values())} failures",
       "\n".join(trouble[:12]))
    nth.close()
    module.close()
    ps.load()
    serves("then it is loaded")


def serves(text):
    with Pool() as pool:
        for name, kind, family in combinations():
            port = net.port()
            servers = pool.servers(2, kind, family, port, ps.member("rr"))
            address = (net.LOOPBACK[family], port)
            equal(net.counts(net.burst(servers, address, 4), 2), [2, 2],
                  f"{text}: {name}")


@test
def unloading():
    """the module goes, whatever fails"""
    fault.need()
    module, nth = Module(), fault.Nth()
    total, _ = nth.count(module.unload)
    tap.diag(f"{total} allocations")
    trouble, failures = [], 0
    for number in spread(1, total):
        with Pool() as pool:
            module.load()
            for _, kind, family in combinations():
                pool.servers(2, kind, family, net.port(), ps.member("rr"))
            error, left = nth.call(number, module.unload)
            if error or remains():
                trouble.append(f"allocation {number}: {error}, {remains()}")
        failures += not left
        if left:
            break
    ok(not trouble, f"{failures} failures", "\n".join(trouble[:12]))
    nth.close()
    module.close()
    ps.load()


# By chance

PORTS = range(9001, 9005)


class Churn:
    """Sockets that come, change and go."""

    def __init__(self, seed):
        self.choose = random.Random(seed)
        self.socks = []

    def serve(self):
        sock = net.new(self.choose.choice(tuple(net.TYPES)),
                       self.choose.choice(net.FAMILIES))
        self.socks.append(sock)
        if len(self.socks) > 20:
            self.socks.pop(self.choose.randrange(20)).close()
        sock.setblocking(False)
        ps.member(self.choose.choice(ps.POLICIES),
                  affinity=self.choose.choice((0, 60)))(sock)
        sock.bind((net.WILDCARD[sock.family] if sock.family == INET
                   else "::1", self.choose.choice(PORTS)))
        if sock.type == socket.SOCK_STREAM:
            sock.listen(16)

    def change(self):
        sock = self.choose.choice(self.socks)
        name, value = self.choose.choice(OPTIONS[:-1])
        if name == "WORKING_GENERATION":
            value = -1
        ps.set(sock, getattr(ps, name), value)

    def policy(self):
        ps.set_policy(self.choose.choice(self.socks),
                      self.choose.choice(ps.POLICIES))

    def peer(self):
        sock = self.choose.choice(self.socks)
        if sock.type == socket.SOCK_DGRAM:
            sock.connect((net.LOOPBACK[sock.family], 9))
            net.disconnect(sock)

    def ask(self):
        sock = self.choose.choice(self.socks)
        kind = "tcp" if sock.type == socket.SOCK_STREAM else "udp"
        with net.new(kind, sock.family) as client:
            client.setblocking(False)
            client.connect((net.LOOPBACK[sock.family],
                            sock.getsockname()[1]))
            if kind == "udp":
                client.send(b"x")

    def close(self):
        self.socks.pop(self.choose.randrange(len(self.socks))).close()

    def turn(self):
        action = self.choose.choice((self.serve,) * 4 + (
            self.change, self.change, self.policy, self.policy, self.peer,
            self.ask, self.ask, self.close))
        try:
            action()
            return True
        except (OSError, IndexError, MemoryError):
            return False


def churn(link, seed):
    """Until told to stop, and then hold still until told to go."""
    load = Churn(seed)
    done = 0
    link.send("up")
    while not link.poll(0):
        done += load.turn()
    link.recv()
    link.send(done)
    link.recv()


def directories():
    """What /sys/class/portsteer shows: {group: ids}."""
    top = f"{ns.sysfs()}/class/portsteer"
    return {name: sorted(int(id) for id in os.listdir(f"{top}/{name}/members"))
            for name in ps.sysfs_names()}


def settled():
    """Does sysfs show what there is?"""
    try:
        return directories() == {name: group.ids() for name, group
                                 in ps.table().items()}
    except FileNotFoundError:
        return False


def keeps_flows(name):
    """Has a group with affinity remembered the flow of a datagram?"""
    host, port = name[len("udp:"):].rsplit(":", 1)
    family = INET6 if "[" in host else INET
    with net.new("udp", family) as client:
        client.sendto(b"x", (net.LOOPBACK[family], int(port)))
    return int(ps.sysfs_read(
        f"{ns.sysfs()}/class/portsteer/{name}/stats/flows")) > 0


def recovered(text):
    """With memory again, all is as it should have been."""
    ok(proc.wait_for(settled, 10), f"{text}: sysfs shows all there is",
       f"{directories()}\n{state()}")
    ok(not list(inconsistencies()), f"{text}: /proc makes sense",
       list(inconsistencies()))
    flows = [name for name, group in ps.table().items() if "udp" in name and
             group["affinity"] and group["selectable"]]
    forgetful = [name for name in flows
                 if not proc.wait_for(lambda: keeps_flows(name), 10)]
    ok(not forgetful, f"{text}: {len(flows)} groups keep flows", forgetful)


def by_chance(text, percent, marked):
    """A load while allocations fail, again and again, and what is left."""
    failed = done = 0
    for turn in range(ROUNDS):
        with proc.Child(churn, SEED + turn) as child:
            child.get()
            end = time.monotonic() + SECONDS
            with fault.Chance(percent, marked is not None) as chance:
                while time.monotonic() < end:
                    if marked:
                        fault.mark(marked(child))
                    time.sleep(0.05)
            done += child.ask("stop")
            failed += chance.failed
            recovered(text)
            child.link.send("go")
            child.wait()
        ok(proc.wait_for(lambda: not ps.table() and not ps.sysfs_names()),
           f"{text}: all goes away", f"{ps.table()} {ps.sysfs_names()}")
    ok(failed and done, f"{text}: {failed} failures, {done} deeds")
    serves(text)


@test
def later():
    """what is done off the way of packets and calls is done in the end"""
    fault.need()
    by_chance("kernel workers", 40, lambda child: fault.kernel_workers())


@test
def calls():
    """calls of a program whose allocations fail now and then"""
    fault.need()
    by_chance("a program", 10, lambda child: [child.pid])


@test
def packets():
    """what can't wait for memory fails with everybody"""
    fault.need()
    by_chance("everybody", 10, None)


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=3000)
