#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What docs/security.md claims and no other test shows: who may do what, what
is told to whom, and what is never told."""
import contextlib
import ctypes
import os
import re
import socket
import stat
import subprocess
import tempfile
import time

from lib import net, ns, proc, ps, tap
from lib.net import INET, Pool, combinations
from lib.tap import equal, fails, ok, test

SECRET = bytes(range(0xa1, 0xc1))	# 32 octets that nothing else has
CLASS = "/sys/class/portsteer"
STRANGER = 4242
PERF_EVENT_OPEN = 298			# the system call, on x86-64
# As %px, %p and %pS print them.
ADDRESS = re.compile(rb"\b(0x)?[0-9a-f]{16}\b|\+0x[0-9a-f]+/0x")
TOUCHES = 40 if os.environ.get("PS_QUICK") else 200


def everything_told(sock, *directories):
    """All that the module says about a socket's group, and of itself."""
    found = [sock.getsockopt(ps.level(sock), ps.INFO, 1024),
             sock.getsockopt(ps.level(sock), ps.POLICY, 1024)]
    paths = ["/proc/thread-self/net/portsteer", ps.rules_path()]
    for directory in (ps.sysfs_dir(sock), "/sys/module/portsteer/parameters",
                      *directories):
        for path, _, names in os.walk(directory):
            paths += [f"{path}/{name}" for name in names]
    for path in paths:
        with contextlib.suppress(PermissionError), open(path, "rb") as file:
            found.append(file.read())
    return found


@contextlib.contextmanager
def tracing():
    """Every event of the module goes to the buffer while the block runs."""
    if not os.path.exists(f"{ps.TRACING}/events"):
        ns.mount("tracefs", ps.TRACING, "tracefs")
    switch = f"{ps.TRACING}/events/portsteer/enable"
    ps.sysfs_write(f"{ps.TRACING}/trace", "")
    ps.sysfs_write(switch, 1)
    try:
        yield
    finally:
        ps.sysfs_write(switch, 0)


def traced():
    """The buffer, as text and as it is: the events' own lines and bytes."""
    with open(f"{ps.TRACING}/trace", "rb") as file:
        lines = [line for line in file.read().splitlines()
                 if not line.startswith(b"#")]
    return lines


def as_stranger(function, *args):
    """Run it as a user that is neither root nor nobody."""
    def main():
        os.setgroups([])
        os.setresgid(STRANGER, STRANGER, STRANGER)
        os.setresuid(STRANGER, STRANGER, STRANGER)
        return function(*args)
    return proc.call(main)


def send(link, file):
    """Hand an open file to another process."""
    link.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                           file.fileno().to_bytes(4, "little"))])


def receive(link):
    """The descriptor of one that was handed over."""
    _, ancillary, _, _ = link.recvmsg(1, socket.CMSG_SPACE(4))
    return int.from_bytes(ancillary[0][2], "little")


# Who may do what

@test
def other_uid_with_descriptor():
    """a socket handed on serves whom it serves; its uid stays its maker's"""
    for text, kind, family in combinations():
        port = net.port()
        ours, theirs = socket.socketpair()

        def receiver(link):
            proc.become_nobody()
            sock = socket.socket(fileno=receive(theirs))
            errors = [tap.error_of(ps.set, sock, ps.WEIGHT, 7),
                      tap.error_of(ps.set, sock, ps.STATE, ps.DRAINING),
                      tap.error_of(ps.set_policy, sock, "rr"),
                      tap.error_of(ps.leave, sock),
                      tap.error_of(ps.join, sock)]
            link.send(errors)
            mine = net.new(kind, family)
            ps.join(mine)
            link.send(tap.error_of(mine.bind, (net.WILDCARD[family], port)))
            link.recv()
            link.send(tap.error_of(ps.set_policy, sock, "hash"))
            link.send(tap.error_of(ps.set, sock, ps.WEIGHT, 8))
            link.recv()

        with Pool() as pool, ours, theirs:
            sock = pool.server(kind, family, port, ps.member())
            witness = pool.server(kind, family, port, ps.member())
            with proc.Child(receiver) as child:
                send(ours, sock)
                equal(child.get(), [None] * 5,
                      f"{text}: who holds it may do all that it may")
                equal(child.get(), "EADDRINUSE",
                      f"{text}: but has no socket of its own there")
                equal((ps.info(witness).members, ps.policy(witness)),
                      (2, "rr"), f"{text}: it is in our group again")
                ps.sysfs_write(f"{ps.sysfs_dir(sock)}/locked", 1)
                equal(child.ask("locked"), "EPERM",
                      f"{text}: locked, the group's options are refused")
                equal(child.get(), None, f"{text}: a member's own aren't")


