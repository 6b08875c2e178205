#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900
"""/sys/class/portsteer: what it says, what may be written, when it is there.
Contract: DESIGN.md 2.2."""
import errno
import os
import random
import socket
import stat
import subprocess

from lib import kernel, net, ns, proc, ps, tap
from lib.net import INET, INET6, Pool, combinations
from lib.tap import equal, fails, ok, test

QUICK = os.environ.get("PS_QUICK")
LAST_CPU = kernel.cpu_list("possible")[-1]

STATES = ("active", "standby", "draining")

# Of a fresh group and its fresh member, by file.
GROUP = {"policy":
         "[hash] rr random least cpu numa rxqueue idle consistent quic",
         "locked": "0", "migrate": "1", "working_generation": "-1",
         "affinity": "0", "affinity_flows": "65536", "quic_offset": "1",
         "quic_length": "2", "stats/picked": "0", "stats/fallbacks": "0",
         "stats/migrated": "0", "stats/migrate_failed": "0",
         "stats/flows": "0", "stats/flows_full": "0"}
MEMBER = {"state": "active", "weight": "1", "cpu": "-1", "rx_queue": "-1",
          "generation": "0", "backlog": "0", "picked": "0",
          "migrated_in": "0", "migrated_out": "0"}	# inode: any

# Files with a number: the option that is the same, if there is one, values it
# takes, the last of them the default, and values that it doesn't.
NUMBERS = {
    "working_generation": ("WORKING_GENERATION", (0, 7, 2**31 - 1, -1),
                           (-2, 2**31)),
    "affinity": ("AFFINITY", (1, 120, 2**31 - 1, 0), (-1, 2**31)),
    # others are rounded up to one of these
    "affinity_flows": (None, (64, 2**20, 2**17, 2**16), (-1, 0, 2**20 + 1)),
    # together they fit in a connection ID
    "quic_offset": (None, (0, 18, 10, 1), (-1, 19, 20, 255, 256, 257)),
    "quic_length": (None, (1, 8, 3, 2), (-1, 0, 9, 20, 256, 258)),
    "members/0/weight": ("WEIGHT", (65535, 2, 1), (0, -1, 65536)),
    "members/0/cpu": ("CPU", (0, LAST_CPU, -1), (-2, LAST_CPU + 1)),
    "members/0/rx_queue": ("RX_QUEUE", (0, 65535, -1), (-2, 65536)),
    "members/0/generation": ("GENERATION", (1, 2**31 - 1, 0), (-1, 2**31)),
}
FLAGS = ("locked", "migrate")

# No number in any file.
NONSENSE = (b"\n", b" ", b"one", b"-", b"--1", b"+1", b"1 ", b" 1", b"1\n\n",
            b"\n1", b"1 1", b"1,", b"0x1", b"1.0", b"1e0", b"\0", b"1\0",
            b"1\n\0", b"\0001", b"9" * 19, b"9" * 20, b"-" + b"9" * 20,
            b"0" * 100 + b"1", b"1" * 4096, b"1" * 5000, b"\xff",
            str(2**32).encode(), str(2**32 + 1).encode(), str(2**64).encode(),
            str(2**64 + 1).encode(), str(-2**63).encode())


def fresh(sock, **values):
    """What ps.sysfs_files() of a group with one fresh member should be."""
    expected = dict(GROUP)
    expected.update({f"members/0/{name}": value
                     for name, value in MEMBER.items()})
    expected["members/0/inode"] = str(os.fstat(sock.fileno()).st_ino)
    expected.update(values)
    return expected


def current(text):
    """The one in brackets."""
    return text[text.index("[") + 1:text.index("]")]


def at(sock, path, value=None):
    """Read or write a file of the socket's group."""
    path = f"{ps.sysfs_dir(sock)}/{path}"
    if value is None:
        return ps.sysfs_read(path)
    return ps.sysfs_write(path, value)


def ids(sock):
    return sorted(map(int, os.listdir(f"{ps.sysfs_dir(sock)}/members")))


def on_device(name):
    return lambda sock: sock.setsockopt(socket.SOL_SOCKET,
                                        socket.SO_BINDTODEVICE, name.encode())


