#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900
"""/sys/class/portsteer: what it says and what may be written, by whom. When it
is there is in sysfs_dirs.py. Contract: DESIGN.md 2.2."""
import os
import stat

from lib import kernel, net, ns, proc, ps, tap
from lib.files import GROUP, at, current, fresh, ids
from lib.net import INET, Pool, combinations
from lib.tap import equal, fails, ok, test

LAST_CPU = kernel.cpu_list("possible")[-1]

STATES = ("active", "standby", "draining")

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
                # A port that another has had may be that one's flow still.
                return net.counts(net.burst(
                    servers, here, count, lambda _: (here[0], net.port())), 4)

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
            proc.wait_for(lambda: int(at(sock, "members/0/backlog")) >= 3)
            waiting = int(at(sock, "members/0/backlog"))
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


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, 300)
