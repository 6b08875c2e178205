#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900
"""Rules, sysfs files and module parameters with texts that are right, almost
right or hardly: a model of the grammar says which are accepted and what they
mean; what isn't changes nothing. --seed N does a run again (lib/fuzz.py)."""
import contextlib
import errno
import os
import re
import socket
import stat

from lib import fuzz, kernel, net, ps, tap
from lib.net import INET, Pool, combinations
from lib.tap import equal, ok, test

PAGE = fuzz.PAGE
INT_MAX = 2**31 - 1
STATES = (b"active", b"standby", b"draining")
POLICIES = [name.encode() for name in ps.POLICIES]


# Ways to write

def _plain(fd, data, _chance):
    return os.write(fd, data)


def _offset(fd, data, chance):
    return os.pwrite(fd, data, chance.choice((1, 5, 4095, 4096, 10**6)))


def _vector(fd, data, chance):
    i, j = sorted(chance.choices(range(len(data) + 1), k=2))
    return os.writev(fd, [data[:i], data[i:j], data[j:]])


def vectors_are_one_write():
    """Since 5.13 sysfs sees a writev() as a whole."""
    release = os.uname().release.split(".")
    return (int(release[0]), int(release[1])) >= (5, 13)


WAYS = (_plain, _plain, _offset, *((_vector,) if vectors_are_one_write()
                                   else ()))


def write(path, data, chance):
    """Write it in any way; (the errno's name or None, the way)."""
    way = chance.choice(WAYS)
    flags = os.O_WRONLY | chance.choice((0, os.O_TRUNC, os.O_APPEND))
    fd = os.open(path, flags)
    try:
        written = way(fd, data, chance)
    except OSError as error:
        return errno.errorcode[error.errno], way.__name__
    finally:
        os.close(fd)
    # A page is what a file of sysfs takes.
    if written != min(len(data), PAGE):
        return f"{written} of {len(data)} bytes", way.__name__
    return None, way.__name__


# The grammar of single values, as README.md and DESIGN.md have it. What a text
# means, or None if it is to be refused.

def number(text, low, high):
    if len(text) > 21 or not re.fullmatch(rb"-?[0-9]+\n?", text):
        return None
    value = int(text)
    return value if low <= value <= high else None


def one_line(text):
    return text[:-1] if text.endswith(b"\n") else text


def state(text):
    if one_line(text) in STATES:
        return STATES.index(one_line(text))
    return number(text, 0, 2)


def policy(text):
    name = one_line(text)
    return name.decode() if name in POLICIES else None


def room(text):
    """affinity_flows: a power of two, at least 64"""
    value = number(text, 1, 2**20)
    return value and 1 << max(6, (value - 1).bit_length())


def parameter_policy(text):
    """The kernel's parameters end at a NUL; blanks around are no harm."""
    text = text.split(b"\0")[0]
    name = text.strip(b" \t\n\v\f\r\xa0")
    return name.decode() if len(text) < 16 and name in POLICIES else None


def parameter_seed(text):
    text = one_line(text.split(b"\0")[0])
    if text == b"random":
        return "random"
    if re.fullmatch(rb"[0-9a-fA-F]{32}", text):
        return text.decode().lower()
    return None


def within(low, high):
    return lambda text: number(text, low, high)


LAST_CPU = kernel.cpu_list("possible")[-1]
MEMBER = "members/0/"
# File: its grammar, and texts to begin with.
FILES = {
    "policy": (policy, POLICIES),
    "locked": (within(0, 1), (b"0", b"1")),
    "migrate": (within(0, 1), (b"0", b"1\n")),
    "working_generation": (within(-1, INT_MAX), (b"-1", b"0", b"12\n")),
    "affinity": (within(0, INT_MAX), (b"0", b"120", b"2147483647\n")),
    "affinity_flows": (room, (b"64", b"65536\n", b"1048576", b"100")),
    "quic_offset": (within(0, 19), (b"0", b"1", b"12\n")),
    "quic_length": (within(1, 8), (b"1", b"8\n", b"2")),
    MEMBER + "state": (state, (*STATES, b"0", b"1", b"2")),
    MEMBER + "weight": (within(1, 65535), (b"1", b"3", b"65535\n")),
    MEMBER + "cpu": (within(-1, LAST_CPU), (b"-1", b"0", b"1\n")),
    MEMBER + "rx_queue": (within(-1, 65535), (b"-1", b"0", b"65535")),
    MEMBER + "generation": (within(0, INT_MAX), (b"0", b"77\n")),
}
PARAMETERS = {
    "policy": (parameter_policy, POLICIES),
    "seed": (parameter_seed, (b"random", b"00112233445566778899aAbBcCdDeEfF",
                              b"random\n", b"0" * 32 + b"\n")),
}