@test
def layout():
    """files, modes and what a fresh group says"""
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = pool.server(kind, family, net.port(), ps.member())
            directory = ps.sysfs_dir(sock)
            equal(ps.sysfs_names(), [ps.name(sock)], f"{text}: the one group")
            equal(ps.sysfs_files(directory), fresh(sock), f"{text}: all its files")
            writable = {*FLAGS, *NUMBERS, "policy", "members/0/state"}
            modes = {name: stat.S_IMODE(os.stat(f"{directory}/{name}").st_mode)
                     for name in fresh(sock)}
            equal(modes, {name: 0o644 if name in writable else 0o444
                          for name in modes}, f"{text}: their modes")
            equal({os.stat(f"{directory}/{name}").st_uid for name in modes},
                  {0}, f"{text}: root's here")
            ok(not os.path.exists(f"{directory}/power"),
               f"{text}: no power management")


@test
def numbers():
    """both ways: what is written is set, what is set can be read"""
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = pool.server(kind, family, net.port(), ps.member())
            for path, (option, good, bad) in NUMBERS.items():
                for value in good:
                    for end in "\n", "":
                        at(sock, path, f"{value}{end}")
                    equal(at(sock, path), str(value),
                          f"{text}: {path} = {value}")
                    if option:
                        equal(ps.get(sock, getattr(ps, option)), value,
                              f"{text}: {option} after {path} = {value}")
                for value in good if option else ():
                    ps.set(sock, getattr(ps, option), value)
                    equal(at(sock, path), str(value),
                          f"{text}: {option} = {value}")
                before = ps.sysfs_files(ps.sysfs_dir(sock))
                wrong = [value for value in
                         (*(str(v).encode() for v in bad), *NONSENSE)
                         if tap.error_of(at, sock, path, value) != "EINVAL"]
                equal(wrong, [], f"{text}: {path}: EINVAL")
                equal(ps.sysfs_files(ps.sysfs_dir(sock)), before,
                      f"{text}: {path}: nothing changed")
            for value in (b"000", b"-0", b"0"):
                at(sock, "affinity", value)
            equal(ps.sysfs_files(ps.sysfs_dir(sock)), fresh(sock),
                  f"{text}: all as before")


@test
def seen_by_info():
    """INFO and /proc say what an operator has set"""
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = pool.server(kind, family, net.port(), ps.member("rr", 3))
            for name, value in (("state", "standby"), ("weight", 5),
                                ("cpu", LAST_CPU), ("rx_queue", 6),
                                ("generation", 7)):
                at(sock, f"members/3/{name}", value)
            at(sock, "working_generation", 8)
            at(sock, "policy", "least")
            info = ps.info(sock)
            equal((info.state, info.weight, info.cpu, info.rx_queue,
                   info.generation, info.working_generation, info.policy),
                  (ps.STANDBY, 5, LAST_CPU, 6, 7, 8, "least"),
                  f"{text}: INFO")
            group = ps.group(sock)
            equal((group["policy"], group["working_generation"]),
                  ("least", 8), f"{text}: /proc, the group")
            shown = {name: group.members[0][name] for name in (
                "id", "state", "weight", "cpu", "rx_queue", "generation")}
            equal(shown, {"id": 3, "state": "standby", "weight": 5,
                          "cpu": LAST_CPU, "rx_queue": 6, "generation": 7},
                  f"{text}: /proc, the member")


@test
def flags():
    """0 or 1"""
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = pool.server(kind, family, net.port(), ps.member())
            for path in FLAGS:
                for value in (1, 0, 1, 0, int(GROUP[path])):
                    for end in "\n", "":
                        at(sock, path, f"{value}{end}")
                    equal((at(sock, path), ps.group(sock)[path]),
                          (str(value), value), f"{text}: {path} = {value}")
                wrong = [value for value in
                         (b"2", b"-1", b"256", b"y", b"on", *NONSENSE)
                         if tap.error_of(at, sock, path, value) != "EINVAL"]
                equal(wrong, [], f"{text}: {path}: EINVAL")
                equal(ps.sysfs_files(ps.sysfs_dir(sock)), fresh(sock),
                      f"{text}: {path}: nothing changed")


