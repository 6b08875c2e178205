#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: timeout=900
"""Other tracers of the functions that we hook, who come before us or after:
all is steered as ever, and they see every call."""
import os
import time

from lib import bpf, load, net, ps, tap, tracing
from lib.net import INET, INET6, Pool, combinations
from lib.tap import equal, ok, test

QUICK = not os.environ.get("PS_FULL")
ROUNDS = 2 if QUICK else 5
TOGGLES = 3 if QUICK else 20

# Every connection and every datagram comes by these.
CALLED = {"reuseport_select_sock", "inet_release", "inet_csk_accept",
          "__skb_recv_udp"}
COUNT = 12

hooked = []


@test
def hooked_functions():
    """what the module hooks"""
    before = ps.traced()
    with Pool() as pool:
        pool.server("tcp", INET, net.port(), ps.member())
        pool.server("udp", INET, net.port(), ps.member(), addr="127.0.0.1"
                    ).connect(("127.0.0.1", 9))
        hooked.extend(sorted(ps.traced() - before))
    ok(CALLED <= set(hooked), "are known", hooked)
    ok(ps.disarmed(), "disarmed", ps.hooks())
    ps.unload()


class Groups:
    """Two members of each kind and family that take turns, and two of each
    that have a peer in their group."""

    def __init__(self, pool):
        self._sets = []
        for text, kind, family in combinations():
            port = net.port()
            servers = pool.servers(2, kind, family, port, ps.member("rr"))
            self._sets.append((text, servers, (net.LOOPBACK[family], port)))
        for family in net.FAMILIES:
            host, port = net.LOOPBACK[family], net.port()
            servers = pool.servers(3, "udp", family, port, ps.member("rr"),
                                   addr=host)
            servers.pop().connect((host, 9))
            self._sets.append((f"udp {net.FAMILY_NAMES[family]} with a peer",
                               servers, (host, port)))

    def shares(self):
        """Who gets what, where that isn't half each."""
        found = []
        for text, servers, address in self._sets:
            shares = net.counts(net.burst(servers, address, COUNT), 2)
            if shares != [COUNT // 2] * 2:
                found.append(f"{text}: {shares}")
        return found

    def __len__(self):
        return len(self._sets)


def seen(calls, name):
    """Older kernels' graph tracer sees what takes the place of a function."""
    return calls[name] or calls[f"hook_{name}"]


def looks_on(tracer, groups, text):
    """The tracer is on: all is served by turns, and it sees that."""
    wrong = groups.shares()
    ok(not wrong, f"{text}: served by turns", wrong)
    calls = tracer.calls()
    blind = [name for name in CALLED - set(getattr(tracer, "refused", ()))
             if not seen(calls, name)]
    ok(not blind, f"{text}: calls are seen", f"not of {blind}: {calls}")


def looks_away(groups, text):
    wrong = groups.shares()
    ok(not wrong, f"{text}: served by turns", wrong)


def tell_refused(tracer):
    for name, error in getattr(tracer, "refused", {}).items():
        tap.diag(f"{type(tracer).__name__}: {name}: {error}")


def load_beside(tracer):
    """Is the module loaded? One whose functions somebody redirects isn't: so do
    BPF programs in the eyes of older kernels."""
    try:
        ps.load()
        return True
    except RuntimeError as error:
        busy = "busy" in str(error).lower() and "is taken by" in str(error)
        ok(busy and isinstance(tracer, tracing.Programs),
           f"{type(tracer).__name__}: the module is refused in plain words",
           error)
        return False


def first(tracer):
    """The tracer is there before the module, and after it."""
    text = f"{type(tracer).__name__} first"
    tracer.on(hooked)
    tell_refused(tracer)
    try:
        if not load_beside(tracer):
            return
        with Pool() as pool:
            groups = Groups(pool)
            looks_on(tracer, groups, text)
            for turn in range(ROUNDS):
                tracer.off()
                looks_away(groups, f"{text}, off {turn + 1}")
                tracer.on(hooked)
                looks_on(tracer, groups, f"{text}, on {turn + 1}")
        ok(ps.disarmed(), f"{text}: disarmed under it", ps.hooks())
        ps.unload()
        ok(not ps.loaded(), f"{text}: unloaded under it")
    finally:
        tracer.off()


def second(tracer):
    """The module is armed before the tracer comes, and after it."""
    text = f"{type(tracer).__name__} second"
    ps.load()
    with Pool() as pool:
        groups = Groups(pool)
        for turn in range(ROUNDS):
            tracer.on(hooked)
            if not turn:
                tell_refused(tracer)
            try:
                looks_on(tracer, groups, f"{text}, on {turn + 1}")
            finally:
                tracer.off()
            looks_away(groups, f"{text}, off {turn + 1}")
    ps.unload()


def each_call_once(tracer):
    """A lookup is one call to a tracer, as it is without the module."""
    names = ("reuseport_select_sock", "__skb_recv_udp")

    def counts(*prepare):
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(2, "udp", INET, port, *prepare)
            tracer.on(names)
            try:
                net.burst(servers, ("127.0.0.1", port), COUNT)
                calls = tracer.calls()
                return {name: seen(calls, name) for name in names
                        if name not in getattr(tracer, "refused", ())}
            finally:
                tracer.off()
    without = counts(net.reuseport)
    ps.load()
    beside = counts(ps.member("rr"))
    ps.unload()
    equal(beside, {name: without[name] for name in beside},
          f"{type(tracer).__name__}: sees each call once")


def under_load(tracer):
    """Switched on and off while others work: nothing is lost or goes astray."""
    text = f"{type(tracer).__name__} on and off"
    ps.load()
    with Pool() as pool:
        port = net.port()
        options = {INET: (), INET6: (net.v6only,)}
        for _ in range(2):
            workers = [pool.server(kind, family, port, ps.member("rr"),
                                   *options[family])
                       for _, kind, family in combinations()]
            load.start(pool, load.echo, workers)
        addresses = [(net.LOOPBACK[family], port) for family in net.FAMILIES]
        asking = {kind: load.start(pool, load.generate, kind, addresses)
                  for kind in net.TYPES}
        for _ in range(TOGGLES):
            tracer.on(hooked)
            time.sleep(0.1)
            tracer.off()
            time.sleep(0.1)
        for kind, child in asking.items():
            attempted, answered, failures = child.ask("stop")
            ok(attempted == answered > 0, f"{text}: {kind}: attempted "
               f"{attempted} = answered {answered}", "\n".join(failures))
            picked = [group.picked() for name, group in ps.table().items()
                      if name.startswith(kind)]
            # a datagram to begin with, and one that asks
            each = 2 if kind == "udp" else 1
            equal(sum(map(sum, picked)), each * attempted,
                  f"{text}: {kind}: picked as often")
            ok(all(max(counts) - min(counts) <= 1 for counts in picked),
               f"{text}: {kind}: by turns", picked)
    ps.unload()


def with_tracer(kind):
    """One after the other, or the whole kind is skipped."""
    tracer = kind()
    first(tracer)
    second(tracer)
    each_call_once(tracer)
    under_load(tracer)


@test
def function_tracer():
    """the function tracer, on all hooked functions and on our own"""
    with_tracer(tracing.FunctionTracer)


@test
def function_graph():
    """the function graph tracer"""
    with_tracer(tracing.GraphTracer)


@test
def kprobes():
    """kprobes"""
    with_tracer(tracing.Kprobes)


@test
def kretprobes():
    """kretprobes"""
    with_tracer(tracing.Kretprobes)


def need_luck():
    """Linux 6.1, and perhaps others, has a race where a program is attached to a
    function that a module or a livepatch redirects: ftrace_startup() takes back
    the first attempt without a grace period, bpf_trampoline_update() then
    forgets the callback, and who is just walking the list of callbacks warns
    and switches ftrace off for good. It takes some hundred attempts under load."""
    if QUICK:
        raise tap.Skip("the kernel itself may warn of it: PS_FULL=1 tries")


@test
def fentry():
    """BPF programs at the entry"""
    need_luck()
    with bpf.counted():
        with_tracer(tracing.Programs)


@test
def fexit():
    """BPF programs at the end"""
    need_luck()
    with bpf.counted():
        with_tracer(tracing.ExitPrograms)


@test
def all_at_once():
    """every tracer that there is, in the order of coming and the other way"""
    tracers = []
    for kind in tracing.ALL:
        # Of the kernel's own, one can be on at a time.
        if kind is tracing.GraphTracer:
            continue
        if QUICK and issubclass(kind, tracing.Programs):
            continue
        try:
            tracers.append(kind())
        except tap.Skip as why:
            tap.diag(str(why))
    ps.load()
    with Pool() as pool, bpf.counted():
        groups = Groups(pool)
        for turn in range(ROUNDS):
            order = tracers if turn % 2 else tracers[::-1]
            for tracer in order:
                tracer.on(hooked)
            for tracer in order:
                looks_on(tracer, groups, f"{type(tracer).__name__} among all")
            for tracer in order:
                tracer.off()
                looks_away(groups, f"{type(tracer).__name__} goes")
    ps.unload()


if __name__ == "__main__":
    tap.run(ps.prepare_guest, limit=600)
