#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900
"""The socket options with whatever comes: any number, size, value, pointer and
level, on any kind of socket in any state. A model of the contract says what
each call must come to. --seed N does a run again (lib/fuzz.py)."""
import contextlib
import ctypes
import errno
import os
import socket
import struct

from lib import fuzz, kernel, net, ns, proc, ps, tap
from lib.net import INET, INET6, Pool, combinations
from lib.tap import equal, ok, test

IPV6_ADDRFORM = 1

NUMBERS = range(20560, 20581)
NAMES = {getattr(ps, name): name for name in (
    "JOIN", "POLICY", "WEIGHT", "CPU", "STATE", "ID", "GENERATION",
    "WORKING_GENERATION", "KEY", "INFO", "VERSION", "RX_QUEUE", "AFFINITY")}
INT_MAX, INT_MIN = 2**31 - 1, -2**31
RANGES = {"JOIN": (0, 1), "WEIGHT": (1, 65535),
          "CPU": (-1, kernel.cpu_list("possible")[-1]), "STATE": (0, 2),
          "ID": (0, 65535), "GENERATION": (0, INT_MAX),
          "WORKING_GENERATION": (-1, INT_MAX), "RX_QUEUE": (-1, 65535),
          "AFFINITY": (0, INT_MAX)}
OF_THE_GROUP = ("POLICY", "WORKING_GENERATION", "AFFINITY")
# What JOIN settles: the group's numbers, and an id if the wished one is taken.
SETTLED = ("JOIN", "ID", "INFO", "SO_REUSEPORT", *OF_THE_GROUP)
SIZES = (0, 1, 2, 3, 4, 4, 4, 4, 5, 8, 15, 16, 17, 31, 32, 33, ps.INFO_SIZE - 1,
         ps.INFO_SIZE, ps.INFO_SIZE + 1, 4096, 65536, INT_MAX, -1, INT_MIN)
INTS = (-2, -1, 0, 1, 2, 3, 7, 255, 256, 65535, 65536, INT_MAX, INT_MIN)
LEVELS = (socket.IPPROTO_IP, socket.IPPROTO_IPV6, socket.SOL_SOCKET,
          socket.IPPROTO_TCP, socket.IPPROTO_UDP, 132, 136, 255, 263, 270, 284,
          -1, INT_MAX)