@test
def states():
    """by name or number"""
    path = "members/0/state"
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = pool.server(kind, family, net.port(), ps.member())
            for value in (2, 1, 0):
                for written in (str(value), STATES[value]):
                    for end in "", "\n":
                        at(sock, path, "standby")
                        at(sock, path, written + end)
                        equal((at(sock, path), ps.get(sock, ps.STATE)),
                              (STATES[value], value),
                              f"{text}: {(written + end)!r}")
            for value in (2, 1, 0):
                ps.set(sock, ps.STATE, value)
                equal(at(sock, path), STATES[value], f"{text}: STATE {value}")
            wrong = [value for value in
                     (b"3", b"-1", b"Active", b"act", b"activee", b"active ",
                      b" active", b"active\n\n", b"active\0", b"\0active",
                      b"active standby", *NONSENSE)
                     if tap.error_of(at, sock, path, value) != "EINVAL"]
            equal(wrong, [], f"{text}: EINVAL")
            equal(ps.sysfs_files(ps.sysfs_dir(sock)), fresh(sock),
                  f"{text}: nothing changed")


@test
def policies():
    """all are shown, one is chosen"""
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = pool.server(kind, family, net.port(), ps.member("rr"))
            for name in (*ps.POLICIES, *reversed(ps.POLICIES)):
                for end in "", "\n":
                    at(sock, "policy", name + end)
                shown = " ".join(f"[{n}]" if n == name else n
                                 for n in ps.POLICIES)
                equal((at(sock, "policy"), ps.policy(sock),
                       ps.group(sock)["policy"]), (shown, name, name),
                      f"{text}: {name}")
            for name in ps.POLICIES:
                ps.set_policy(sock, name)
                equal(current(at(sock, "policy")), name,
                      f"{text}: POLICY {name}")
            ps.set_policy(sock, "hash")
            wrong = [value for value in
                     (b"none", b"RR", b"[rr]", b"rr ", b" rr", b"rr\n\n",
                      b"rr\0", b"\0rr", b"r", b"rrr", b"rr hash", b"x" * 16,
                      b"0", *NONSENSE)
                     if tap.error_of(at, sock, "policy", value) != "EINVAL"]
            equal(wrong, [], f"{text}: EINVAL")
            equal(ps.sysfs_files(ps.sysfs_dir(sock)), fresh(sock),
                  f"{text}: nothing changed")


@test
def read_only():
    """counters can't be written, whoever tries"""
    with Pool() as pool:
        sock = pool.server("tcp", INET, net.port(), ps.member())
        for path in fresh(sock):
            if stat.S_IMODE(os.stat(f"{ps.sysfs_dir(sock)}/{path}").st_mode) \
                    == 0o444:
                fails(("EIO", "EACCES"), path, at, sock, path, 1)
        equal(ps.sysfs_files(ps.sysfs_dir(sock)), fresh(sock), "nothing changed")


@test
def steers():
    """what is written is what packets go by"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(4, kind, family, port, ps.member())
            here = net.LOOPBACK[family], port

            def shares(count):
                return net.counts(net.burst(servers, here, count), 4)

            at(servers[0], "policy", "rr")
            equal(shares(8), [2] * 4, f"{text}: policy")
            at(servers[0], "members/1/state", "draining")
            equal(shares(9), [3, 0, 3, 3], f"{text}: state")
            at(servers[0], "members/1/state", "active")
            for number in range(2):
                at(servers[0], f"members/{number}/generation", 1)
            at(servers[0], "working_generation", 1)
            equal(shares(8), [4, 4, 0, 0], f"{text}: working_generation")
            at(servers[0], "working_generation", -1)
            equal((at(servers[0], "stats/flows"),
                   at(servers[0], "stats/flows_full")), ("0", "0"),
                  f"{text}: no flow is remembered any more")
            for number, weight in enumerate((1, 2, 3, 4)):
                at(servers[0], f"members/{number}/weight", weight)
            equal(shares(20), [2, 4, 6, 8], f"{text}: weight")

            equal([at(servers[0], f"members/{i}/picked") for i in range(4)],
                  ["11", "10", "11", "13"], f"{text}: picked by each")
            equal(at(servers[0], "stats/picked"), "45", f"{text}: and by all")
            servers[3].close()
            equal(at(servers[0], "stats/picked"), "45",
                  f"{text}: also by who has left")


@test
def backlog():
    """connections or bytes that wait"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            sock = pool.server(kind, family, port, ps.member())
            here = net.LOOPBACK[family], port
            for _ in range(3):
                pool.add(net.client(kind, here))
            waiting = proc.wait_for(
                lambda: int(at(sock, "members/0/backlog")))
            ok(waiting == 3 if kind == "tcp" else waiting > 3,
               f"{text}: three clients", waiting)
            net.take_all([sock], 3)
            equal(at(sock, "members/0/backlog"), "0", f"{text}: taken")