@test
def uid_of_the_maker():
    """who changes its uid after socket() binds as who it was"""
    for text, kind, family in combinations():
        port = net.port()

        def maker(link):
            sock = net.new(kind, family)
            ps.join(sock)
            proc.become_nobody()
            sock.bind((net.WILDCARD[family], port))
            if kind == "tcp":
                sock.listen()
            link.send(ps.info(sock).members)
            link.recv()

        with Pool() as pool, proc.Child(maker) as child:
            equal(child.get(), 1, f"{text}: bound")
            sock = pool.server(kind, family, port, ps.member())
            equal(ps.info(sock).members, 2, f"{text}: root's group all the same")


@test
def groups_above():
    """root of a user namespace below has no rights above by that"""
    with Pool() as pool:
        sock = pool.server("tcp", INET, net.port(), ps.member())
        directory = ps.sysfs_dir(sock)
        names = "policy", "locked", "members/0/state", "members/0/weight"

        def below(become):
            become()
            uid = os.getuid()
            ns.unshare(ns.CLONE_NEWUSER | ns.CLONE_NEWNET)
            ctypes.CDLL(None).prctl(proc.PR_SET_DUMPABLE, 1, 0, 0, 0)
            with open("/proc/self/uid_map", "w") as file:
                file.write(f"0 {uid} 1")
            # /sys is still that of the namespace above
            return ({tap.error_of(ps.sysfs_write, f"{directory}/{name}", 1)
                     for name in names},
                    tap.error_of(ps.sysfs_write, f"{directory}/policy", "rr"),
                    tap.error_of(ps.rule, "clear"))

        equal(proc.call(below, proc.become_nobody),
              ({"EACCES"}, "EACCES", "EPERM"), "nobody: no groups, no rules")
        equal(ps.policy(sock), "hash", "nothing has changed")
        # A file's owner is a uid: root's here, whatever it can do.
        equal(proc.call(below, lambda: None)[1:], (None, "EPERM"),
              "root without capabilities here: its files, but no rules")


@test
def groups_below():
    """an administrator reaches what is below through that one's own sysfs"""
    def inside(link):
        proc.become_nobody()
        ns.own_everything()
        with Pool() as pool:
            sock = pool.server("tcp", INET, net.port(), ps.member())
            link.send((os.getpid(), ps.name(sock)))
            link.recv()
            link.send((ps.policy(sock), ps.rules()))
            link.recv()

    with proc.Child(inside) as child:
        _, name = child.get()
        theirs = f"/proc/{child.pid}/root/sys/class/portsteer"
        equal(os.listdir(CLASS), ["rules"], "none of it is seen here")
        ok(not os.path.exists(f"/sys/devices/virtual/portsteer/{name}"),
           "nor among the devices")
        equal(as_stranger(tap.error_of, os.listdir, theirs), "EACCES",
              "another user doesn't get there")
        ps.sysfs_write(f"{theirs}/{name}/policy", "rr")
        ps.sysfs_write(f"{theirs}/rules", "add udp 53 policy=rr")
        equal(child.ask("look"), ("rr", [("udp", 53, "rr")]),
              "an administrator steers it there")


@test
def devices():
    """another namespace's groups aren't among the devices, either"""
    with Pool() as pool:
        sock = pool.server("udp", INET, net.port(), ps.member())
        here = f"/sys/devices/virtual/portsteer/{ps.name(sock)}"
        ok(os.path.isdir(here), "ours are")
        space = ns.Namespace()
        with space:
            other = pool.server("tcp", INET, net.port(), ps.member())
            there = f"{ns.sysfs()}/devices/virtual/portsteer"
            equal(os.listdir(there), [ps.name(other)], "its own there")
            other.close()
        space.close()


