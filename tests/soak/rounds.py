# SPDX-License-Identifier: GPL-2.0
"""One round of the soak: who takes part, what is done meanwhile, and the
accounts at its end."""
import contextlib
import random
import socket
import time

from lib import chaos, clients, kernel, net, ns, proc, ps, tally, tap
from lib.net import INET
from lib.tap import equal, ok

import asking
import dying
import serving

TCP_CLIENTS = 16
TCP_PROCESSES = 2		# for all of them
REGULARS = 3		# who visit again and again
DOOMED = 2
UNLOAD_TIME = 60	# in which nobody is inside an option for a moment
DEATH_TIME = 60		# that a namespace takes, while the machine is busy
CLIENT_TIME = 4 * asking.PATIENCE	# in which one tells what it has done


class Round:
    """reloads: the module is unloaded and loaded meanwhile; else something
    keeps its hooks armed from the beginning to the end."""

    def __init__(self, seed, seconds, reloads):
        # One for each part, so that no part's choices depend on others' pace.
        self._choose = {part: random.Random(f"{seed} {part}")
                        for part in ("scene", "visits", "victims",
                                     "namespaces", "operator", "reloads")}
        self._seconds = seconds
        self._reloads = reloads
        self._migrates = clients.migrates()
        self._trouble = []
        self._visitor = None
        self._victim = None
        self._doomed, self._dead = [], []
        self._full = 0		# datagrams that found no room at visitors
        self._seen = dict.fromkeys(
            ("visits", "victims", "namespaces", "tables", "members",
             "rmmod", "rmmod refused"), 0)

    def run(self):
        """Set the scene, play, and look at what has come of it."""
        self._stays = net.Pool()
        if not self._reloads:
            self._keep_armed()
        self._mail = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in self._mail:
            end.setblocking(False)
        self._space = ns.Namespace()
        with self._space, proc.urgent():
            self._open()
            while time.monotonic() < self._until:
                self._turn()
            self._close()
            self._settle_accounts()
        self._space.close()
        self._stays.close()
        ok(ps.disarmed(), "the hooks are disarmed", ps.hooks())

    def _keep_armed(self):
        """A group, and one with a peer; see docs/testing.md."""
        self._stays.server("tcp", INET, net.port(), ps.join)
        self._stays.server("udp", INET, net.port(),
                           ps.join).connect(("127.0.0.1", 9))

    def _random(self, part="scene"):
        return self._choose[part].randrange(2**32)

    # Who takes part

    def _open(self):
        dying.short_lives()
        kernel.set_sysctl("net.ipv4.tcp_syncookies",
                          self._choose["scene"].choice((1, 1, 2)))
        size = (TCP_CLIENTS + 1) * asking.BLOCK
        self._received, self._died = tally.Log(size), tally.Log(size)
        self._sent, self._answered = tally.Log(size), tally.Log(size)
        self._site = serving.Site(self._received, self._died)
        self._site.rules(self._choose["scene"])
        self._hosts = []
        for loose in (False, True):
            counts = tally.Tally("answered", "silent")
            self._hosts.append(proc.Child(
                serving.stay, self._site, counts, self._random(), loose,
                not loose and not self._reloads))
            self._hosts[-1].get()
        self._until = until = time.monotonic() + self._seconds
        self._clients = [asking.Client(place, self._random())
                         for place in range(TCP_CLIENTS)]
        sender = asking.Client(TCP_CLIENTS, self._random(), asking.SENDING)
        self._asking = [
            proc.Child(asking.connect, self._clients[turn::TCP_PROCESSES],
                       self._answered, self._site.addresses("tcp"), until)
            for turn in range(TCP_PROCESSES)]
        self._asking.append(proc.Child(asking.send, sender, self._sent,
                                       self._site.addresses("udp"), until))
        self._workers = [
            proc.Child(chaos.roam, self._random(), self._mail, until),
            proc.Child(chaos.crew, self._random(), self._mail, until)]
        self._regulars = [
            proc.Child(serving.visit_often, self._site,
                       self._random("visits"), self._migrates)
            for _ in range(REGULARS)]
        self._dies = 0
        self._reload_at = time.monotonic() + 1

    # What is done meanwhile

    def _turn(self):
        self._visit()
        self._kill_somebody()
        self._let_namespaces_die()
        self._operate()
        if self._reloads and time.monotonic() > self._reload_at:
            self._reload()
            self._reload_at = time.monotonic() + \
                self._choose["reloads"].uniform(1, 6)
        time.sleep(0.03)

    def _visit(self):
        """One that is killed, at a time."""
        if self._visitor and self._visitor.link.poll(0):
            self._see_off()
        elif not self._visitor:
            self._seen["visits"] += 1
            self._visitor = proc.Child(
                serving.visit_once, self._site, self._random("visits"),
                self._migrates)

    def _see_off(self):
        """Wait for the end of that one."""
        if self._visitor:
            with self._visitor as child:
                self._full += child.get(CLIENT_TIME)
                if not child.wait():
                    self._trouble.append(f"visitor {child.pid} doesn't go")
            self._visitor = None

    def _kill_somebody(self):
        now = time.monotonic()
        if self._victim and now > self._dies:
            self._victim.__exit__()
            self._victim = None
        elif not self._victim:
            choose = self._choose["victims"]
            self._victim = proc.Child(choose.choice((chaos.roam, chaos.crew)),
                                      self._random("victims"), self._mail,
                                      self._until + 60)
            self._seen["victims"] += 1
            self._dies = now + choose.uniform(0.1, 3)

    def _let_namespaces_die(self):
        for doomed in list(self._doomed):
            if time.monotonic() > doomed.until:
                self._doomed.remove(doomed)
                doomed.die()
                self._dead.append(doomed)
        if len(self._doomed) < DOOMED:
            number = self._seen["namespaces"]
            self._seen["namespaces"] += 1
            with self._home():
                self._doomed.append(dying.Doomed(
                    self._random("namespaces"), self._mail, number % 200,
                    number % 2 == 0,
                    self._choose["namespaces"].uniform(1, 4)))

    @contextlib.contextmanager
    def _home(self):
        """Out of the round's namespace, where the wires' other ends are."""
        self._space.__exit__()
        try:
            yield
        finally:
            self._space.__enter__()

    def _operate(self):
        choose = self._choose["operator"]
        ours = self._site.ports.values()
        groups = ps.table()
        self._seen["tables"] += 1
        self._seen["members"] = max(
            self._seen["members"],
            sum(len(g.members) for g in groups.values()))
        self._trouble += chaos.inconsistencies(groups)
        theirs = {n for n in groups if _port_of(n) not in ours}
        self._trouble += chaos.operate(choose, theirs, clear="")
        for doomed in self._doomed:
            self._trouble += doomed.operate()
        if choose.random() < 0.1:
            self._site.rules(choose)

    def _reload(self):
        """Under all the traffic, but with no visitor who might be leaving:
        without the module that costs connections."""
        self._see_off()
        for regular in self._regulars:
            regular.ask("pause", CLIENT_TIME)
        # what they have left to others is taken as well
        time.sleep(0.5)
        self._unload()
        time.sleep(self._choose["reloads"].uniform(0, 0.5))
        ps.load()
        self._site.rules(self._choose["reloads"])
        for host in self._hosts:
            host.ask("join", CLIENT_TIME)
        for regular in self._regulars:
            regular.link.send("go on")

    def _unload(self):
        self._seen["rmmod"] += 1
        end = time.monotonic() + UNLOAD_TIME
        while not ps.try_unload():
            self._seen["rmmod refused"] += 1
            if time.monotonic() > end:
                raise TimeoutError("the module is always in use")
            time.sleep(0.005)

    # The end

    def _close(self):
        self._see_off()
        for child in self._regulars:
            with child:
                visits, full = child.ask("stop", CLIENT_TIME)
                self._seen["visits"] += visits
                self._full += full
        for doomed in self._doomed:
            doomed.die()
        if self._victim:
            self._victim.__exit__()
        done = {}
        for child in self._workers:
            with child:
                for key, count in child.get(CLIENT_TIME).items():
                    done[key] = done.get(key, 0) + count
        for child in self._asking:
            with child:
                child.get(CLIENT_TIME)
        # those that were forked a moment ago
        time.sleep(0.5)
        for host in self._hosts:
            self._full += host.ask("stop", CLIENT_TIME)
        for end in self._mail:
            with contextlib.suppress(OSError):
                while True:
                    for fd in socket.recv_fds(end, 1, 8)[1]:
                        socket.close(fd)
        for end in self._mail:
            end.close()
        # Only now nobody holds a socket of theirs.
        patience = DEATH_TIME
        for doomed in self._dead + self._doomed:
            trouble = list(doomed.mourn(patience))
            if trouble:
                patience = 1
            self._trouble += trouble
        tap.diag(", ".join(f"{name} {n}" for name, n in self._seen.items()))
        tap.diag(", ".join(f"{key} {done[key]}" for key in sorted(done)))

    def _settle_accounts(self):
        ok(not self._trouble, "the tables made sense, operators were obeyed, "
           "namespaces died", "\n".join(self._trouble[:20]))
        never = [name for name in ("visits", "victims", "namespaces", "members")
                 + ("rmmod",) * self._reloads if not self._seen[name]]
        ok(not never, "all of it was done", never)
        self._streams()
        self._datagrams()
        for host in self._hosts:
            with host:
                host.link.send("go")
                ok(host.wait(), "a server comes to its end")
        proc.wait_for(lambda: ps.rule("clear") and not ps.table())
        equal(ps.table(), {}, "no group is left")

    def _streams(self):
        counts = tally.sum_of(client.counts for client in self._clients)
        text = ", ".join(f"{name} {n}" for name, n in counts.items())
        ok(asking.balanced(counts) and counts["attempted"],
           f"TCP: all is accounted for: {text}")
        equal(counts["timed out"], 0, "TCP: none timed out")
        equal(counts["unreachable"], 0, "TCP: none was unreachable")
        if self._migrates:
            equal((counts["reset"], counts["refused"]), (0, 0),
                  "TCP: none was reset or refused")
        received, answered = (_part(log, 0, TCP_CLIENTS) for log in (
            self._received, self._answered))
        # An answer may have been reset on its way.
        wrong = [] if received == answered else [
            (n, a, b) for n, (a, b) in enumerate(zip(received, answered))
            if a != b]
        ok(len(wrong) <= counts["reset"] and
           all((a, b) == (1, 0) for _, a, b in wrong),
           "TCP: servers have answered just what clients have heard, each once",
           f"{len(wrong)}: {wrong[:20]}")

    def _datagrams(self):
        sent, received, died = (_part(log, TCP_CLIENTS, 1) for log in (
            self._sent, self._received, self._died))
        # as far as anything was sent
        rows = list(zip(sent.rstrip(b"\0"), received, died))
        missing = sum(a > b + c for a, b, c in rows)
        twice = [n for n, (a, b, c) in enumerate(rows) if a < b + c]
        ok(rows, f"UDP: sent {len(rows)}, {sum(died)} died with a visitor, "
           f"{self._full} found no room")
        equal(missing, self._full, "UDP: all others were received")
        ok(not twice, "UDP: none was twice", twice[:20])


def _port_of(name):
    """Of a group, by its name."""
    return int(name.rsplit(":", 1)[1].split("~")[0])


def _part(log, client, count):
    """What a log says of so many clients' numbers."""
    return log.read(client * asking.BLOCK, count * asking.BLOCK)
