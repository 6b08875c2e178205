#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: mem=2048 timeout=900
"""DNS servers that know nothing of portsteer, replaced under load: a second
process on the same port, then the first one ends. A test with a few restarts;
`dns.py table RESTARTS [SERVER]...` compares with the kernel alone and prints
what docs/reload.md quotes: make reload."""
import contextlib
import os
import platform
import re
import select
import signal
import struct
import subprocess
import sys
import time

from lib import daemons, net, proc, ps, tap
from lib.daemons import TMP, need
from lib.tap import equal, ok, test

QUICK = os.environ.get("PS_QUICK")
RESTARTS = 1 if QUICK else 3
FLOWS = 24		# of each family: clients that keep their port
PATIENCE = 10		# seconds that a client waits for an answer
PRESSURE = 60		# queries of dnsperf under way, for each family
AFFINITY = 600

UNBOUND = """
server:
	interface: 0.0.0.0
	{ipv6}
	port: {port}
	num-threads: 4
	so-reuseport: yes
	outgoing-range: 64
	module-config: "iterator"
	access-control: 0.0.0.0/0 allow
	access-control: ::0/0 allow
	local-zone: "test." static
	local-data: "www.test. A 192.0.2.1"
	hide-identity: no
	identity: "{identity}"
	username: ""
	chroot: ""
	directory: "{directory}"
	pidfile: ""
	use-syslog: no
	logfile: "{directory}/log"
remote-control:
	control-enable: no
"""

KNOT = """
server:
    listen: 0.0.0.0@{port}
    {ipv6}
    rundir: {directory}
    identity: "{identity}"
    udp-workers: 4
    tcp-workers: 1
    tcp-reuseport: on
    background-workers: 1
log:
  - target: {directory}/log
    any: warning
database:
    storage: {directory}
template:
  - id: default
    storage: {directory}
    zonefile-sync: -1
    journal-content: none
zone:
  - domain: test.
    file: {directory}/test.zone
"""

ZONE = """\
test. 3600 SOA ns.test. admin.test. 1 3600 900 604800 3600
test. 3600 NS ns.test.
ns.test. 3600 A 192.0.2.2
www.test. 3600 A 192.0.2.1
"""

# CHAOS TXT id.server: which process answers
WHO = b"\2id\6server\0\0\x10\0\3"


class Unbound:
    """Four threads, each with a socket for each family."""

    name = "Unbound, so-reuseport"
    sockets = 4
    port = net.port()

    def __init__(self, number):
        self.identity = f"process-{number}"
        self.directory = TMP / f"{type(self).__name__}-{number}"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.configure()
        self.process = subprocess.Popen(self.command())

    def fill(self, text, ipv6):
        text = text.format(port=self.port, identity=self.identity,
                           directory=self.directory,
                           ipv6=ipv6 if net.INET6 in net.FAMILIES else "")
        self.conf = self.directory / "conf"
        self.conf.write_text(text)

    def configure(self):
        self.fill(UNBOUND, "interface: ::0")

    def command(self):
        return ["unbound", "-d", "-c", self.conf]

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Knot(Unbound):
    """Four UDP workers with a socket each; TCP only needs to be shared, too."""

    name = "Knot, 4 UDP workers"
    port = net.port()

    def configure(self):
        (self.directory / "test.zone").write_text(ZONE)
        self.fill(KNOT, f"listen: ::@{self.port}")

    def command(self):
        return ["knotd", "-c", self.conf]


SERVERS = (Unbound, Knot)


def addresses(port):
    return [(net.LOOPBACK[family], port) for family in net.FAMILIES]


# Clients