def shown(path, value):
    """How a file reads whose value that is."""
    if path.endswith("state"):
        return STATES[value].decode()
    if path == "policy":
        return " ".join(f"[{name}]" if name == value else name
                        for name in ps.POLICIES)
    return str(value)


def text_for(chance, texts):
    text = chance.choice(texts)
    return text if chance.random() < 0.2 else fuzz.mutate(chance, text)


def write_values(directory, chance, count):
    """Write to a group's files; what went wrong."""
    expected = ps.sysfs_files(directory)
    found = []
    accepted = 0
    for i in range(count):
        path = chance.choice(list(FILES))
        grammar, texts = FILES[path]
        data = text_for(chance, texts)
        # sysfs hands on one page
        value = grammar(data[:PAGE])
        if path.startswith("quic_") and value is not None:
            both = {**expected, path: value}
            if int(both["quic_offset"]) + int(both["quic_length"]) > 20:
                value = None
        want = None if value is not None or not data else "EINVAL"
        error, way = write(f"{directory}/{path}", data, chance)
        if want is None and data:
            expected[path] = shown(path, value)
            accepted += 1
        # That is much to read, and all of it changes seldom.
        now = ps.sysfs_files(directory) if i % 10 == 9 else {
            **expected, path: ps.sysfs_read(f"{directory}/{path}")}
        if error != want or now != expected:
            found.append((path, data[:60], len(data), way, error, want, {
                name: (now.get(name), expected[name]) for name in expected
                if now.get(name) != expected[name]}))
            expected = ps.sysfs_files(directory)
    return found[:5], accepted


@test
def values():
    """each file of a group: accepted texts read back, others change nothing"""
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = pool.server(kind, family, net.port(), ps.member())
            pool.server(kind, family, sock.getsockname()[1], ps.member(id=9))
            found, accepted = write_values(
                ps.sysfs_dir(sock), fuzz.chances("values", text),
                fuzz.rounds(1500))
            equal(found, [], f"{text}: as the grammar has it")
            ok(accepted > fuzz.rounds(1500) // 10,
               f"{text}: and many are accepted", accepted)


@test
def read_only_files():
    """what can't be written can't be, however"""
    with Pool() as pool:
        sock = pool.server("udp", INET, net.port(), ps.member())
        directory = ps.sysfs_dir(sock)
        before = ps.sysfs_files(directory)
        chance = fuzz.chances("read only")
        for path in before:
            mode = stat.S_IMODE(os.stat(f"{directory}/{path}").st_mode)
            if mode != 0o444:
                continue
            errors = set()
            for _ in range(fuzz.rounds(20)):
                data = text_for(chance, (b"0", b"1\n"))
                # of nothing sysfs makes nothing
                if data:
                    errors.add(tap.error_of(ps.sysfs_write,
                                            f"{directory}/{path}", data))
            ok(errors <= {"EIO", "EACCES"}, f"{path}: refused", errors)
        equal(ps.sysfs_files(directory), before, "nothing changed")


@test
def parameters():
    """/sys/module/portsteer/parameters"""
    for name, (grammar, texts) in PARAMETERS.items():
        chance = fuzz.chances("parameter", name)
        path = f"{ps.PARAMETERS}/{name}"
        old = value = ps.parameter(name)
        found = []
        for _ in range(fuzz.rounds(1500)):
            data = text_for(chance, texts)
            meant = grammar(data[:PAGE])
            want = None if meant is not None or not data else "EINVAL"
            if want is None and data:
                value = meant
            error, way = write(path, data, chance)
            if (error, ps.parameter(name)) != (want, value):
                found.append((data[:60], len(data), way, error, want,
                              ps.parameter(name), value))
                value = ps.parameter(name)
        equal(found[:5], [], f"{name}: as the grammar has it")
        ps.parameter(name, old)


# Rules

PORTS = range(20, 28)
OPTIONS = {b"policy": None, b"lock": (0, 1), b"migrate": (0, 1),
           b"force": (0, 1), b"affinity": (0, INT_MAX),
           b"quic_offset": (0, 19), b"quic_length": (1, 8)}
OF_UDP = (b"affinity", b"quic_offset", b"quic_length")


def digits(text, low, high):
    if not re.fullmatch(rb"[0-9]+", text):
        return None
    value = int(text)
    return value if low <= value <= high else None


