#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: modules timeout=600
"""Functions that somebody else replaces, a livepatch for instance: who comes
second is refused in plain words, and nothing of it stays."""
import collections
import contextlib
import os
import random

from lib import modules, net, ns, proc, ps, tap
from lib.modules import Log, taken
from lib.net import INET, Pool, combinations
from lib.tap import Skip, equal, fails, ok, test

QUICK = os.environ.get("PS_QUICK")
LIVEPATCH = "/sys/kernel/livepatch"

# What is redirected, and what is only looked at; filled in by all_functions().
redirected, observed = [], []


def functions():
    """Those to try; a few in the short form, by chance others in each run."""
    if not redirected:
        raise Skip("it isn't known what is hooked")
    if not QUICK:
        return redirected
    return sorted(random.sample(redirected, 4))


@test
def all_functions():
    """what the module hooks, with everything armed"""
    ps.disarmed()
    before = ps.traced()
    with Pool() as pool:
        pool.server("tcp", INET, net.port(), ps.member())
        pool.server("udp", INET, net.port(), ps.member(), addr="127.0.0.1"
                    ).connect(("127.0.0.1", 9))
        redirected.extend(sorted(ps.hooks()))
        observed.extend(sorted(ps.traced() - before - ps.hooks()))
    ok("reuseport_select_sock" in redirected and
       "__udp4_lib_lookup" in redirected, "redirected",
       f"{redirected}")
    ok("inet_csk_accept" in observed, "looked at", f"{observed}")
    tap.diag(f"redirected: {' '.join(redirected)}")
    tap.diag(f"looked at: {' '.join(observed)}")
    ok(ps.disarmed(), "disarmed", ps.hooks())


def serves(text, *prepare, exact=True):
    """Servers of both kinds get what is sent to them."""
    wrong = []
    for name, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            servers = pool.servers(2, kind, family, port, *prepare)
            shares = net.counts(net.burst(
                servers, (net.LOOPBACK[family], port), 6), 2)
            if sum(shares) != 6 or (exact and shares != [3, 3]):
                wrong.append(f"{name}: {shares}")
    ok(not wrong, f"{text}: all is served", wrong)


def serves_plain(text):
    serves(text, net.reuseport, exact=False)


def load_error():
    try:
        ps.load()
    except RuntimeError as error:
        return str(error)
    return None


def names(log, function):
    """The lines that say, in plain words, who has the function."""
    return [line for line in log.lines(f"{function}() ")
            if "taken by a livepatch" in line]


@test
def before_loading():
    """the module isn't loaded where one of its functions is taken"""
    tried = functions()
    ps.unload()
    for function in tried:
        with taken(function):
            others = ps.traced()
            log = Log()
            error = load_error()
            ok(error and "busy" in error.lower(), f"{function}: EBUSY", error)
            equal(len(names(log, function)), 1, f"{function}: is named")
            equal((ps.loaded(), ps.hooks(), ps.traced()),
                  (False, {function}, others), f"{function}: nothing stays")
        ps.load()
        equal(ps.hooks(), set(), f"{function}: loaded once it's free")
        ps.unload()
    ps.load()
    serves("free again", ps.member("rr"))


@test
def what_is_looked_at():
    """a function that we only look at may be somebody else's"""
    for function in observed:
        with taken(function):
            serves(f"{function}, taken first", ps.member("rr"))
    with Pool() as pool:
        sock = pool.server("tcp", INET, net.port(), ps.member("rr"))
        for function in observed:
            with taken(function):
                equal(ps.info(sock).members, 1, f"{function}, taken later")
                serves(f"{function}, taken later", ps.member("rr"))


# Armed with the first connect(), so taking them doesn't keep members out.
def on_demand(function):
    return function.endswith("_lib_lookup")


def refused(function):
    """JOIN and rules while the function is taken."""
    log = Log()
    with Pool() as pool:
        for kind in net.TYPES:
            sock = pool.new(kind, INET)
            fails("EBUSY", f"{function}: JOIN of a {kind} socket", ps.join,
                  sock)
            equal(ps.get(sock, ps.JOIN), 0, f"{function}: is no wish")
            fails("EBUSY", f"{function}: a rule", ps.rule,
                  f"add {kind} 443 policy=rr")
    equal((ps.rules(), ps.table(), ps.hooks()), ([], {}, {function}),
          f"{function}: nothing stays")
    equal(len(names(log, function)), 1,
          f"{function}: is named, once however often it is tried")


