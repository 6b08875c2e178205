#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""When members come and go, when hooks are armed, what loading refuses."""
import os
import resource
import socket

from lib import net, proc, ps, tap
from lib.net import INET, INET6, Pool, combinations
from lib.tap import equal, fails, ok, test

FTRACE_ENABLED = "/proc/sys/kernel/ftrace_enabled"


def gone(timeout=5):
    """Has every group gone?"""
    return proc.wait_for(lambda: not ps.table(), timeout)


def set_ftrace(value):
    with open(FTRACE_ENABLED, "w") as file:
        file.write(value)


@test
def hooks():
    """armed only while there is a wish, a rule or a group"""
    equal(ps.hooks(), set(), "disarmed at load")
    for text, kind, family in combinations():
        for option in ("JOIN", "POLICY", "ID"):
            with net.new(kind, family) as sock:
                ps.set(sock, getattr(ps, option),
                       b"rr" if option == "POLICY" else 1)
                ok(ps.hooks(), f"{text}: armed by a wish for {option}")
            ok(ps.disarmed(), f"{text}: disarmed when it goes", ps.hooks())
        with net.server(kind, family, net.port(), ps.member("rr")):
            ok(ps.hooks(), f"{text}: armed by a group")
        ok(ps.disarmed(), f"{text}: disarmed when it goes", ps.hooks())
    ps.rule("add tcp 443 policy=rr")
    armed = ps.hooks()
    ok(armed, "armed by a rule")
    tap.diag("hooked: " + " ".join(sorted(armed)))
    ps.rule("add udp 443 policy=rr")
    ps.rule("del tcp 443")
    ok(ps.hooks(), "still by the other one")
    ps.rule("del udp 443")
    ok(ps.disarmed(), "disarmed when the last goes", ps.hooks())
    with net.new("tcp", INET) as sock:
        for call in (lambda: ps.set(sock, ps.JOIN, 2),
                     lambda: ps.set(sock, ps.ID, -1),
                     lambda: ps.set_policy(sock, "nonsense"),
                     lambda: ps.rule("add tcp 443 policy=nonsense")):
            fails("EINVAL", "a failed call", call)
    ok(ps.disarmed(), "arms nothing", ps.hooks())


@test
def ftrace_enabled():
    """kernel.ftrace_enabled=0 is refused while armed"""
    if tap.error_of(set_ftrace, "0") == "EOPNOTSUPP":
        raise tap.Skip("this kernel's ftrace can't be switched off")
    set_ftrace("1")
    try:
        with net.server("tcp", INET, net.port(), ps.member()) as sock:
            fails("EBUSY", "with a group", set_ftrace, "0")
            ps.leave(sock)
        ok(ps.disarmed(), "disarmed", ps.hooks())
        equal(tap.error_of(set_ftrace, "0"), None, "accepted without one")
        # What a group does while the kernel has ftrace off is the module's
        # choice, but sockets must go on.
        with net.new("tcp", INET) as sock:
            tap.diag(f"JOIN with ftrace off: {tap.error_of(ps.join, sock)}")
            port = net.port()
            net.reuseport(sock)
            sock.bind(("127.0.0.1", port))
            sock.listen()
            net.client("tcp", ("127.0.0.1", port)).close()
            ok(True, "a socket serves with ftrace off")
    finally:
        set_ftrace("1")
    with net.server("tcp", INET, net.port(), ps.member()) as sock:
        equal(ps.info(sock).members, 1, "all is well with ftrace on again")


@test
def policy_parameter():
    """an unknown policy is refused at load"""
    ps.unload()
    for value in ("nonsense", "", "rrr", "x" * 1000):
        try:
            ps.load(policy=value)
        except RuntimeError as error:
            ok("Invalid" in str(error), f"policy={value[:20]}: EINVAL", error)
        else:
            ok(False, f"policy={value[:20]} is refused")
            ps.unload()
    ok(not ps.loaded(), "and the module isn't there")
    ps.load(policy="rr")
    with net.server("udp", INET, net.port(), ps.member()) as sock:
        equal((ps.parameter("policy"), ps.policy(sock)), ("rr", "rr"),
              "a known one is the default")
    ps.unload()
    ps.load()
    equal(ps.parameter("policy"), "hash", "without one it is hash")