def read_option(word):
    """(name, value), or None"""
    name, equals, text = word.partition(b"=")
    if not equals or name not in OPTIONS:
        return None
    if name == b"policy":
        value = text.decode() if text in POLICIES else None
    elif name in OF_UDP:
        value = digits(text, *OPTIONS[name])
    else:
        value = {b"0": 0, b"1": 1}.get(text)
    return None if value is None else (name.decode(), value)


def read_rule(data):
    """("add", (protocol, port), options), "del" alike, ("clear",) or None"""
    if b"\0" in data or len(data) >= PAGE:
        return None
    words = [word for word in re.split(rb"[ \t]", one_line(data)) if word]
    if words == [b"clear"]:
        return ("clear",)
    if len(words) < 3 or words[0] not in (b"add", b"del") or \
            words[1] not in (b"tcp", b"udp"):
        return None
    port = digits(words[2], 1, 65535)
    if port is None:
        return None
    place = words[1].decode(), port
    if words[0] == b"del":
        return ("del", place) if len(words) == 3 else None
    options = [read_option(word) for word in words[3:]]
    if None in options or len(dict(options)) != len(options):
        return None
    options = dict(options)
    if "policy" not in options or place[0] == "tcp" and \
            any(name.decode() in options for name in OF_UDP):
        return None
    if options.get("quic_offset", 1) + options.get("quic_length", 2) > 20:
        return None
    return "add", place, options


def rule_line(place, options):
    """How it reads back: what is as it would be anyway isn't shown."""
    words = [f"add {place[0]} {place[1]} policy={options['policy']}"]
    for name, plain in (("lock", 0), ("migrate", 1), ("force", 0)):
        if options.get(name, plain) != plain:
            words.append(f"{name}={options[name]}")
    if "affinity" in options:
        words.append(f"affinity={options['affinity']}")
    if "quic_offset" in options or "quic_length" in options:
        words.append(f"quic_offset={options.get('quic_offset', 1)}")
        words.append(f"quic_length={options.get('quic_length', 2)}")
    return " ".join(words)


class Rules:
    """What the module should know."""

    def __init__(self):
        self.rules = {}

    def lines(self):
        return sorted(rule_line(*rule) for rule in self.rules.items())

    def command(self, data):
        """Obey; the errno that it comes to, or None."""
        if not data:
            return None
        parsed = read_rule(data)
        if parsed is None:
            return "EINVAL"
        if parsed[0] == "clear":
            self.rules.clear()
        elif parsed[0] == "del":
            if parsed[1] not in self.rules:
                return "ENOENT"
            del self.rules[parsed[1]]
        else:
            rules = {**self.rules, parsed[1]: parsed[2]}
            # each line ends; all of them have to fit in a page
            if sum(len(rule_line(*r)) + 1 for r in rules.items()) >= PAGE:
                return "ENOSPC"
            self.rules = rules
        return None

    def groups(self, sock):
        """The settings that the group of a bound socket should have."""
        kind = "tcp" if sock.type == socket.SOCK_STREAM else "udp"
        options = self.rules.get((kind, sock.getsockname()[1]))
        if options is None:
            return None
        return {"policy": options["policy"],
                "locked": options.get("lock", 0),
                "migrate": options.get("migrate", 1),
                "affinity": options.get("affinity", 0), "members": 2}


def some_rule(chance):
    """A rule that is right."""
    kind = chance.choice(("tcp", "udp"))
    port = chance.choice(PORTS)
    what = chance.random()
    if what < 0.15:
        return f"del {kind} {port}".encode()
    if what < 0.17:
        return b"clear"
    words = [f"policy={chance.choice(ps.POLICIES)}"]
    names = [name for name in OPTIONS if name != b"policy" and
             (kind == "udp" or name not in OF_UDP)]
    for name in chance.sample(names, chance.randrange(len(names) + 1)):
        low, high = OPTIONS[name]
        words.append(f"{name.decode()}={chance.randint(low, min(high, 600))}")
    chance.shuffle(words)
    blank = chance.choice((" ", " ", "\t", "  "))
    end = chance.choice(("", "\n"))
    return (blank.join(("add", kind, str(port), *words)) + end).encode()


def rule_texts(chance):
    """What to write next: one text, or one in two parts."""
    text = some_rule(chance)
    if chance.random() < 0.6:
        text = fuzz.mutate(chance, text)
    elif chance.random() < 0.1:
        text += b"\n" + some_rule(chance)
    if text and chance.random() < 0.05:
        i = chance.randrange(len(text))
        return [text[:i], text[i:]]
    return [text]