@test
def before_arming():
    """what would arm the hooks is refused while a function is taken"""
    for function in functions():
        if on_demand(function):
            continue
        ok(ps.disarmed(), f"{function}: is free", ps.hooks())
        with taken(function):
            refused(function)
            serves_plain(function)
        with net.new("udp", INET) as sock:
            equal(tap.error_of(ps.join, sock), None,
                  f"{function}: JOIN once it's free")
            ok(ps.hooks(), f"{function}: armed")
    serves("free again", ps.member("rr"))


def with_peer(text):
    """connect() of a member: its peer's datagrams are its own."""
    for family in net.FAMILIES:
        host = net.LOOPBACK[family]
        with Pool() as pool:
            port = net.port()
            peer = pool.server("udp", family, net.port(), addr=host)
            servers = pool.servers(4, "udp", family, port, ps.member("rr"),
                                   addr=host)
            servers[1].connect(peer.getsockname())
            address = (host, port)
            equal(net.burst(servers, address, 10, through=peer), [1] * 10,
                  f"{text}, {net.FAMILY_NAMES[family]}: the peer's")
            shares = net.counts(net.burst(servers, address, 30), 4)
            equal(shares, [10, 0, 10, 10],
                  f"{text}, {net.FAMILY_NAMES[family]}: all others'")


@test
def before_connecting():
    """without the hooks for peers, a peer's datagrams are still its member's"""
    for function in filter(on_demand, redirected):
        ok(ps.disarmed(), f"{function}: is free", ps.hooks())
        with taken(function):
            log = Log()
            with_peer(f"{function} is taken")
            equal(len(names(log, function)), 1, f"{function}: is named, once")
        ok(ps.disarmed(), f"{function}: is free", ps.hooks())
        with_peer(f"{function} is free")


@test
def after_arming():
    """who wants one of our functions later is refused, and had it never"""
    tried = functions()
    with Pool() as pool:
        servers = pool.servers(2, "udp", INET, net.port(), ps.member("rr"))
        pool.server("udp", INET, net.port(), ps.member(), addr="127.0.0.1"
                    ).connect(("127.0.0.1", 9))
        armed, address = ps.hooks(), ("127.0.0.1", servers[0].getsockname()[1])
        equal(sorted(armed), redirected, "all are armed")
        for function in tried:
            error = modules.load("taker", function=function)
            ok(error and "busy" in error.lower(), f"{function}: EBUSY", error)
            equal(ps.hooks(), armed, f"{function}: is ours")
        equal(net.counts(net.burst(servers, address, 6), 2), [3, 3],
              "and we steer")
    ok(ps.disarmed(), "disarmed", ps.hooks())
    for function in tried:
        with taken(function):
            equal(ps.hooks(), {function}, f"{function}: somebody else's now")


# Any user can have the module try

TRIES = 100
# Half a second lies between any two, and what is refused takes next to none.
MOST = 20
CROWD = 4


def join():
    """A JOIN of a new socket: None, or the errno's name."""
    with net.new("tcp", INET) as sock:
        return tap.error_of(ps.join, sock)


def joins(count):
    """What so many of them come to."""
    return collections.Counter(join() for _ in range(count))


def user():
    return proc.as_nobody(joins, TRIES)