class Flow:
    """A client that keeps its port; one query at a time."""

    def __init__(self, address, port=0):
        family = net.INET6 if ":" in address[0] else net.INET
        self.sock = net.new("udp", family)
        self.sock.setblocking(False)
        self.sock.bind((net.WILDCARD[family], port))
        self.sock.connect(address)
        self.process = None
        self.number = self.rounds = 0
        self.moves = []

    def ask(self):
        self.number = (self.number + 1) % 65536
        self.rounds += 1
        self.asked = time.monotonic()
        with contextlib.suppress(ConnectionError):
            self.sock.send(struct.pack("!HHHHHH", self.number, 0, 1, 0, 0, 0) +
                           WHO)

    def answered(self):
        """True if the answer to the last query is there."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            reply = self.sock.recv(512)
            found = re.search(rb"process-\d+", reply)
            if int.from_bytes(reply[:2], "big") != self.number or not found:
                return False
            process = found[0].decode()
            if self.process not in (None, process):
                self.moves.append((self.process, process))
            self.process = process
            return True
        return False

    def overdue(self):
        return time.monotonic() - self.asked > PATIENCE


def flows(link, port, count):
    """Flows that ask without a pause. A question: (queries, unanswered, how
    often flows have changed their process, the least queries of one flow since
    it was told "again"); None: no more queries."""
    def report():
        link.send((asked, unanswered, sum(len(flow.moves) for flow in found),
                   min(flow.rounds for flow in found)))
    found = [Flow(address) for address in addresses(port)
             for _ in range(count)]
    waiting = {flow.sock.fileno(): flow for flow in found}
    asked = unanswered = 0
    stopping = False
    with select.epoll() as epoll:
        for fd in waiting:
            epoll.register(fd, select.EPOLLIN)
        epoll.register(link, select.EPOLLIN)
        link.send("up")
        for flow in found:
            flow.ask()
        asked += len(found)
        while waiting:
            done = []
            for fd, _ in epoll.poll(1):
                if fd == link.fileno():
                    question = link.recv()
                    stopping = question is None
                    if question == "again":
                        for flow in found:
                            flow.rounds = 0
                    if not stopping:
                        report()
                elif fd in waiting and waiting[fd].answered():
                    done.append(fd)
            for fd, flow in waiting.items():
                if fd not in done and flow.overdue():
                    unanswered += 1
                    done.append(fd)
            for fd in done:
                if stopping:
                    del waiting[fd]
                else:
                    waiting[fd].ask()
                    asked += 1
    report()


def fresh(port, count):
    """Which processes answer so many clients that weren't there before."""
    found = []
    for number in range(count):
        # A port that another has had may be that one's flow still.
        flow = Flow(addresses(port)[number % len(net.FAMILIES)], net.port())
        with flow.sock:
            flow.ask()
            select.select([flow.sock], [], [], PATIENCE)
            flow.answered()
            found.append(flow.process)
    return found