@test
def locked():
    """programs can't change the group, operators can"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            sock = pool.server(kind, family, port, ps.member("rr"))
            at(sock, "locked", 1)
            before = ps.sysfs_files(ps.sysfs_dir(sock))
            fails("EPERM", f"{text}: POLICY", ps.set_policy, sock, "hash")
            fails("EPERM", f"{text}: WORKING_GENERATION", ps.set, sock,
                  ps.WORKING_GENERATION, 1)
            fails("EPERM", f"{text}: AFFINITY", ps.set, sock, ps.AFFINITY, 1)
            equal(ps.sysfs_files(ps.sysfs_dir(sock)), before,
                  f"{text}: nothing changed")
            for path, (option, good, _) in NUMBERS.items():
                if not path.startswith("members/"):
                    continue
                ps.set(sock, getattr(ps, option), good[0])
                equal(at(sock, path), str(good[0]), f"{text}: {option}")
            ps.set(sock, ps.STATE, ps.DRAINING)
            ps.set(sock, ps.ID, 9)
            equal(at(sock, "members/9/state"), "draining",
                  f"{text}: STATE and ID")
            pool.server(kind, family, port, ps.member())
            equal(ids(sock), [0, 9], f"{text}: others may join")

            at(sock, "policy", "least")
            at(sock, "working_generation", 3)
            at(sock, "affinity", 4)
            for path, value in (("affinity_flows", 128), ("quic_offset", 5),
                                ("quic_length", 6)):
                at(sock, path, value)
                equal(at(sock, path), str(value),
                      f"{text}: {path}, an operator")
            equal((ps.policy(sock), ps.get(sock, ps.WORKING_GENERATION),
                   ps.get(sock, ps.AFFINITY)), ("least", 3, 4),
                  f"{text}: an operator")
            at(sock, "locked", 0)
            ps.set_policy(sock, "rr")
            equal(current(at(sock, "policy")), "rr", f"{text}: and again")


@test
def comes_and_goes():
    """there when bind() returns, gone when close() does"""
    for text, kind, family in combinations():
        seen = []
        for _ in range(20):
            port = net.port()
            with net.new(kind, family) as sock:
                ps.join(sock)
                seen.append(ps.sysfs_names() == [])
                sock.bind((net.WILDCARD[family], port))
                seen.append(ids(sock) == [0])
                if kind == "tcp":
                    sock.listen()
                    seen.append(ids(sock) == [0])
                with net.server(kind, family, port, ps.member()) as other:
                    seen.append(ids(sock) == [0, 1])
                    ps.leave(other)
                    seen.append(ids(sock) == [0])
                    ps.join(other)
                    seen.append(ids(sock) == [0, 1])
                seen.append(ids(sock) == [0])
            seen.append(ps.sysfs_names() == [])
        ok(all(seen), f"{text}: 20 times", seen)


@test
def one_name():
    """groups of the same name, one after the other"""
    for text, kind, family in combinations():
        port = net.port()
        wrong = []
        for turn in range(100):
            with net.server(kind, family, port, ps.member(weight=turn + 1),
                            net.reuseaddr) as sock:
                directory = ps.sysfs_dir(sock)
                shown = at(sock, "members/0/weight"), ps.sysfs_names()
                if shown != (str(turn + 1), [ps.name(sock)]):
                    wrong.append((turn, shown))
            if os.path.exists(directory):
                wrong.append(turn)
        equal(wrong, [], f"{text}: 100 of them")


@test
def killed():
    """a process dies"""
    def serve(link):
        with Pool() as pool:
            for _, kind, family in combinations():
                pool.servers(3, kind, family, net.port(), ps.member())
            link.send(ps.sysfs_names())
            link.recv()

    with proc.Child(serve) as child:
        names = child.get()
        equal((len(names), ps.sysfs_names()),
              (len(list(combinations())), names), "all there")
        child.kill()
        ok(proc.wait_for(lambda: not ps.sysfs_names()), "all gone",
           ps.sysfs_names())


@test
def duplicated():
    """a dup keeps the member, which can be drained by id"""
    with Pool() as pool:
        port = net.port()
        keeper = pool.server("tcp", INET, port, ps.member("rr"))
        sock = net.server("tcp", INET, port, ps.member())
        pool.add(sock.dup())
        sock.close()
        equal(ids(keeper), [0, 1], "still there")
        at(keeper, "members/1/state", "draining")
        reached = net.burst([keeper], ("127.0.0.1", port), 4)
        equal(reached, [0] * 4, "and drained")


@test
def new_ids():
    """a member's directory follows its id"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            socks = pool.servers(3, kind, family, port, ps.member())
            ps.set(socks[1], ps.WEIGHT, 7)
            ps.set(socks[1], ps.ID, 65535)
            equal((ids(socks[0]), at(socks[0], "members/65535/weight")),
                  ([0, 2, 65535], "7"), f"{text}: moved")
            ps.set(socks[2], ps.ID, 1)
            ps.set(socks[0], ps.ID, 2)
            equal(ids(socks[0]), [1, 2, 65535], f"{text}: moved around")
            equal([at(socks[0], f"members/{i}/inode") for i in (2, 65535, 1)],
                  [str(os.fstat(s.fileno()).st_ino) for s in socks],
                  f"{text}: whose they are")
            at(socks[0], "members/2/weight", 9)
            equal([ps.get(s, ps.WEIGHT) for s in socks], [9, 7, 1],
                  f"{text}: and what is written to them")
            fails("EEXIST", f"{text}: a taken id", ps.set, socks[0], ps.ID, 1)
            equal(ids(socks[0]), [1, 2, 65535], f"{text}: stays")

            fd = os.open(f"{ps.sysfs_dir(socks[0])}/members/1/weight",
                         os.O_RDWR)
            socks[2].close()
            fails("ENODEV", f"{text}: a file of one that left", os.read, fd, 9)
            fails("ENODEV", f"{text}: nor can it be written", os.write, fd,
                  b"1")
            os.close(fd)