def settings(table, sock):
    group = table.get(ps.name(sock))
    return group and {name: group[name] for name in (
        "policy", "locked", "migrate", "affinity", "members")}


def write_rules(servers, model, chance, count):
    """Write so many; what went wrong, and how often each thing came of it."""
    found = []
    came = {}
    for _ in range(count):
        for data in rule_texts(chance):
            want = model.command(data)
            error, way = write(ps.rules_path(), data, chance)
            came[want] = came.get(want, 0) + 1
            lines = sorted(ps.rule_lines())
            if error != want or lines != model.lines():
                found.append((data[:80], len(data), way, error, want, lines))
                ps.rule("clear")
                model.rules.clear()
        table = ps.table()
        bad = [(ps.name(sock), settings(table, sock), model.groups(sock))
               for sock in servers
               if settings(table, sock) != model.groups(sock)]
        if bad:
            found.append((data, bad))
            ps.rule("clear")
            model.rules.clear()
    return found[:5], came


@test
def rules():
    """rules and the groups that they steer, after each text"""
    with Pool() as pool:
        servers = []
        for kind in net.TYPES:
            for port, family in ((PORTS[0], INET), (PORTS[1], INET),
                                 (PORTS[2], net.FAMILIES[-1])):
                servers += pool.servers(2, kind, family, port, net.reuseport)
        chance = fuzz.chances("rules")
        found, came = write_rules(servers[::2], Rules(), chance,
                                  fuzz.rounds(4000))
        equal(found, [], "as the grammar has it, and the groups follow")
        ok({None, "EINVAL", "ENOENT"} <= set(came), "of all sorts", came)


@test
def full_of_rules():
    """as many as a page shows; what is refused then changes nothing"""
    chance = fuzz.chances("full")
    model = Rules()
    found, came = [], set()
    for port in range(30000, 30000 + 150):
        data = f"add udp {port} policy=consistent affinity={port}".encode()
        want = model.command(data)
        error, _ = write(ps.rules_path(), data, chance)
        came.add(want)
        if error != want or sorted(ps.rule_lines()) != model.lines():
            found.append((data, error, want))
    equal((found, came), ([], {None, "ENOSPC"}), "till the page is full")
    # shorter and longer ones in place of those that are there
    for _ in range(fuzz.rounds(300)):
        port = 30000 + chance.randrange(150)
        data = f"add udp {port} policy={chance.choice(ps.POLICIES)}" + \
            chance.choice(("", " lock=1 migrate=0 force=1 affinity=1",
                           " quic_length=8"))
        want = model.command(data.encode())
        error, _ = write(ps.rules_path(), data.encode(), chance)
        if error != want or sorted(ps.rule_lines()) != model.lines():
            found.append((data, error, want))
    equal(found[:5], [], "and while it is")


# Reading

def in_pieces(path, chance):
    """All of a file by reads of any size, at times of what was read before."""
    fd = os.open(path, os.O_RDONLY)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, fd)
        text = b""
        while True:
            size = chance.choice((1, 2, 7, 100, 4095, 4096, 65536))
            piece = os.pread(fd, size, len(text))
            if chance.random() < 0.1:
                back = chance.randrange(len(text) + 1)
                again = os.pread(fd, len(text) - back, back)
                if not text[back:].startswith(again):
                    return f"{again!r} instead of {text[back:]!r}"
            if not piece:
                return text.decode()
            text += piece


@test
def reading():
    """in pieces, at offsets: the same text"""
    chance = fuzz.chances("reading")
    with Pool() as pool:
        for _ in range(20):
            port = net.port()
            pool.servers(8, "udp", INET, port, ps.member())
            ps.rule(f"add udp {port} policy=rr")
        first = ps.sysfs_dir(pool.server("tcp", INET, net.port(), ps.member()))
        for path in ("/proc/thread-self/net/portsteer", ps.rules_path(),
                     f"{first}/policy", f"{first}/members/0/state",
                     f"{first}/stats/picked", f"{ps.PARAMETERS}/policy"):
            with open(path) as file:
                whole = file.read()
            equal([text for text in (in_pieces(path, chance)
                                     for _ in range(fuzz.rounds(20)))
                   if text != whole], [], os.path.basename(path))


@test
def exact_afterwards():
    """the module works as if nothing had been"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            ps.rule(f"add {kind} {port} policy=rr")
            servers = pool.servers(4, kind, family, port, net.reuseport)
            shares = net.counts(net.burst(
                servers, (net.LOOPBACK[family], port), 40), 4)
            equal((shares, ps.group(servers[0]).picked()),
                  ([10] * 4, [10] * 4), text)


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=900)