class Load:
    """Flows, and dnsperf beside them so that queues are seldom empty."""

    def __init__(self, port):
        (TMP / "queries").write_text("www.test A\n")
        self.flows = proc.Child(flows, port, FLOWS)
        self.flows.get()
        self.perfs = [subprocess.Popen(
            ["dnsperf", "-s", host, "-p", str(port), "-d", TMP / "queries",
             "-c", str(PRESSURE // 4), "-q", str(PRESSURE), "-T", "1",
             "-t", str(PATIENCE), "-l", "600"], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for host, _ in addresses(port)]

    def moves(self):
        return self.flows.ask("moves")[2]

    def all_ask(self):
        """Wait until each flow has sent one more query from now on."""
        self.flows.ask("again")
        need(lambda: self.flows.ask("?")[3], "all flows ask again")

    def stop(self):
        """(unanswered, queries)"""
        for perf in self.perfs:
            perf.send_signal(signal.SIGINT)
        queries, unanswered, *_ = self.flows.ask(None)
        self.flows.wait()
        self.output = ""
        for perf in self.perfs:
            text = perf.communicate(timeout=60)[0]
            self.output += text
            numbers = [re.search(rf"{what}: +(\d+)", text)
                       for what in ("Queries sent", "Queries lost")]
            queries += int(numbers[0][1])
            unanswered += int(numbers[1][1])
        return unanswered, queries


# Restarts

class Restarts:
    """What restarts of a server, one after the other, have brought."""

    def __init__(self, kind, steered):
        self.kind = kind
        self.steered = steered
        self.moved = 0		# flows, while their process lived
        self.strays = 0		# new clients that a drained process got
        self.server = kind(0)

    def wait_for(self, server):
        """It has all its sockets when one of them answers."""
        try:
            need(lambda: server.identity in fresh(self.kind.port, 8),
                 f"{server.identity} serves")
        except TimeoutError:
            tap.diag((server.directory / "log").read_text())
            raise

    def run(self, times):
        port = self.kind.port
        try:
            self.wait_for(self.server)
            self.load = Load(port)
            time.sleep(1)
            try:
                for number in range(1, times + 1):
                    self.restart(number)
                    time.sleep(0.5)
            finally:
                self.unanswered, self.queries = self.load.stop()
        finally:
            self.server.stop()
        return self

    def restart(self, number):
        port = self.kind.port
        before = self.load.moves()
        members = daemons.present(port) if self.steered else {}
        old, self.server = self.server, self.kind(number)
        self.wait_for(self.server)
        if self.steered:
            daemons.set_members(members, "state", "draining")
            self.strays += fresh(port, 16).count(old.identity)
        else:
            time.sleep(1)
        self.moved += self.load.moves() - before
        if self.steered:
            self.hand_over(members)
        old.stop()
        if self.steered:
            daemons.set_group(port, "affinity", AFFINITY)
            # A flow is one from its first datagram on.
            self.load.all_ask()

    def hand_over(self, members):
        """Clients that never pause leave the old process, too, then what it
        has queued is answered."""
        # Returns when no datagram is under way by what was before.
        daemons.set_group(self.kind.port, "affinity", 0)
        daemons.need_empty(self.kind.port, members)


def alone(kind, times):
    return Restarts(kind, False).run(times)


def with_rule(kind, times):
    """Under portsteer, with a rule and an operator who drains."""
    ps.rule(f"add udp {kind.port} policy=hash affinity={AFFINITY}")
    try:
        return Restarts(kind, True).run(times)
    finally:
        ps.rule(f"del udp {kind.port}")


def table(times, names):
    chosen = daemons.chosen(SERVERS, names)
    if not chosen:
        return 0
    ps.prepare_guest()
    TMP.mkdir(exist_ok=True)
    print(f"Linux {platform.release()}, {times} restarts each: queries without "
          f"an answer; how often one of {FLOWS * len(net.FAMILIES)} flows\n"
          "went to the new process while its old one served")
    print(f"{'':24}{'kernel alone':>28}{'portsteer, a rule, drained':>34}")
    bad = 0
    for kind in chosen:
        print(f"{kind.name:24}", end="")
        for run in (alone, with_rule):
            done = run(kind, times)
            print(f"{done.unanswered:6} of {done.queries:6}, "
                  f"{done.moved:4} moved", end="    ", flush=True)
        print()
        if done.unanswered or done.moved or done.strays:
            bad += 1
            print(f"{done.strays} strays\n{done.load.output}")
    ps.unload()
    return 1 if bad else 0


@test
def restarts():
    """with a rule: nobody is without an answer, flows stay, then all leave"""
    TMP.mkdir(exist_ok=True)
    for kind in SERVERS:
        done = with_rule(kind, RESTARTS)
        equal(done.moved, 0, f"{kind.name}: no flow moved while its process "
              "served")
        equal(done.strays, 0, f"{kind.name}: no new client got to a draining "
              "process")
        ok(done.unanswered == 0 and done.queries > 0,
           f"{kind.name}: {done.unanswered} of {done.queries} queries without "
           "an answer", done.load.output)


if __name__ == "__main__":
    if sys.argv[1:2] == ["table"]:
        sys.exit(table(int(sys.argv[2]), sys.argv[3:]))
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=800)