@test
def many():
    """500 members"""
    count = 100 if QUICK else 500
    for kind in net.TYPES:
        port = net.port()
        with Pool() as pool:
            socks = [net.server(kind, INET, port, ps.member())
                     for _ in range(count)]
            for sock in socks:
                pool.add(sock)
            equal(ids(socks[0]), list(range(count)), f"{kind}: all there")
            order = list(range(1, count))
            random.Random(1).shuffle(order)
            for index in order[:count // 2]:
                socks[index].close()
            equal(ids(socks[0]), sorted([0, *order[count // 2:]]),
                  f"{kind}: half of them closed")
        equal(ps.sysfs_names(), [], f"{kind}: all closed")


@test
def names():
    """addresses, devices, and two that would share a name"""
    port = net.port()
    with Pool() as pool:
        def add(family, addr, *prepare, kind="tcp"):
            return pool.server(kind, family, port, ps.member(), *prepare,
                               addr=addr)

        add(INET, "127.0.0.1")
        add(INET, "127.0.0.2", kind="udp")
        add(INET, "127.0.0.3", on_device("lo"))
        add(INET, "0.0.0.0", on_device("lo"), kind="udp")
        expected = [f"tcp:127.0.0.1:{port}", f"udp:127.0.0.2:{port}",
                    f"tcp:127.0.0.3%lo:{port}", f"udp:0.0.0.0%lo:{port}"]
        if INET6 in net.FAMILIES:
            add(INET6, "::1")
            add(INET6, "::1", on_device("lo"))
            add(INET6, "::ffff:127.0.0.9")
            expected += [f"tcp:[::1]:{port}", f"tcp:[::1]%lo:{port}",
                         f"tcp:[::ffff:127.0.0.9]:{port}"]
        equal(ps.sysfs_names(), sorted(expected), "as they are called")
        equal(sorted(ps.table()), sorted(expected), "also in /proc")
    equal(ps.sysfs_names(), [], "all gone")


@test
def twins():
    """~2 and ~3, and each is its own group's"""
    net.need_ipv6()
    port = net.port()
    name = f"udp:[::]:{port}"

    def theirs(link):
        """Another uid may share a UDP port by SO_REUSEADDR."""
        link.recv()
        proc.become_nobody()
        with net.server("udp", INET6, port, ps.member(weight=30),
                        net.reuseaddr, net.v6only):
            link.send("up")
            link.recv()

    def weights(*names):
        path = f"{ns.sysfs()}/class/portsteer/{{}}/members/0/weight"
        return [ps.sysfs_read(path.format(n)) for n in names]

    with proc.Child(theirs) as child, Pool() as pool:
        first = pool.server("udp", INET6, port, ps.member(weight=10),
                            net.reuseaddr)
        second = pool.server("udp", INET6, port, ps.member(weight=20),
                             net.reuseaddr, net.v6only)
        all_names = [name, f"{name}~2"]
        try:
            child.ask("bind")
            all_names.append(f"{name}~3")
        except RuntimeError:
            tap.diag("no third one: the kernel doesn't let another uid bind")
        equal(ps.sysfs_names(), all_names, "their names")
        equal(weights(*all_names), ["10", "20", "30"][:len(all_names)],
              "whose they are")
        first.close()
        equal(ps.sysfs_names(), all_names[1:], "the first one goes")
        third = pool.server("udp", INET6, port, ps.member(weight=40),
                            net.reuseaddr)
        equal(weights(name, f"{name}~2"), ["40", "20"], "its name is free")
        second.close()
        third.close()
    ok(proc.wait_for(lambda: not ps.sysfs_names()), "all gone",
       ps.sysfs_names())


@test
def renamed_device():
    """a directory keeps its name; another one's doesn't collide with it"""
    def ip(*args):
        done = subprocess.run(["ip", "link", *args], capture_output=True,
                              text=True)
        if done.returncode:
            raise tap.Skip(f"ip link {args}: {done.stderr.strip()}")

    port = net.port()
    name = f"tcp:0.0.0.0%psold:{port}"
    space = ns.Namespace()
    with space, Pool() as pool:
        ip("add", "psold", "type", "veth", "peer", "name", "pspeer")
        first = pool.server("tcp", INET, port, ps.member(weight=5),
                            on_device("psold"))
        equal(ps.sysfs_names(), [name], "the first")
        ip("set", "psold", "name", "psnew")
        ip("add", "psold", "type", "veth", "peer", "name", "pspeer2")
        second = pool.server("tcp", INET, port, ps.member(weight=6),
                             on_device("psold"))
        equal(ps.sysfs_names(), [name, f"{name}~2"], "the second")
        root = f"{ns.sysfs()}/class/portsteer"
        equal([ps.sysfs_read(f"{root}/{n}/members/0/weight")
               for n in (name, f"{name}~2")], ["5", "6"], "whose they are")
        first.close()
        equal(ps.sysfs_names(), [f"{name}~2"], "one goes")
        second.close()
        equal(ps.sysfs_names(), [], "and the other")
    space.close()


@test
def adopted():
    """by a rule: its words can be read, and what is written goes with it"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            ps.rule(f"add {kind} {port} policy=rr lock=1 migrate=0")
            equal(ps.sysfs_names(), [], f"{text}: a rule is no group")
            socks = pool.servers(2, kind, family, port, net.reuseport)
            equal((current(at(socks[0], "policy")), at(socks[0], "locked"),
                   at(socks[0], "migrate"), ids(socks[0])),
                  ("rr", "1", "0", [0, 1]), f"{text}: what the rule says")
            at(socks[0], "members/1/weight", 3)
            at(socks[0], "members/1/generation", 2)
            equal(ps.info(socks[1]).weight, 3, f"{text}: written")
            ps.rule(f"del {kind} {port}")
            equal(ps.sysfs_names(), [], f"{text}: gone with the rule")
            fails("ENOENT", f"{text}: nothing is kept", ps.get, socks[1],
                  ps.WEIGHT)
            ok(ps.disarmed(), f"{text}: the hooks are disarmed", ps.hooks())
            ps.rule(f"add {kind} {port} policy=hash")
            equal((current(at(socks[0], "policy")), ids(socks[0])),
                  ("hash", [0, 1]), f"{text}: bound before the rule")
            ps.rule("clear")
            equal(ps.sysfs_names(), [], f"{text}: gone again")


@test
def namespaces():
    """each sees its own, and takes it along"""
    port = net.port()
    with Pool() as pool:
        ours = pool.server("tcp", INET, port, ps.member(weight=2))
        for turn in range(5):
            space = ns.Namespace()
            with space, Pool() as inside:
                equal(ps.sysfs_names(), [], f"{turn}: nothing at first")
                theirs = inside.server("tcp", INET, port,
                                       ps.member(weight=3))
                inside.server("udp", INET, port, ps.member())
                equal(ps.sysfs_names(),
                      [ps.name(theirs), f"udp:0.0.0.0:{port}"],
                      f"{turn}: its own")
                at(theirs, "members/0/weight", 4)
                at(theirs, "policy", "rr")
            equal((ps.sysfs_names(), at(ours, "members/0/weight"),
                   ps.policy(ours)), ([ps.name(ours)], "2", "hash"),
                  f"{turn}: ours is as it was")
            space.close()
        equal(ps.sysfs_files(ps.sysfs_dir(ours)),
              fresh(ours, **{"members/0/weight": "2"}), "to the end")


@test
def dying_namespace():
    """a namespace dies with a group in use"""
    def inside(link):
        space = ns.Namespace()
        with space:
            pool = Pool()
            for _, kind, family in combinations():
                pool.servers(3, kind, family, net.port(), ps.member())
            link.send(len(ps.sysfs_names()))
        link.recv()

    for turn in range(5):
        with proc.Child(inside) as child:
            equal(child.get(), len(list(combinations())),
                  f"{turn}: its groups")
    equal(ps.sysfs_names(), [], "none of them here")


@test
def unprivileged():
    """may read all and write nothing"""
    with Pool() as pool:
        sock = pool.server("tcp", INET, net.port(), ps.member())
        directory = ps.sysfs_dir(sock)
        before = ps.sysfs_files(directory)
        equal(proc.as_nobody(ps.sysfs_files, directory), before, "reads all")

        def attempt():
            return {name: tap.error_of(ps.sysfs_write, f"{directory}/{name}",
                                       before[name])
                    for name in before}

        equal(set(proc.as_nobody(attempt).values()), {"EACCES"},
              "writes none")
        equal(ps.sysfs_files(directory), before, "nothing changed")


@test
def owner():
    """nobody, as root of its own namespaces, writes to its own groups"""
    def inside(link):
        proc.become_nobody()
        ns.own_everything()
        with Pool() as pool:
            sock = pool.server("tcp", INET, port, ps.member())
            directory = ps.sysfs_dir(sock)
            link.send((ps.sysfs_names(), ps.sysfs_files(directory) == fresh(sock)))
            owners = {os.stat(path).st_uid for path, _, _ in
                      os.walk(directory)}
            owners |= {os.stat(f"{directory}/{name}").st_uid
                       for name in fresh(sock)}
            link.send(owners)
            errors = []
            for path, (_, good, _) in NUMBERS.items():
                errors.append(tap.error_of(at, sock, path, good[0]))
            errors.append(tap.error_of(at, sock, "policy", "rr"))
            errors.append(tap.error_of(at, sock, "members/0/state",
                                       "standby"))
            for path in FLAGS:
                errors.append(tap.error_of(at, sock, path, "1"))
            link.send(errors)
            link.send((ps.policy(sock), ps.get(sock, ps.STATE),
                       at(sock, "locked")))
            link.recv()

    port = net.port()
    with Pool() as pool, proc.Child(inside) as child:
        ours = pool.server("tcp", INET, port, ps.member())
        equal(child.get(), ([ps.name(ours)], True), "sees its own")
        equal(child.get(), {0}, "which is root's, there")
        equal(set(child.get()), {None}, "writes to each")
        equal(child.get(), ("rr", ps.STANDBY, "1"), "and it is done")
        equal(ps.sysfs_files(ps.sysfs_dir(ours)), fresh(ours), "ours is as it was")


def read_all(link, seed):
    """Read, and write what was read, until told to stop."""
    choose = random.Random(seed)
    allowed = errno.ENOENT, errno.ENODEV
    root = f"{ns.sysfs()}/class/portsteer"
    count, wrong = 0, []
    os.nice(19)		# a busy guest's rmmod has to get its turn
    link.send("up")
    while not link.poll(0):
        # Walking would take a directory that vanishes for an empty one.
        paths = [root]
        while paths and not link.poll(0):
            path = paths.pop(choose.randrange(len(paths)))
            try:
                try:
                    paths += [f"{path}/{name}" for name in os.listdir(path)
                              if name not in ("subsystem", "rules")]
                    continue
                except NotADirectoryError:
                    pass
                value = ps.sysfs_read(path)
                count += 1
                if "[" in value:
                    value = current(value)
                if value and os.stat(path).st_mode & 0o200:
                    ps.sysfs_write(path, value)
            except OSError as error:
                if error.errno not in allowed:
                    wrong.append(f"{path}: {error}")
    link.send((count, wrong[:10]))


def churn(link, seed, port):
    """Sockets that join, change and leave until told to stop."""
    choose = random.Random(seed)
    count = 0
    link.send("up")
    while not link.poll(0):
        with Pool() as pool:
            family = choose.choice(net.FAMILIES)
            for _ in range(choose.randrange(1, 6)):
                sock = pool.server("udp", family, port, ps.member())
                tap.error_of(ps.set, sock, ps.ID, choose.randrange(20))
                count += 1
    link.send(count)


@test
def under_churn():
    """four read and write while sockets come and go"""
    port = net.port()
    with Pool() as pool:
        readers = [pool.enter_context(proc.Child(read_all, i))
                   for i in range(4)]
        members = [pool.enter_context(proc.Child(churn, i, port))
                   for i in range(2)]
        for child in readers + members:
            child.get()
        proc.wait_for(lambda: False, 5 if QUICK else 20)
        joined = [child.ask("stop") for child in members]
        results = [child.ask("stop") for child in readers]
        ok(all(joined), "sockets joined", joined)
        ok(all(count for count, _ in results), "files were read", results)
        equal([line for _, wrong in results for line in wrong], [],
              "nothing but what had gone was refused")
        tap.diag(f"{joined} joined, {[count for count, _ in results]} read")
    equal(ps.sysfs_names(), [], "nothing is left")


@test
def unload_held():
    """rmmod while files are held open"""
    with Pool() as pool:
        socks = [pool.server(kind, family, net.port(), ps.member())
                 for _, kind, family in combinations()]
        held = []
        for sock in socks:
            for name in fresh(sock):
                path = f"{ps.sysfs_dir(sock)}/{name}"
                writable = os.stat(path).st_mode & 0o200
                fd = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
                held.append((fd, writable))
                pool.callback(os.close, fd)
        for fd, _ in held[::2]:
            os.read(fd, 1)
        inside = os.open(f"{ps.sysfs_dir(socks[0])}/members", os.O_RDONLY)
        pool.callback(os.close, inside)
        ps.unload()
        ok(not ps.loaded(), "rmmod succeeds")
        equal({tap.error_of(os.pread, fd, 64, 0) for fd, _ in held},
              {"ENODEV"}, "reads fail")
        equal({tap.error_of(os.pwrite, fd, b"1", 0)
               for fd, writable in held if writable}, {"ENODEV"},
              "writes fail")
        equal(os.listdir(inside), [], "a directory is empty")
        ok(not os.path.exists("/sys/class/portsteer"), "the class is gone")
        ok(not os.path.exists("/sys/devices/virtual/portsteer"),
           "also among the devices")
        ps.load()
        equal(ps.sysfs_names(), [], "loaded again there is none")
        for sock in socks:
            ps.join(sock)
        equal(ps.sysfs_names(), sorted(ps.name(s) for s in socks),
              "until they join again")


@test
def unload_read():
    """rmmod while files are read and written"""
    with Pool() as pool:
        socks = [pool.server("udp", INET, net.port(), ps.member())
                 for _ in range(10)]
        readers = [pool.enter_context(proc.Child(read_all, i))
                   for i in range(2)]
        for child in readers:
            child.get()
        for _ in range(1 if QUICK else 5):
            proc.wait_for(lambda: False, 0.3)
            ps.unload()
            ps.load()
            for sock in socks:
                ps.join(sock)
        results = [child.ask("stop") for child in readers]
        ok(all(count for count, _ in results), "files were read", results)
        equal([line for _, wrong in results for line in wrong], [],
              "nothing but what had gone was refused")
        equal(len(ps.sysfs_names()), 10, "all groups are back")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, 300)