@test
def descriptor_of_rules():
    """who writes counts, not who opened the file"""
    line = f"add tcp {net.port()} policy=rr".encode()
    fd = os.open(ps.rules_path(), os.O_WRONLY)
    try:
        equal(proc.as_nobody(tap.error_of, os.write, fd, line), "EPERM",
              "opened by root, written by nobody")
    finally:
        os.close(fd)
    equal(ps.rules(), [], "nothing is set")

    # README, "Honest limits": this is what a privileged program is not to do.
    def opener(link):
        proc.become_nobody()
        send(theirs, os.fdopen(os.open(ps.rules_path(), os.O_WRONLY), "wb"))
        link.recv()

    ours, theirs = socket.socketpair()
    with ours, theirs, proc.Child(opener):
        fd = receive(ours)
        os.write(fd, line)
        os.close(fd)
    equal(len(ps.rules()), 1, "opened by nobody, written by root: done")


@test
def descriptor_of_group():
    """an open file of a group can be written by whom it was given to"""
    with Pool() as pool:
        sock = pool.server("tcp", INET, net.port(), ps.member())
        path = f"{ps.sysfs_dir(sock)}/policy"
        equal(proc.as_nobody(tap.error_of, ps.sysfs_write, path, "rr"),
              "EACCES", "nobody can't open it")
        fd = os.open(path, os.O_WRONLY)
        try:
            equal(proc.as_nobody(tap.error_of, os.write, fd, b"rr"), None,
                  "but writes to what root opened for it")
        finally:
            os.close(fd)
        equal(ps.policy(sock), "rr", "and it is done")
        os.chown(f"{ps.sysfs_dir(sock)}/members/0/state", proc.NOBODY, -1)
        equal(proc.as_nobody(tap.error_of, ps.sysfs_write,
                             f"{ps.sysfs_dir(sock)}/members/0/state",
                             "draining"), None, "as to one that it was given")


# What is told

@test
def seen_from_outside():
    """/proc/PID/net/portsteer is told to whom /proc/PID/net/tcp is"""
    def inside(link):
        ns.unshare(ns.CLONE_NEWNET)
        ns.lo_up()
        with net.server("tcp", INET, net.port(), ps.member()) as sock:
            link.send(ps.name(sock))
            link.recv()

    def read(name):
        def attempt():
            with open(name) as file:
                return file.read()
        return proc.as_nobody(attempt)

    def hidden(pid):
        """The same where /proc hides other users' processes."""
        ns.unshare(ns.CLONE_NEWNS)
        ns.mount("none", "/", None, ns.MS_REC | ns.MS_PRIVATE)
        path = tempfile.mkdtemp()
        ns.check(ns.libc.mount(b"proc", path.encode(), b"proc", 0,
                               b"hidepid=2"))
        os.chmod(path, 0o755)
        proc.become_nobody()
        return [tap.error_of(os.stat, f"{path}/{pid}/net/{name}")
                for name in ("tcp", "portsteer")]

    with proc.Child(inside) as child:
        name = child.get()
        path = f"/proc/{child.pid}/net"
        ok(name not in open("/proc/net/portsteer").read(), "not in our table")
        for file in "tcp", "portsteer":
            mode = os.stat(f"{path}/{file}").st_mode
            equal(stat.S_IMODE(mode), 0o444, f"{file}: read-only, for all")
        ok(name in read(f"{path}/portsteer") and read(f"{path}/tcp"),
           "in that of its process, as with tcp")
        equal(proc.call(hidden, child.pid), ["ENOENT"] * 2,
              "neither with hidepid=2")


@test
def secrets():
    """a key is in nothing that can be read, by whomever"""
    with tracing(), Pool() as pool:
        port = net.port()
        servers = pool.servers(2, "udp", INET, port,
                               ps.member("rr", key=SECRET))
        net.burst(servers, ("127.0.0.1", port), 4)
        told = everything_told(servers[0])
        for sock in servers:
            fails("EINVAL", "get", sock.getsockopt, ps.level(sock), ps.KEY, 32)
        fails("EADDRINUSE", "without it", net.server, "udp", INET, port,
              net.reuseport)
        pool.close()
    told += traced()
    told.append(subprocess.run(["dmesg"], capture_output=True,
                               check=True).stdout)
    ok(len(told) > 40, "there is something to look at", len(told))
    forms = (SECRET[:4], SECRET[:4].hex().encode(),
             SECRET[3::-1].hex().encode())
    equal([one for one in told for form in forms if form in one], [],
          "neither the key nor a part of it")