# Not one of ours, or not for this socket: each kernel has its order in which
# it looks at what is wrong.
REFUSALS = {"ENOPROTOOPT", "EOPNOTSUPP", "EINVAL", "EFAULT"}
UNMAPPED = (8, 2**47 - 4096, 0xffff888000000000, 2**64 - 4096, 2**63)
NO_PROTOCOL = {"EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "EAFNOSUPPORT"}


# Calls

class Call:
    """A get or set at random: where, what, and from or to which memory."""

    def __init__(self, chance, memory, level):
        self.get = chance.random() < 0.4
        self.option = chance.choice(NUMBERS if chance.random() < 0.3 else
                                    list(NAMES))
        self.name = NAMES.get(self.option)
        self.level = level
        self.length = chance.choice(SIZES)
        self.memory = memory
        self.read_only = False
        self._place(chance)
        memory.fill()
        if not self.get and self.room:
            memory.put(self.room, self._value(chance))

    def _place(self, chance):
        """Where: room bytes can be accessed there."""
        where = chance.random()
        near = min(max(self.length, 0), ps.INFO_SIZE) + chance.choice(
            (-1, 0, 0, 1))
        if where < 0.1:
            self.room, self.address = 0, chance.choice((0, *UNMAPPED))
            return
        self.room = max(near, 0) if where < 0.4 else 256
        self.address = self.memory.end(self.room)
        self.read_only = self.get and where > 0.95

    def _value(self, chance):
        if self.name == "POLICY":
            name = chance.choice(ps.POLICIES).encode()
            if chance.random() < 0.3:
                name = fuzz.mutate(chance, name)
            if 0 < self.length < 64 and chance.random() < 0.7:
                self.length = len(name)
            return name + b"\0" * chance.choice((0, 1, 16))
        if self.name == "KEY":
            return chance.choice((b"k", b"\0", b"key")) * 33
        low, high = RANGES.get(self.name, (0, 1))
        value = chance.choice((*INTS, low, high, low - 1, high + 1,
                               chance.randint(low, min(high, 8)),
                               chance.randint(INT_MIN, INT_MAX)))
        value = min(max(value, INT_MIN), INT_MAX)
        return struct.pack("i", value) + b"\xff" * chance.choice((0, 60))

    def bytes(self, count):
        """Of what is passed, as far as it is there."""
        return self.memory.take(self.room)[:count]

    def number(self):
        return struct.unpack("i", self.bytes(4))[0]

    def policy(self):
        return self.bytes(min(self.length, 16)).split(b"\0")[0].decode(
            "latin-1")

    def do(self, sock):
        """The errno's name, or None; .returned is the length."""
        size = ctypes.c_int(self.length)
        self.memory.read_only(self.read_only)
        call, length = (ns.libc.getsockopt, ctypes.byref(size)) if self.get \
            else (ns.libc.setsockopt, ctypes.c_int(self.length))
        result = call(sock.fileno(), ctypes.c_int(self.level), self.option,
                      ctypes.c_void_p(self.address), length)
        number = ctypes.get_errno()
        self.memory.read_only(False)
        self.returned = size.value
        return None if result == 0 else \
            errno.errorcode[number].replace("ENOTSUP", "EOPNOTSUPP")

    def __str__(self):
        what = "get" if self.get else "set"
        value = "" if self.get else f" {self.bytes(20)!r}"
        return f"{what} {self.name or self.option} level {self.level} " \
            f"length {self.length} room {self.room}" \
            f"{' read-only' if self.read_only else ''}{value}"


# The model

class Case:
    """A socket in some state, and what the contract says of it.

    eligible: may it have wishes, and join? None: that depends. join_error:
    what JOIN may come to where one doesn't know; maybe: what any set may.
    """

    def __init__(self, text, sock, eligible=True, steered=True,
                 join_error=None, maybe=frozenset()):
        self.text = text
        self.sock = sock
        self.eligible = eligible
        self.steered = steered
        self.join_error = join_error
        self.maybe = maybe
        self.level = ps.level(sock)
        self.bound = steered and sock.getsockname()[1] != 0
        self.inode = os.fstat(sock.fileno()).st_ino

    def group(self, table):
        """The group in which it is a member, None if in none."""
        found = [group for group in table.values() if self.inode in
                 [member["inode"] for member in group.members]]
        return found[0] if found else None

    def state(self):
        """{what can be read of it: bytes, or the errno that says why not}"""
        if not self.steered:
            return {}
        found = {"SO_REUSEPORT": self.sock.getsockopt(socket.SOL_SOCKET,
                                                      socket.SO_REUSEPORT)}
        for number, name in NAMES.items():
            try:
                found[name] = self.sock.getsockopt(self.level, number,
                                                   ps.INFO_SIZE)
            except OSError as error:
                found[name] = errno.errorcode[error.errno]
        return found


def table_text():
    with open("/proc/thread-self/net/portsteer") as file:
        return file.read()


def why_not_get(call, before):
    """The errnos that it may come to; none: it must succeed."""
    if call.name is None:
        return {"ENOPROTOOPT"}
    answer = before[call.name]
    if isinstance(answer, str):
        return {answer}
    reasons = set()
    if call.length < 0 or (call.length < len(answer) and
                           call.name not in ("POLICY", "INFO")):
        reasons.add("EINVAL")
    wanted = min(max(call.length, 0), len(answer))
    if wanted and (wanted > call.room or call.read_only):
        reasons.add("EFAULT")
    return reasons


def why_not_set(case, call, before, group):
    """The same, for a set."""
    if call.length < 0 or call.name in ("INFO", "VERSION"):
        return {"EINVAL"}
    if call.name is None:
        return {"ENOPROTOOPT"}
    size = {"KEY": call.length, "POLICY": min(call.length, 16)}.get(
        call.name, 4)
    reasons = set()
    if not call.length or call.length < size or \
            call.name == "KEY" and size > 32:
        reasons.add("EINVAL")
    if size > call.room:
        return reasons | {"EFAULT"}
    if reasons:
        return reasons
    if call.name == "POLICY":
        good = call.policy() in ps.POLICIES
    elif call.name == "KEY":
        good = not case.bound
    else:
        low, high = RANGES[call.name]
        good = low <= call.number() <= high
    if not good:
        return {"EINVAL"}
    if call.name == "JOIN" and call.number() == 0:
        return set()
    member = isinstance(before["INFO"], bytes)
    if not member and case.eligible is False:
        return {"EINVAL"}
    if member and call.name in OF_THE_GROUP and group["locked"]:
        return {"EPERM"}
    if member and call.name == "ID":
        own = struct.unpack("i", before["ID"])[0]
        if call.number() != own and call.number() in group.ids():
            return {"EEXIST"}
    return set()


def may_fail(case, call, before):
    """What a set may come to that the model can't foretell."""
    if isinstance(before["INFO"], bytes):
        return set()
    found = set(case.maybe)
    if case.eligible is None:
        found.add("EINVAL")
    if call.name == "JOIN" and case.join_error:
        found.add(case.join_error)
    return found


def differs(call, before, after):
    """Names of what isn't as it should be after a set that went well."""
    expected = dict(before)
    if call.name == "JOIN":
        if call.number() == 1 or isinstance(before["INFO"], bytes):
            free = SETTLED if call.number() else tuple(NAMES.values())
            for name in (*free, "SO_REUSEPORT"):
                expected[name] = after[name]
            if call.number() and not isinstance(before["INFO"], bytes) and \
                    isinstance(after["INFO"], bytes):
                expected.update({name: after[name] for name in RANGES
                                 if before[name] == "ENOENT"})
        expected["JOIN"] = struct.pack("i", call.number())
        expected["SO_REUSEPORT"] = after["SO_REUSEPORT"]
    elif call.name == "POLICY":
        expected["POLICY"] = call.policy().encode().ljust(16, b"\0")
    elif call.name != "KEY":
        expected[call.name] = call.bytes(4)
    if isinstance(before["INFO"], bytes) and isinstance(after["INFO"], bytes):
        expected["INFO"] = info_of(after)
    return [name for name in expected if after[name] != expected[name]]


def info_of(state):
    """INFO with what other options say; the rest as it is."""
    info = list(struct.unpack(ps.INFO_FORMAT, state["INFO"]))
    for place, name in ((1, "ID"), (2, "STATE"), (3, "WEIGHT"),
                        (5, "RX_QUEUE"), (6, "GENERATION"),
                        (7, "WORKING_GENERATION")):
        info[place] = struct.unpack("i", state[name])[0]
    info[10] = state["POLICY"]
    return struct.pack(ps.INFO_FORMAT, *info)


# One call, judged

def answer_wrong(call, error, before):
    """What is wrong with what a get has left in memory?"""
    if error is None:
        answer = before[call.name]
        length = min(call.length, len(answer))
        if call.returned != length:
            return f"returned {call.returned} bytes, not {length}"
        if not length:
            answer, error = b"", "nothing"
        else:
            got = call.memory.take(call.room)
            if got[:length] != answer[:length]:
                return f"{got[:length]!r} instead of {answer[:length]!r}"
            if got[length:] != call.memory.PATTERN * (call.room - length):
                return "more was written than the length says"
    elif call.returned != call.length:
        return f"a failed get returned the length {call.returned}"
    if call.room and call.memory.touched(call.room):
        return "something was written before the buffer"
    if error not in (None, "EFAULT") and call.room and \
            call.memory.take(call.room) != call.memory.PATTERN * call.room:
        return f"{error}, and something was written"
    return None


def wrong(case, call):
    """Do it; what is not as the contract has it, None if nothing."""
    before, table = case.state(), table_text()
    ours = case.steered and call.level == case.level
    if not ours:
        reasons, maybe = {"ENOPROTOOPT"}, REFUSALS
    elif call.get:
        reasons, maybe = why_not_get(call, before), set()
    else:
        group = case.group(ps.parse(table))
        reasons = why_not_set(case, call, before, group)
        maybe = may_fail(case, call, before)
    # Looked at before it is known whose option it is.
    if reasons and (call.room < 4 or call.length < 4):
        maybe = maybe | {"EFAULT", "EINVAL"}
    error = call.do(case.sock)
    if error is None and reasons or error and error not in reasons | maybe:
        return f"{error}, expected {reasons or None}"
    if call.get:
        trouble = answer_wrong(call, error, before)
        if trouble:
            return trouble
    after = case.state()
    if error or call.get:
        if (after, table_text()) != (before, table):
            return f"{error}, and changed {before} to {after}"
    else:
        found = differs(call, before, after)
        if found:
            return "wrong after it: " + ", ".join(
                f"{name} {before[name]!r} {after[name]!r}" for name in found)
    return None


def judge(case, chance, count):
    """So many calls; the first few that went wrong."""
    memory = fuzz.Memory()
    found = []
    for _ in range(count):
        level = case.level if chance.random() < 0.8 else chance.choice(LEVELS)
        call = Call(chance, memory, level)
        shown = str(call)
        trouble = wrong(case, call)
        if trouble:
            found.append(f"{shown}: {trouble}")
    return found[:5]


# Sockets in all states

def connected_tcp(pool, family, *prepare):
    """(listener, client, accepted)"""
    listener = pool.server("tcp", family, net.port(), *prepare)
    client = pool.add(net.client("tcp", (net.LOOPBACK[family],
                                         listener.getsockname()[1])))
    net.select.select([listener], [], [], 20)
    return listener, client, pool.add(listener.accept()[0])


def common(pool, kind, family):
    """States that sockets of both kinds have."""
    yield Case("new", pool.new(kind, family))
    wish = pool.new(kind, family)
    ps.member("rr", 5, weight=3, key=b"k")(wish)
    yield Case("wishes", wish)
    yield Case("plain", pool.server(kind, family, net.port()), False)
    yield Case("shared", pool.server(kind, family, net.port(), net.reuseport))
    yield Case("member", pool.server(kind, family, net.port(),
                                     ps.member("rr", 5)))
    port = net.port()
    some = pool.servers(3, kind, family, port, ps.member("least"))
    yield Case("one of three", some[1])
    locked = pool.server(kind, family, net.port(), ps.member())
    ps.sysfs_write(f"{ps.sysfs_dir(locked)}/locked", 1)
    yield Case("locked", locked)
    port = net.port()
    keyed = pool.servers(2, kind, family, port, ps.member(key=b"k"))
    yield Case("keyed", keyed[0], join_error="EADDRINUSE")
    port = net.port()
    pool.server(kind, family, port, net.reuseport)
    given = pool.server(kind, family, port, net.reuseport)
    os.fchown(given.fileno(), proc.NOBODY, -1)
    yield Case("given away", given, join_error="EPERM")
    twin = pool.server(kind, family, net.port(), ps.member("idle"))
    yield Case("duplicate", pool.add(socket.socket(
        fileno=os.dup(twin.fileno()))))


def tcp_states(pool, family):
    bound = pool.new("tcp", family)
    net.reuseport(bound)
    bound.bind((net.WILDCARD[family], net.port()))
    yield Case("bound", bound)
    bound = pool.new("tcp", family)
    ps.member()(bound)
    bound.bind((net.WILDCARD[family], net.port()))
    yield Case("bound member", bound)
    for what, prepare in (("member", ps.member("rr")),
                          ("shared", net.reuseport)):
        stopped = pool.server("tcp", family, net.port(), prepare)
        stopped.shutdown(socket.SHUT_RDWR)
        yield Case(f"{what} shut down", stopped)
    listener, client, served = connected_tcp(pool, family, ps.member("rr"))
    yield Case("member with a connection", listener)
    yield Case("connected", client, False)
    yield Case("accepted", served, False)
    _, client, served = connected_tcp(pool, family)
    client.shutdown(socket.SHUT_WR)
    yield Case("half closed", client, False)
    yield Case("its peer", served, False)
    wish = pool.new("tcp", family)
    ps.member("rr", 4, weight=2)(wish)
    wish.connect((net.LOOPBACK[family], listener.getsockname()[1]))
    yield Case("connected with wishes", wish, False)


def udp_states(pool, family):
    peer = pool.server("udp", family, net.port())
    address = (net.LOOPBACK[family], peer.getsockname()[1])
    for what, prepare in (("member", ps.member("rr")),
                          ("shared", net.reuseport), ("plain", None)):
        for addr in (net.WILDCARD[family], net.LOOPBACK[family]):
            sock = pool.server("udp", family, net.port(),
                               *([prepare] if prepare else []), addr=addr)
            sock.connect(address)
            yield Case(f"{what} {addr} with a peer", sock, None)
    sock = pool.server("udp", family, net.port(), ps.member("rr"))
    sock.connect(address)
    net.disconnect(sock)
    yield Case("member without a peer again", sock, None)
    stopped = pool.server("udp", family, net.port(), ps.member("rr"))
    stopped.connect(address)
    stopped.shutdown(socket.SHUT_RDWR)
    yield Case("member shut down", stopped, None)
    if family == INET6:
        yield Case("member, now of IPv4", converted(pool), None)


def converted(pool):
    """An IPv6 member with an IPv4 peer that has become an IPv4 socket."""
    host = "::ffff:127.0.0.1"
    peer = pool.server("udp", INET6, net.port(), addr=host)
    member = pool.server("udp", INET6, net.port(), ps.member("rr"), addr=host)
    member.connect(peer.getsockname())
    member.setsockopt(socket.IPPROTO_IPV6, IPV6_ADDRFORM, socket.AF_INET)
    # Python looks at the family once.
    return pool.add(socket.socket(fileno=os.dup(member.fileno())))


def states(pool, kind, family):
    yield from common(pool, kind, family)
    yield from (tcp_states if kind == "tcp" else udp_states)(pool, family)


@test
def every_state():
    """TCP and UDP: each call is what the contract says, in every state"""
    for text, kind, family in combinations():
        with Pool() as pool:
            for case in states(pool, kind, family):
                chance = fuzz.chances("state", text, case.text)
                equal(judge(case, chance, fuzz.rounds(150)), [],
                      f"{text}, {case.text}")
    fuzz.check_exact("every state")


# Who isn't served

OTHERS = {
    "raw": (INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    "raw UDP": (INET, socket.SOCK_RAW, socket.IPPROTO_UDP),
    "raw IPv6": (INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6),
    "raw TCP IPv6": (INET6, socket.SOCK_RAW, socket.IPPROTO_TCP),
    "ping": (INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
    "ping IPv6": (INET6, socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6),
    "UDP-Lite": (INET, socket.SOCK_DGRAM, 136),
    "UDP-Lite IPv6": (INET6, socket.SOCK_DGRAM, 136),
    "MPTCP": (INET, socket.SOCK_STREAM, 262),
    "MPTCP IPv6": (INET6, socket.SOCK_STREAM, 262),
    "SCTP": (INET, socket.SOCK_STREAM, 132),
    "SCTP IPv6": (INET6, socket.SOCK_SEQPACKET, 132),
    "packet": (socket.AF_PACKET, socket.SOCK_RAW, 0),
    "packet cooked": (socket.AF_PACKET, socket.SOCK_DGRAM, 0),
    "unix": (socket.AF_UNIX, socket.SOCK_STREAM, 0),
    "unix datagram": (socket.AF_UNIX, socket.SOCK_DGRAM, 0),
    "netlink": (socket.AF_NETLINK, socket.SOCK_RAW, 0),
    "vsock": (socket.AF_VSOCK, socket.SOCK_STREAM, 0),
    "ALG": (socket.AF_ALG, socket.SOCK_SEQPACKET, 0),
}


def use(sock):
    """Bind it, and listen or connect, where that can be done so simply."""
    host = net.LOOPBACK[sock.family]
    if sock.type == socket.SOCK_RAW:
        sock.bind((host, 0))
        return
    net.reuseport(sock)
    sock.bind((host, net.port()))
    if sock.type == socket.SOCK_STREAM:
        sock.listen()
    elif sock.type == socket.SOCK_DGRAM:
        sock.connect((host, net.port()))


def fallen_back(pool, family, what):
    """MPTCP connections to a peer that speaks TCP.

    get is passed on to the TCP connection behind them, set isn't by all kernels.
    """
    listener = pool.server("tcp", family, net.port(), ps.member("rr"))
    sock = pool.add(socket.socket(family, socket.SOCK_STREAM, 262))
    sock.connect((net.LOOPBACK[family], listener.getsockname()[1]))
    yield Case(f"{what} that fell back", sock, False, maybe=REFUSALS)
    server = pool.add(socket.socket(family, socket.SOCK_STREAM, 262))
    server.bind((net.LOOPBACK[family], net.port()))
    server.listen()
    pool.add(net.client("tcp", server.getsockname()[:2]))
    yield Case(f"{what} accepted from TCP", pool.add(server.accept()[0]),
               False, maybe=REFUSALS)


def not_served(pool, text, family, type_, protocol):
    """Sockets of that kind, new and in use."""
    yield Case(text, pool.add(socket.socket(family, type_, protocol)),
               steered=False)
    if family in net.FAMILIES:
        used = pool.add(socket.socket(family, type_, protocol))
        use(used)
        yield Case(f"{text} in use", used, steered=False)
        if protocol == 262:
            yield from fallen_back(pool, family, text)


@test
def other_kinds():
    """sockets of other kinds get nothing, and nothing comes of it"""
    with open("/proc/sys/net/ipv4/ping_group_range", "w") as file:
        file.write("0 2147483647")
    for text, (family, type_, protocol) in OTHERS.items():
        if family == INET6 and INET6 not in net.FAMILIES:
            tap.skip(text, "IPv6 is disabled")
            continue
        with Pool() as pool:
            error = tap.error_of(lambda: pool.add(socket.socket(
                family, type_, protocol)))
            if error in NO_PROTOCOL:
                tap.skip(text, f"no such socket: {error}")
                continue
            for case in not_served(pool, text, family, type_, protocol):
                chance = fuzz.chances("kind", case.text)
                equal(judge(case, chance, fuzz.rounds(100)), [], case.text)
    fuzz.check_exact("other kinds")


# Several tasks

TASKS = 4
# One at a time can't foretell these, but others there mustn't be.
CONTRACT = {"EINVAL", "EPERM", "EEXIST", "ENOENT", "EFAULT", "EADDRINUSE",
            None}
UNRULY = {"EADDRINUSE", "EINVAL", "ENOTCONN", "EISCONN", "ECONNREFUSED",
          "EOPNOTSUPP", "EDESTADDRREQ", "EALREADY", "EINPROGRESS",
          "ECONNRESET", "ECONNABORTED", "EAGAIN", "EAFNOSUPPORT",
          "EADDRNOTAVAIL", "EPIPE", None}


def out_of_range(call):
    """Is what a get has answered none of the option's values?"""
    got = call.memory.take(call.room)[:call.returned]
    if call.name == "INFO":
        return got[:4] != struct.pack("i", ps.INFO_SIZE)[:call.returned]
    if call.name == "POLICY":
        names = [name.encode().ljust(16, b"\0") for name in ps.POLICIES]
        return got not in [name[:call.returned] for name in names]
    if call.name == "VERSION":
        return got != struct.pack("i", 1)
    low, high = RANGES[call.name]
    return not low <= struct.unpack("i", got)[0] <= high


def hammer(link, socks, number, count):
    """Calls on sockets that others call on as well; what went wrong."""
    chance = fuzz.chances("task", number)
    memory = fuzz.Memory()
    found = []
    for _ in range(count):
        sock = chance.choice(socks)
        call = Call(chance, memory, ps.level(sock))
        shown = str(call)
        error = call.do(sock)
        allowed = CONTRACT if call.name else REFUSALS
        if error not in allowed:
            found.append(f"{shown}: {error}")
        elif call.get and not error and call.returned and out_of_range(call):
            found.append(f"{shown}: answered "
                         f"{call.memory.take(call.room)[:call.returned]!r}")
        elif call.get and not error and call.memory.take(
                call.room)[call.returned:].strip(call.memory.PATTERN):
            found.append(f"{shown}: more was written than it says")
    link.send(found[:5])


def disturb(chance, sock, port):
    """Something else that can be done to a socket; what came of it."""
    family = sock.family
    here = net.LOOPBACK[family], port
    stream = sock.type == socket.SOCK_STREAM
    return tap.error_of(*chance.choice((
        (sock.bind, (net.WILDCARD[family], port)),
        (sock.listen, 10) if stream else (sock.send, b"x"),
        (sock.shutdown, chance.randrange(3)),
        (sock.connect, here), (net.disconnect, sock),
        (sock.setsockopt, socket.SOL_SOCKET, socket.SO_REUSEPORT,
         chance.randrange(2)),
        (lambda: sock.accept()[0].close(),) if stream else (sock.recv, 100),
        (os.fchown, sock.fileno(), chance.choice((0, proc.NOBODY)), -1),
    )))


@test
def several_tasks():
    """tasks with the same sockets, which are bound, connected, shut down"""
    for text, kind, family in combinations():
        with Pool() as pool, contextlib.ExitStack() as tasks:
            port = net.port()
            pool.servers(3, kind, family, port, ps.member("rr"))
            socks = [pool.new(kind, family) for _ in range(8)]
            for sock in socks:
                sock.setblocking(False)
            children = [tasks.enter_context(proc.Child(
                hammer, socks, f"{text} {i}", fuzz.rounds(3000)))
                for i in range(TASKS)]
            chance = fuzz.chances("disturb", text)
            errors = set()
            while not all(child.link.poll() for child in children):
                errors.add(disturb(chance, chance.choice(socks),
                                   chance.choice((port, net.port()))))
            equal([child.get() for child in children], [[]] * TASKS,
                  f"{text}: only the contract's errnos and values")
            ok(errors <= UNRULY, f"{text}: and the kernel's own, of others",
               errors - UNRULY)
    fuzz.check_exact("several tasks")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=900)
