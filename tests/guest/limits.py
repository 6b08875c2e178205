#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=3600 mem=4096
"""How many there may be: members of a group, ids, groups, rules. Without
PS_FULL with fewer; what memory cgroups say to it is in memory.py."""
import collections
import os
import resource
import socket

from lib import net, proc, ps, tap
from lib.net import INET, Pool
from lib.tap import equal, fails, ok, test

# The full numbers take a quarter of an hour.
QUICK = not os.environ.get("PS_FULL")
# The kernel's group of sockets has room for so many: its array doubles, and
# its size has to fit in 16 bits.
NATIVE = 32768
MEMBERS = 1024 if QUICK else NATIVE
LIMIT = MEMBERS if QUICK else 2 * NATIVE	# sockets to be tried
IDS = ps.MAX_ID + 1
GROUPS = 600 if QUICK else 10000
TWINS = 200 if QUICK else 3000
SAMPLE = 64			# what is sent to each of many
READS = 3 if QUICK else 5

LO = "127.0.0.1"


def descriptors(count):
    """Room for so many in this process."""
    room = count + 1000
    with open("/proc/sys/fs/nr_open") as file:
        if int(file.read()) < room:
            raise tap.Skip(f"fs.nr_open is below {room}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (room, room))


def slab():
    """Octets of kernel memory in slabs."""
    with open("/proc/meminfo") as file:
        values = dict(line.split(":") for line in file)
    return int(values["Slab"].split()[0]) * 1024


def given_back(before, peak):
    """Most of what slabs have grown by is free again."""
    return proc.wait_for(lambda: slab() - before < (peak - before) / 4, 60)


def until_refused(pool, count, make):
    """Up to count sockets of make(); (they, the errno that ended it)."""
    socks, error = [], None
    while len(socks) < count and not error:
        error = tap.error_of(lambda: socks.append(pool.add(make())))
    return socks, error


def numbers(sock):
    """(members, ids that aren't where they should be) of a group."""
    group = ps.group(sock)
    return group["members"], [i for i, member in enumerate(group.members)
                              if member["id"] != i]


# One group

def each_policy(text, servers, address):
    """Every policy deals out SAMPLE, each to one member."""
    kind = "tcp" if servers[0].type == socket.SOCK_STREAM else "udp"
    with net.Watch(servers) as watch:
        def reached(source=None):
            with net.client(kind, address, source):
                return watch.take()

        for policy in ps.POLICIES:
            # Its table is made of 16384 slots times the members.
            if policy == "consistent" and len(servers) > 8192:
                continue
            ps.set_policy(servers[0], policy)
            got = [reached() for _ in range(SAMPLE)]
            equal((len(got), None in got, watch.take(0)), (SAMPLE, False, None),
                  f"{text} {policy}: each of {SAMPLE} reaches one")
            if policy == "rr":
                first = got[0]
                equal(got, [(first + i) % len(servers) for i in range(SAMPLE)],
                      f"{text} rr: one after the other")
        ps.set_policy(servers[0], "hash")
        source = (LO, net.port())
        equal(len({reached(source) for _ in range(8)}), 1,
              f"{text} hash: one flow, one member")


@test
def adopted():
    """UDP: as many as the kernel's own group takes, adopted and let go"""
    descriptors(NATIVE)
    port = net.port()

    def plain():
        return net.server("udp", INET, port, net.reuseport, addr=LO)

    with Pool() as pool:
        socks, error = until_refused(pool, LIMIT, plain)
        equal(len(socks), MEMBERS, f"stock: {MEMBERS}, then {error}")
        for turn in range(2):
            ps.rule(f"add udp {port} policy=rr")
            equal(numbers(socks[0]), (len(socks), []),
                  f"{turn}: a rule adopts all, in the order of bind()")
            equal([ps.info(sock).id for sock in socks[::997]],
                  list(range(len(socks)))[::997], f"{turn}: they say so, too")
            if not turn:
                each_policy("UDP", socks, (LO, port))
                if not QUICK:
                    equal(tap.error_of(plain), error,
                          "one more gets what it gets without us")
            ps.rule(f"del udp {port}")
            equal((ps.table(), ps.sysfs_names()), ({}, []),
                  f"{turn}: del lets go of all")
        reached = net.burst(socks, (LO, port), SAMPLE)
        ok(None not in reached and len(set(reached)) > SAMPLE // 2,
           "plain sockets again", reached)


@test
def joined():
    """TCP: the same by JOIN, and the error is the program's to see"""
    descriptors(NATIVE)
    port, elsewhere = net.port(), net.port()

    def plain():
        return net.server("tcp", INET, elsewhere, net.reuseport, addr=LO)

    def member():
        return net.server("tcp", INET, port, ps.member("rr"), addr=LO)

    with Pool() as pool:
        socks, error = until_refused(pool, LIMIT, plain)
        equal(len(socks), MEMBERS, f"stock: {MEMBERS}, then {error}")
    with Pool() as pool:
        socks, ours = until_refused(pool, LIMIT, member)
        equal((len(socks), ours), (MEMBERS, error), "members: the same")
        info = ps.info(socks[0])
        equal((info.members, info.selectable), (MEMBERS, MEMBERS),
              "all of them can be picked")
        equal(numbers(socks[0]), (MEMBERS, []), "and have the lowest ids")
        each_policy("TCP", socks, (LO, port))
        gone = sorted({7, MEMBERS // 2, MEMBERS - 1})
        for number in gone:
            socks[number].close()
        equal(ps.group(socks[0])["members"], MEMBERS - len(gone),
              "some leave")
        back = [pool.add(member()) for _ in gone]
        equal([ps.get(sock, ps.ID) for sock in back], gone,
              "others get their ids, the lowest first")
        fails("EEXIST", "none gets another's", ps.set, back[0], ps.ID, 0)
        back[0].close()
    ok(proc.wait_for(lambda: not ps.table()), "all gone", ps.table())


@test
def ids():
    """all 65,536: one more is bound all the same, and joins when one is free"""
    if QUICK:
        raise tap.Skip("that many sockets take the long form")
    descriptors(IDS + 2)
    port = net.port()
    before = slab()

    def bound(*prepare):
        sock = net.new("tcp", INET)
        for option in prepare:
            option(sock)
        sock.bind((LO, port))
        return sock

    with Pool() as pool:
        # They don't listen, so they aren't in the kernel's group.
        socks = [pool.add(bound(ps.member("rr"))) for _ in range(IDS)]
        info = ps.info(socks[-1])
        equal((info.members, info.id), (IDS, IDS - 1), "all ids are taken")
        equal(numbers(socks[0]), (IDS, []), "and seen in one read")
        equal(len(os.listdir(f"{ps.sysfs_dir(socks[0])}/members")), IDS,
              "each has a directory")
        wisher = pool.add(bound(ps.member()))
        fails("ENOENT", "one more is bound, but no member", ps.get, wisher,
              ps.ID)
        plain = pool.add(bound(net.reuseport))
        fails("ENOMEM", "JOIN", ps.join, plain)
        equal((ps.get(plain, ps.JOIN), ps.info(socks[0]).members), (0, IDS),
              "which changes nothing")
        fails("EEXIST", "an id of another's", ps.set, socks[9], ps.ID, 10)
        socks[12345].close()
        ok(proc.wait_for(lambda: ps.info(socks[0]).members == IDS, 30),
           "who wished to join does when one has gone")
        equal(tap.error_of(ps.get, wisher, ps.ID) or
              ps.get(wisher, ps.ID), 12345, "with its id")
        peak = slab()
        tap.diag(f"{(peak - before) // IDS} octets of slabs for each")
    ok(proc.wait_for(lambda: not ps.table()), "all gone")
    equal(ps.sysfs_names(), [], "and their directories")
    ok(given_back(before, peak), "and their memory",
       f"before {before}, peak {peak}, after {slab()}")


# Many groups

def place(number):
    """(kind, address) of a group of its own."""
    kind = "udp" if number % 2 else "tcp"
    number //= 2
    return kind, (f"127.1.{number // 100 % 100}.{number // 10000 + 1}",
                  20000 + number % 100)


def found(pool, kind, address):
    return pool.server(kind, INET, address[1], ps.member("rr"),
                       addr=address[0], backlog=8)


def keep_reading(link, names):
    """Read the table some times; what was wrong in that."""
    wrong = collections.Counter()
    for _ in range(READS):
        with open("/proc/net/portsteer") as file:
            text = file.read()
        seen = collections.Counter(line.split(" ", 1)[0]
                                   for line in text.splitlines()
                                   if not line.startswith(" "))
        table = ps.parse(text)
        wrong["twice"] += sum(count > 1 for count in seen.values())
        wrong["missing"] += len(names - set(seen))
        wrong["not whole"] += sum(table[name]["members"] != 1 or
                                  table[name].ids() != [0]
                                  for name in names & set(table))
    link.send({what: count for what, count in wrong.items() if count})


@test
def groups():
    """thousands of them, read whole while others come and go"""
    descriptors(GROUPS + 100)
    before = slab()
    with Pool() as pool:
        names = set()
        for number in range(GROUPS):
            names.add(ps.name(found(pool, *place(number))))
        equal(len(names), GROUPS, f"{GROUPS} groups")
        equal(set(ps.table()), names, "all in the table")
        equal(set(ps.sysfs_names()), names, "each with a directory")
        with proc.Child(keep_reading, names) as reader:
            came = 0
            while not reader.link.poll(0):
                with Pool() as others:
                    for number in range(50):
                        others.server("udp", INET, 30000 + number,
                                      ps.member("rr"), addr=LO)
                came += 50
            equal(reader.get(), {}, f"{READS} reads while others came and went")
            ok(came > 100, "others did", came)
        sample = [place(number) for number in range(0, GROUPS, GROUPS // 20)]
        tables = ps.table()
        equal([tables[f"{kind}:{host}:{port}"]["picked"]
               for kind, (host, port) in sample], [0] * len(sample),
              "nobody was picked")
        for kind, address in sample:
            net.client(kind, address).close()
        tables = ps.table()
        equal([tables[f"{kind}:{host}:{port}"]["picked"]
               for kind, (host, port) in sample], [1] * len(sample),
              "each gets its own")
        peak = slab()
        tap.diag(f"{(peak - before) // GROUPS} octets of slabs for each")
    ok(proc.wait_for(lambda: not ps.table(), 30), "all gone")
    ok(proc.wait_for(lambda: not ps.sysfs_names(), 30), "no directory is left")
    ok(given_back(before, peak), "and their memory",
       f"before {before}, peak {peak}, after {slab()}")
    ok(ps.disarmed(), "the hooks are disarmed", ps.hooks())


@test
def twins():
    """groups of one name, each of another uid: numbered, none twice"""
    descriptors(TWINS)
    port = net.port()

    def of_uid(uid):
        def give(sock):
            os.fchown(sock.fileno(), uid, -1)
        return net.server("udp", INET, port, net.reuseaddr, give,
                          ps.member("rr"), addr=LO)

    name = f"udp:{LO}:{port}"
    names = {name, *(f"{name}~{n}" for n in range(2, TWINS + 1))}
    with Pool() as pool:
        socks = [pool.add(of_uid(1000 + n)) for n in range(TWINS)]
        equal(set(ps.table()), names, f"{TWINS} groups")
        equal(set(ps.sysfs_names()), names, "and directories")
        socks[TWINS // 2].close()
        gone = f"{name}~{TWINS // 2 + 1}"
        equal(names - set(ps.table()), {gone}, "one goes")
        pool.add(of_uid(1000 + TWINS))
        equal(set(ps.table()), names, "the next one has its number")
    ok(proc.wait_for(lambda: not ps.sysfs_names(), 30), "all gone")


# Rules

@test
def rules():
    """as many as a page holds, the longest and the shortest, then ENOSPC"""
    longest = ("policy=consistent lock=1 migrate=0 force=1 affinity=2147483647"
               " quic_offset=18 quic_length=2")
    for words in longest, "policy=rr":
        wanted, error = [], None
        for port in range(10001, 11000):
            line = f"add udp {port} {words}"
            error = tap.error_of(ps.rule, line)
            if error:
                break
            wanted.append(line)
        equal((error, ps.rule_lines()), ("ENOSPC", wanted),
              f"{len(wanted)} rules, then ENOSPC; all are there")
        room = 4096 - sum(len(line) + 1 for line in wanted)
        ok(0 < room <= len(line) + 1, "and no more would fit", room)
        ps.rule(f"add udp 10001 {words}")
        ps.rule("del udp 10002")
        ps.rule(f"add udp 10002 {words}")
        equal(ps.rule_lines(), wanted, "one replaced, one gone and back")
        fails("ENOSPC", "the next one again", ps.rule, line)
        ps.rule("clear")
    ok(ps.disarmed(), "the hooks are disarmed", ps.hooks())


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=2400)
