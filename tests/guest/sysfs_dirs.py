#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900
"""/sys/class/portsteer: which directories there are and what they are called,
while sockets, namespaces and the module come and go. Contract: DESIGN.md
2.2."""
import errno
import os
import random
import socket
import subprocess

from lib import net, ns, proc, ps, tap
from lib.files import at, current, fresh, ids
from lib.net import INET, INET6, Pool, combinations
from lib.tap import equal, fails, ok, test

QUICK = os.environ.get("PS_QUICK")


def on_device(name):
    return lambda sock: sock.setsockopt(socket.SOL_SOCKET,
                                        socket.SO_BINDTODEVICE, name.encode())


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


def read_all(link, seed, nice=0):
    """Read, and write what was read, until told to stop."""
    choose = random.Random(seed)
    allowed = errno.ENOENT, errno.ENODEV
    root = f"{ns.sysfs()}/class/portsteer"
    count, wrong = 0, []
    os.nice(nice)
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
        # a busy guest's rmmod has to get its turn
        readers = [pool.enter_context(proc.Child(read_all, i, 19))
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