@test
def addresses():
    """no kernel address in any file, event, option or line of the log"""
    with tracing(), Pool() as pool:
        port = net.port()
        servers = pool.servers(2, "tcp", INET, port, ps.member("rr"))
        net.burst(servers, ("127.0.0.1", port), 4)
        told = everything_told(servers[0])
        inodes = {os.fstat(sock.fileno()).st_ino for sock in servers}
        equal({member["inode"] for member in ps.group(servers[0]).members},
              inodes, "a socket is known by its inode")
        values = re.findall(rb"[0-9a-f]{9,}", b"\n".join(told[2:]))
        equal([v for v in values if int(v, 16) >> 44], [],
              "files: no number as large as an address")
        pool.close()
    events = traced()
    ok(len(events) > 6, "there are events", events)
    # what ftrace itself prints before the event is not ours
    texts = [line.split(b": ", 2)[-1] for line in events
             if b"netns=" in line]
    equal([t for t in texts if ADDRESS.search(t)], [], "events: none")
    for name in "join", "leave", "pick", "migrate":
        text = ps.sysfs_read(
            f"{ps.TRACING}/events/portsteer/{name}/format")
        fields = re.findall(r"field:([^;]*);", text)
        ok(not any("*" in field for field in fields) and
           not re.search(r"%p(?!I6c)", text), f"{name}: no pointer", text)
    ps.unload()
    for wrong in "nonsense", "x" * 40:
        with contextlib.suppress(RuntimeError):
            ps.load(policy=wrong)
    ps.load()
    log = subprocess.run(["dmesg"], capture_output=True, check=True).stdout
    lines = [line for line in log.splitlines() if b"portsteer" in line]
    ok(lines, "the log knows us")
    equal([line for line in lines if ADDRESS.search(line)], [],
          "log: no address")


@test
def stack():
    """getsockopt() hands out what it should and nothing of the stack"""
    for text, kind, family in combinations():
        with Pool() as pool:
            sock = pool.server(kind, family, net.port(), ps.member("rr"))
            told = set()
            for _ in range(8):
                ps.set(sock, ps.WEIGHT, 0x5a5a)		# dirt
                name = sock.getsockopt(ps.level(sock), ps.POLICY, 1024)
                info = sock.getsockopt(ps.level(sock), ps.INFO, 1024)
                told.add((name, info[40:56], len(info)))
            rr = b"rr".ljust(16, b"\0")
            equal(told, {(rr, rr, ps.INFO_SIZE)},
                  f"{text}: behind the policy's name are zeros")


@test
def parameters():
    """anybody may know the default policy, root alone the seed"""
    ps.parameter("seed", "00112233445566778899aabbccddeeff")
    try:
        for name, read, write in (("policy", None, "EACCES"),
                                  ("seed", "EACCES", "EACCES")):
            equal((proc.as_nobody(tap.error_of, ps.parameter, name),
                   proc.as_nobody(tap.error_of, ps.parameter, name, "hash")),
                  (read, write), f"{name}: read, write")
        with Pool() as pool:
            sock = pool.server("udp", INET, net.port(), ps.member())
            told = b"".join(proc.as_nobody(everything_told, sock))
            ok(b"00112233" not in told, "nor is it told elsewhere")
    finally:
        ps.parameter("seed", "random")