@test
def loading_twice():
    """is refused, the first one stays"""
    with net.server("tcp", INET, net.port(), ps.member()) as sock:
        try:
            ps.load()
        except RuntimeError as error:
            ok("exists" in str(error), "EEXIST", error)
        else:
            ok(False, "loading twice is refused")
        equal(ps.info(sock).members, 1, "the group is still there")


@test
def module_paths():
    """/proc and sysfs go with the module"""
    paths = ("/proc/net/portsteer", "/sys/class/portsteer",
             "/sys/module/portsteer")
    for path in paths:
        ok(os.path.exists(path), f"{path} is there")
    ps.unload()
    for path in paths:
        ok(not os.path.exists(path), f"{path} is gone")
    ps.load()


@test
def closed():
    """a group goes with its last member"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(3, kind, family, port, ps.member("rr"))
            for left in (2, 1):
                servers.pop().close()
                equal(ps.info(servers[0]).members, left, f"{text}: {left}")
            servers.pop().close()
            equal(ps.table(), {}, f"{text}: none, and no group")
            sock = pool.server(kind, family, port, ps.member())
            equal((ps.get(sock, ps.ID), ps.policy(sock)), (0, "hash"),
                  f"{text}: the next one founds another")


@test
def duplicates():
    """a member lives as long as any descriptor of its socket"""
    for text, kind, family in combinations():
        port = net.port()
        ours, theirs = socket.socketpair()

        def keeper(link):
            ours.close()
            fds = socket.recv_fds(theirs, 1, 1)[1]
            link.send(len(fds))
            link.recv()

        with proc.Child(keeper) as child, ours, theirs:
            sock = net.server(kind, family, port, ps.member("rr", 6))
            other = net.server(kind, family, port, ps.member("rr"))
            twin = socket.socket(fileno=os.dup(sock.fileno()))
            sock.close()
            equal(sorted(ps.group(other).ids()), [0, 6], f"{text}: dup()")
            socket.send_fds(ours, [b"x"], [twin.fileno()])
            child.get()
            twin.close()
            equal(sorted(ps.group(other).ids()), [0, 6],
                  f"{text}: passed to another process")
            child.kill()
            ok(proc.wait_for(lambda: ps.group(other).ids() == [0], 5),
               f"{text}: gone with its last descriptor", ps.table())
            other.close()


@test
def killed():
    """a process that dies takes its members along"""
    def serve(link, ports):
        with Pool() as pool:
            for _, kind, family in combinations():
                pool.servers(4, kind, family, ports[kind, family],
                             ps.member("rr"))
                ps.member("rr")(pool.new(kind, family))
            link.send("up")
            link.recv()

    ports = {(kind, family): net.port() for _, kind, family in combinations()}
    with proc.Child(serve, ports) as child:
        child.get()
        with Pool() as pool:
            ours = [pool.server(kind, family, ports[kind, family],
                                ps.member()) for _, kind, family
                    in combinations()]
            equal([ps.info(s).members for s in ours], [5] * 4,
                  "five in each group")
            child.kill()
            ok(proc.wait_for(lambda: all(ps.info(s).members == 1
                                         for s in ours), 5),
               "four are gone", ps.table())
            for sock in ours:
                host = net.LOOPBACK[sock.family]
                reached = net.burst([sock], (host, sock.getsockname()[1]), 10)
                equal(reached, [0] * 10, f"{ps.name(sock)}: ours serves")
    ok(gone(), "no group remains", ps.table())
    ok(ps.disarmed(), "the hooks are disarmed", ps.hooks())


@test
def shutdown_and_listen():
    """a listener that stops and starts again is the same member"""
    for family in (INET, INET6):
        text = net.FAMILY_NAMES[family]
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            servers = pool.servers(3, "tcp", family, port, ps.member("rr"))
            ps.set(servers[1], ps.ID, 77)
            servers[1].shutdown(socket.SHUT_RDWR)
            equal(ps.info(servers[0]).selectable, 2, f"{text}: two are left")
            equal(net.counts(net.burst([servers[0], servers[2]], address, 20),
                             2), [10, 10], f"{text}: who share")
            servers[1].listen(1024)
            equal((ps.get(servers[1], ps.JOIN), ps.get(servers[1], ps.ID),
                   ps.policy(servers[1])), (1, 77, "rr"),
                  f"{text}: the same id and group")
            equal(net.counts(net.burst(servers, address, 30), 3), [10] * 3,
                  f"{text}: and its share")

            alone = pool.server("tcp", family, net.port(), ps.member("rr", 5))
            alone.shutdown(socket.SHUT_RDWR)
            alone.listen()
            equal((ps.get(alone, ps.ID), ps.policy(alone)), (5, "rr"),
                  f"{text}: also a group of one")
            alone.shutdown(socket.SHUT_RDWR)
            alone.close()
            ok(ps.name(servers[0]) in ps.table() and len(ps.table()) == 1,
               f"{text}: gone when closed after shutdown()", ps.table())


@test
def listen_again():
    """listen() of a listener changes its backlog and nothing else"""
    with Pool() as pool:
        sock = pool.server("tcp", INET, net.port(), ps.member("rr", 3))
        for backlog in (1, 1000, 0):
            sock.listen(backlog)
        group = ps.group(sock)
        equal((group["members"], group.ids()), (1, [3]), "still one member")


@test
def connected_member():
    """a connect()ed UDP member serves its peer alone (case 8)"""
    for family in (INET, INET6):
        for policy in ("rr", "hash"):
            host = net.LOOPBACK[family]
            text = f"{net.FAMILY_NAMES[family]} {policy}"
            with Pool() as pool:
                port = net.port()
                peer = pool.server("udp", family, net.port(), addr=host)
                servers = pool.servers(4, "udp", family, port,
                                       ps.member(policy), addr=host)
                servers[1].connect(peer.getsockname())
                info = ps.info(servers[1])
                equal((info.members, info.selectable), (4, 3),
                      f"{text}: not selectable")
                reached = net.burst(servers, (host, port), 50, through=peer)
                equal(net.counts(reached, 4), [0, 50, 0, 0],
                      f"{text}: its peer's 50")
                shares = net.counts(net.burst(servers, (host, port), 300), 4)
                ok(shares[1] == 0 and sum(shares) == 300 and min(
                    shares[0], *shares[2:]) > (99 if policy == "rr" else 50),
                   f"{text}: 300 others over the other three", shares)
                net.disconnect(servers[1])
                equal(ps.info(servers[1]).selectable, 4,
                      f"{text}: selectable once it lets go of its peer")
                shares = net.counts(net.burst(servers, (host, port), 200), 4)
                ok(min(shares) >= (50 if policy == "rr" else 15),
                   f"{text}: and gets its share", shares)


@test
def connected_wildcard():
    """the same on a wildcard address, which connect() changes"""
    for family in (INET, INET6):
        text, host = net.FAMILY_NAMES[family], net.LOOPBACK[family]
        with Pool() as pool:
            port = net.port()
            peer = pool.server("udp", family, net.port(), addr=host)
            servers = pool.servers(4, "udp", family, port, ps.member("rr"))
            servers[1].connect(peer.getsockname())
            reached = net.burst(servers, (host, port), 50, through=peer)
            equal(net.counts(reached, 4), [0, 50, 0, 0],
                  f"{text}: its peer's 50")
            reached = net.burst(servers, (host, port), 300)
            equal(net.counts(reached, 4), [100, 0, 100, 100],
                  f"{text}: 300 others over the other three")


@test
def a_thousand():
    """1000 members: rr is exact once around"""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    for kind, family in (("tcp", INET), ("udp", INET6)):
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(1000, kind, family, port, ps.member("rr"),
                                   backlog=16)
            info = ps.info(servers[-1])
            equal((info.members, info.selectable, info.id), (1000, 1000, 999),
                  f"{kind}: 1000 members")
            equal(sorted(ps.group(servers[0]).ids()), list(range(1000)),
                  f"{kind}: all in /proc")
            reached = net.burst(servers, (net.LOOPBACK[family], port), 1000)
            equal(sorted(reached, key=str), sorted(range(1000), key=str),
                  f"{kind}: each gets one")
        equal(ps.table(), {}, f"{kind}: gone")


@test
def memory_limits():
    """more members than descriptors: the error is the program's to see"""
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, old[1]))
    try:
        with Pool() as pool:
            port = net.port()
            error = tap.error_of(pool.servers, 200, "udp", INET, port,
                                 ps.member())
            equal(error, "EMFILE", "no more descriptors")
            resource.setrlimit(resource.RLIMIT_NOFILE, old)
            equal(len(ps.table()), 1, "the group is whole")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, old)
    equal(ps.table(), {}, "and goes")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module)