def owner():
    """Root of a user namespace, which may write rules of its own."""
    def main():
        ns.own_everything()
        return joins(TRIES // 2) + collections.Counter(
            tap.error_of(ps.rule, "add tcp 443 policy=rr")
            for _ in range(TRIES // 2))
    return proc.as_nobody(main)


def crowd():
    """Several processes at once."""
    def one(link):
        proc.become_nobody()
        link.send(joins(TRIES // CROWD))

    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(proc.Child(one))
                    for _ in range(CROWD)]
        return sum((child.get() for child in children), collections.Counter())


def join_later():
    """A user's, which is refused until half a second after the last try."""
    return None if proc.wait_for(
        lambda: proc.as_nobody(join) is None) else "EBUSY"


class Attempts:
    """How often arming is tried while a function is taken: each time the
    module calls register_ftrace_function() so many times."""

    def __init__(self, calls):
        self._calls = calls
        join()				# what it says in the log has it try more
        self._each = self.calls_of(join)[0]

    def calls_of(self, call, *args):
        """How many calls call(*args) makes, and what it returns."""
        before = self._calls()
        value = call(*args)
        return self._calls() - before, value

    def of(self, call, *args):
        """The same in attempts."""
        calls, value = self.calls_of(call, *args)
        return calls / self._each, value


def seldom(text, attempts, who):
    """Users without privileges are refused, most of them without a try."""
    tried, errors = attempts.of(who)
    equal(errors, {"EBUSY": TRIES}, f"{text}: all are refused")
    ok(tried <= MOST, f"{text}: at most {MOST} of {TRIES} are tried", tried)
    tap.diag(f"{text}: {tried:g} of {TRIES}")


@test
def tried_seldom():
    """while a function is taken no user has the others patched all the time"""
    for text, free in (("an administrator's succeeds at once", join),
                       ("a user's succeeds later", join_later)):
        ok(ps.disarmed(), "disarmed", ps.hooks())
        with taken("reuseport_select_sock"), \
                modules.counted("register_ftrace_function") as calls:
            attempts = Attempts(calls)
            seldom("a user", attempts, user)
            seldom("root of a namespace", attempts, owner)
            seldom("several at once", attempts, crowd)
            equal(attempts.of(joins, 5), (5, {"EBUSY": 5}),
                  "an administrator's are all tried")
            seldom("a user, after that", attempts, user)
        equal(free(), None, f"once it's free {text}")


# A real livepatch

def finished():
    try:
        with open(f"{LIVEPATCH}/patch/transition") as file:
            return file.read() == "0\n"
    except FileNotFoundError:
        return True


def patch():
    """Load it; None, or the error."""
    return modules.load("patch")


def unpatch():
    """Take it back, which takes as long as tasks sleep in what it patches."""
    if not proc.wait_for(finished, 60):
        raise TimeoutError("the livepatch isn't in force")
    with open(f"{LIVEPATCH}/patch/enabled", "w") as file:
        file.write("0")
    if not proc.wait_for(lambda: not os.path.exists(f"{LIVEPATCH}/patch"), 60):
        raise TimeoutError("the livepatch doesn't go")
    # The kernel may still hold the module for a moment.
    if not proc.wait_for(lambda: modules.unload("patch") is None, 10):
        raise TimeoutError("the livepatch can't be unloaded")


@test
def livepatch():
    """a livepatch and the module: first come, first served"""
    if not os.path.isdir(LIVEPATCH):
        raise Skip("this kernel has no livepatching")
    if "udp_abort" not in redirected:
        raise Skip("udp_abort() isn't hooked here")
    ok(ps.disarmed(), "disarmed", ps.hooks())
    equal(patch(), None, "a livepatch of udp_abort() beside the module")
    try:
        log = Log()
        with net.new("udp", INET) as sock:
            fails("EBUSY", "JOIN", ps.join, sock)
        equal(len(names(log, "udp_abort")), 1, "udp_abort() is named")
        ps.unload()
        log = Log()
        error = load_error()
        ok(error and "busy" in error.lower(), "loading the module: EBUSY",
           error)
        equal(len(names(log, "udp_abort")), 1, "udp_abort() is named")
        serves_plain("patched")
    finally:
        unpatch()
        if not ps.loaded():
            ps.load()
    with Pool() as pool:
        servers = pool.servers(2, "udp", INET, net.port(), ps.member("rr"))
        error = patch()
        ok(error and "busy" in error.lower(), "the livepatch while armed: "
           "EBUSY", error)
        ok(not os.path.exists(f"{LIVEPATCH}/patch"), "and it isn't there")
        address = ("127.0.0.1", servers[0].getsockname()[1])
        equal(net.counts(net.burst(servers, address, 6), 2), [3, 3],
              "we steer")
    ok(ps.disarmed(), "disarmed", ps.hooks())
    equal(patch(), None, "the livepatch once disarmed")
    unpatch()
    serves("free again", ps.member("rr"))


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=400)