@test
def tracepoints():
    """events are for who may trace"""
    with tracing():
        pass
    for path in ("", "/trace", "/events/portsteer", "/events/portsteer/pick/id",
                 "/enabled_functions"):
        equal(proc.as_nobody(tap.error_of, os.open, f"{ps.TRACING}{path}",
                             os.O_RDONLY), "EACCES", f"tracefs{path}")
    number = int(ps.sysfs_read(f"{ps.TRACING}/events/portsteer/pick/id"))

    def perf():
        """perf_event_open() of the event, for this process alone."""
        attr = bytearray(112)
        attr[0:4] = (2).to_bytes(4, "little")		# PERF_TYPE_TRACEPOINT
        attr[4:8] = len(attr).to_bytes(4, "little")
        attr[8:16] = number.to_bytes(8, "little")
        attr[24:32] = (1 << 10).to_bytes(8, "little")	# PERF_SAMPLE_RAW
        buffer = (ctypes.c_char * len(attr)).from_buffer(attr)
        os.close(ns.check(ns.libc.syscall(PERF_EVENT_OPEN, buffer, 0, -1, -1,
                                          0)))

    equal(tap.error_of(perf), None, "root opens it by perf")
    ok(proc.as_nobody(tap.error_of, perf) in ("EACCES", "EPERM"),
       "nobody doesn't")


# What a user can make the machine do

@test
def patched_seldom():
    """a user who comes and goes on and on doesn't have the kernel patched"""
    def touch(link):
        proc.become_nobody()
        link.send("up")
        for _ in range(TOUCHES):
            with net.new("tcp", INET) as sock:
                ps.join(sock)
        link.send("done")

    ok(ps.disarmed(), "disarmed", ps.hooks())
    began = time.monotonic()
    with proc.Child(touch) as child:
        child.get()
        changes, armed = 0, False
        while not child.link.poll(0):
            before, armed = armed, bool(ps.hooks())
            changes += armed and not before
        # It may be over before the first look; hooks stay for half a second.
        changes = changes or int(bool(ps.hooks()))
        equal(child.get(), "done", f"{TOUCHES} times JOIN and close()")
        most = 1 + 2 * (time.monotonic() - began)
        ok(1 <= changes <= most, "armed twice a second at most",
           f"{changes} of {most}")
    ok(ps.disarmed(), "and then the hooks go", ps.hooks())


@test
def flow_tables():
    """no user gets more than an eighth of the memory for tables of flows"""
    with open("/proc/meminfo") as file:
        total = int(next(line for line in file if "MemTotal" in line).split()[1])
    most = total * 1024 // 8 // (2 << 20)

    def greedy(link):
        proc.become_nobody()
        with Pool() as pool:
            errors = []
            for number in range(most + 20):
                sock = pool.server("udp", INET, 20000, ps.member(),
                                   addr=f"127.3.0.{number + 1}")
                errors.append(tap.error_of(ps.set, sock, ps.AFFINITY, 600))
            link.send(errors)
            link.recv()

    if most > 200:
        raise tap.Skip("too much memory to be greedy of")
    with proc.Child(greedy) as child:
        errors = child.get(100)
        got = errors.index("ENOMEM") if "ENOMEM" in errors else len(errors)
        ok(most - 8 <= got <= most + 1, f"{most} tables of 2 MB at most", got)
        equal(set(errors[got:]), {"ENOMEM"}, "then ENOMEM")
        affine = [group["affinity"] for group in ps.table().values()]
        equal(affine.count(600), got, "who was refused has none")
        with net.server("udp", INET, net.port(), ps.member()) as sock:
            fails("ENOMEM", "nor has another user", ps.set, sock, ps.AFFINITY,
                  600)
            equal(ps.get(sock, ps.AFFINITY), 0, "and nothing changes")
    ok(proc.wait_for(lambda: not ps.table()), "all gone")
    with net.server("udp", INET, net.port(), ps.member()) as sock:
        equal(tap.error_of(ps.set, sock, ps.AFFINITY, 600), None,
              "then there is room again")


@test
def key_of_a_neighbour():
    """keys don't take a port from who has it; who comes first has it"""
    for text, kind, family in combinations():
        port = net.port()
        with Pool() as pool:
            pool.server(kind, family, port, net.reuseport)
            equal(proc.as_nobody(tap.error_of, net.server, kind, family, port,
                                 ps.member(key=SECRET)), "EADDRINUSE",
                  f"{text}: nobody's key against our plain socket")
            equal(tap.error_of(pool.server, kind, family, port, net.reuseport),
                  None, f"{text}: which another of ours may join")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module)
