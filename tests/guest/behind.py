#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""What changes behind the module's back: devices, peers, roles, ftrace."""
import socket
import subprocess

from lib import net, proc, ps, tap
from lib.net import INET, Pool
from lib.tap import equal, fails, ok, test

FTRACE_ENABLED = "/proc/sys/kernel/ftrace_enabled"


def set_ftrace(value):
    with open(FTRACE_ENABLED, "w") as file:
        file.write(value)


@test
def bound_to_a_device():
    """listeners bound to a device after bind(): the kernel's own choice"""
    for policy in ("rr", "hash"):
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(4, "tcp", INET, port, ps.member(policy))
            for sock in servers:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE,
                                b"lo\0")
            shares = net.counts(net.burst(servers, ("127.0.0.1", port), 80), 4)
            ok(min(shares) > 0 and sum(shares) == 80,
               f"{policy}: all four are reached", shares)
            info = ps.info(servers[0])
            equal((info.selectable, info.picked, info.fallbacks), (0, 0, 80),
                  f"{policy}: counted as fallbacks")


@test
def destroyed_peer():
    """a connected member whose peer `ss -K` takes away is picked again"""
    with Pool() as pool:
        port = net.port()
        peer = pool.server("udp", INET, net.port(), addr="127.0.0.1")
        servers = pool.servers(3, "udp", INET, port, ps.member("rr"),
                               addr="127.0.0.1")
        servers[1].connect(peer.getsockname())
        equal(ps.info(servers[0]).selectable, 2, "two are left")
        done = subprocess.run(["ss", "-K", "-u", f"sport = :{port}", "and",
                               f"dport = :{peer.getsockname()[1]}"],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise tap.Skip(f"ss -K: {done.stderr.strip()}")
        # It has an error to report now, to whoever receives first.
        servers[1].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        equal(ps.info(servers[0]).selectable, 3, "all three again")
        equal(net.counts(net.burst(servers, ("127.0.0.1", port), 90), 3),
              [30] * 3, "and rr is exact")


@test
def became_a_client():
    """a wish of a TCP socket that connects instead founds no group"""
    with Pool() as pool:
        port = net.port()
        server = pool.server("tcp", INET, port)
        client = pool.new("tcp", INET)
        ps.join(client)
        client.setblocking(True)
        client.connect(("127.0.0.1", port))
        server.accept()[0].close()
        ps.rule("add tcp 80 policy=rr")
        # A new rule is followed by a second look for sockets to adopt.
        ok(not proc.wait_for(ps.table, 3), "no group", ps.table())
        ps.rule("clear")


@test
def long_rule():
    """a write that sysfs cuts is refused whole"""
    head = "add tcp 7020 policy=rr"
    for size in (4096, 5000):
        fails("EINVAL", f"{size} bytes", ps.rule,
              head + " " * (size - len(head)) + "garbage")
    equal(ps.rules(), [], "nothing was set")


@test
def quiet_log():
    """what any user can provoke doesn't flood the log"""
    ok(ps.disarmed(), "disarmed", ps.hooks())
    error = tap.error_of(set_ftrace, "0")
    if error == "EOPNOTSUPP":
        raise tap.Skip("this kernel's ftrace can't be switched off")
    equal(error, None, "ftrace is off")
    try:
        with net.new("tcp", INET) as sock:
            errors = {tap.error_of(ps.join, sock) for _ in range(50)}
    finally:
        set_ftrace("1")
    equal(errors, {"EBUSY"}, "JOIN while ftrace is off")
    log = subprocess.run(["dmesg"], capture_output=True, text=True,
                         check=True).stdout
    lines = [line for line in log.splitlines() if "can't be hooked" in line]
    equal(len(lines), 1, "one line in the log")
    ok("ftrace_enabled" in "".join(lines), "that says why", lines)


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module)
