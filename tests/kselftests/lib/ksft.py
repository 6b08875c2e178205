# SPDX-License-Identifier: GPL-2.0
"""The kernel's selftests: what each of them says with the kernel alone, with
hooks that somebody else has armed on its ports, and with rules that adopt its
sockets."""
import collections
import contextlib
import os
import re
import signal
import subprocess
import tempfile

from . import net, ns, ps, tap
from .tap import equal, ok

BIN = "/portsteer/guest/bin"
PROGRAMS = "/portsteer/kselftests"
LIMIT = 900		# seconds that one selftest may take

# Where the kernel chooses a test's ports it has these to choose from: so few that
# a page of rules holds them all.
CHOSEN = {"tcp": range(59880, 60000), "udp": range(59880, 60000),
          "both": range(59925, 60000)}

# Subtests and their verdicts: TAP, test_progs, udpgro.sh.
SUBTESTS = [re.compile(pattern) for pattern in (
    r"(?P<verdict>(?:not )?ok) \d+ (?:- )?(?P<name>\S.*?)\s*$",
    r"#\d+(?:/\d+)?\s+(?P<name>\S.*):(?P<verdict>OK|FAIL|SKIP)$",
    r" (?P<name>\S.*?) +(?P<verdict>ok)$")]
# Times, rates and names made up at random are no outcome.
NOISE = re.compile(r"took \S+|spent = \S+|^udp [rt]x:.*|-\w{6}\b")


def as_alone(alone, result):
    """What is not as it was with the kernel alone; empty if nothing."""
    if result.outcome() == alone.outcome():
        return ""
    names = [name for name in {**alone.subtests, **result.subtests}
             if alone.subtests.get(name) != result.subtests.get(name)]
    return "\n".join([f"differ: {names}", "alone:", alone.tail(), "now:",
                      result.tail()])


# How a test's sockets are adopted. ports: for which of its ports there are rules,
# None for all; expect(alone, result) returns what is wrong with the outcome, or
# nothing; joins: how many sockets are adopted, None for some.
Way = collections.namedtuple("Way", "what options ports expect joins", defaults=(
    "adopted", "policy=rr", None, as_alone, None))

# command: below PROGRAMS; ports: [(protocol, port)] that its servers use; chosen:
# a key of CHOSEN if the kernel chooses them; passes: with every kernel alone.
Test = collections.namedtuple("Test", "command ports chosen ways passes",
                              defaults=((), None, (Way(),), True))


class Result(collections.namedtuple("Result", "status subtests lines joins")):
    """Exit status, None if it hung; {subtest: verdict}; lines of output; how
    many sockets were adopted meanwhile."""

    def outcome(self):
        """What mustn't differ from one run to the next."""
        lines = [NOISE.sub("", line) for line in self.lines]
        return self.status, self.subtests or lines

    def failed(self):
        return {name for name, verdict in self.subtests.items()
                if verdict in ("not ok", "FAIL")}

    def tail(self, lines=30):
        return "\n".join([f"status {self.status}", *self.lines[-lines:]])


def _subtests(lines):
    found = (pattern.match(line) for line in lines for pattern in SUBTESTS)
    return {match["name"]: match["verdict"] for match in found if match}


def ports(test):
    """[(protocol, port)] that a test may use"""
    chosen = [(kind, port) for kind in net.TYPES
              if test.chosen in (kind, "both")
              for port in CHOSEN[test.chosen]]
    return [*test.ports, *chosen]


def _reserved(test):
    """ip_local_reserved_ports: all but those that may be chosen."""
    if not test.chosen:
        return ""
    left = CHOSEN[test.chosen]
    return f"1024-{left.start - 1},{left.stop}-65535"


def _execute(test, environment):
    """(exit status, output); what it has left running ends with it."""
    program, *arguments = test.command.split()
    directory, name = os.path.split(os.path.join(PROGRAMS, program))
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [f"./{name}", *arguments], cwd=directory, env=environment,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True)
        try:
            status = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            status = None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        return status, output.read().decode(errors="replace")


class _Joins:
    """How many sockets become members, by the tracepoint; None if there is no
    module."""

    PATH = f"{ps.TRACING}/instances/selftest"

    def __enter__(self):
        self.count = None
        if ps.loaded():
            os.mkdir(self.PATH)
            ps.sysfs_write(f"{self.PATH}/events/portsteer/join/enable", 1)
        return self

    def __exit__(self, *_):
        if not os.path.exists(self.PATH):
            return
        ps.sysfs_write(f"{self.PATH}/events/portsteer/join/enable", 0)
        with open(f"{self.PATH}/trace") as file:
            written = re.search(r"entries-written: \d+/(\d+)",
                                file.read(1024))
        self.count = int(written[1])
        os.rmdir(self.PATH)


def run(test, *lines):
    """Run a test in a namespace of its own, with these rules there and in those
    that it makes itself."""
    space = ns.Namespace()
    try:
        with tempfile.NamedTemporaryFile("w") as file, space, _Joins() as joins:
            reserved = _reserved(test)
            if reserved:
                ps.sysfs_write("/proc/sys/net/ipv4/ip_local_reserved_ports",
                               reserved)
            for line in lines:
                ps.rule(line)
                print(line, file=file, flush=True)
            status, text = _execute(test, {
                "PATH": f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin",
                "KSELFTEST_RESERVED": reserved,
                "KSELFTEST_RULES": file.name if lines else ""})
    finally:
        space.close()
    return Result(status, _subtests(text.splitlines()), text.splitlines(),
                  joins.count)


def _ready():
    """a guest as the selftests want it"""
    ns.lo_up()
    # They take /bin/sh for bash.
    os.symlink("bash", "/bin/sh.new")
    os.rename("/bin/sh.new", "/bin/sh")


def _strangers(pool, test):
    """Members on the ports of a test, in another namespace: hooks are armed and
    see all that comes to these ports."""
    for kind, port in dict.fromkeys(ports(test)):
        for family in net.FAMILIES:
            pool.server(kind, family, port, ps.member("rr"),
                        *([net.v6only] if family == net.INET6 else []))


def _left_behind():
    return ps.left_behind() if ps.loaded() else None


def _kernel_alone(test):
    result = run(test)
    tap.diag(f"{test.command}: status {result.status}, "
             f"{len(result.subtests)} subtests, "
             f"failed: {sorted(result.failed())}")
    if test.passes:
        ok(result.status == 0, f"{test.command}: passes", result.tail())
    return result


def _hooks_armed(test, alone):
    with net.Pool() as pool:
        _strangers(pool, test)
        ok(ps.hooks(), f"{test.command}: hooks are armed")
        result = run(test)
    why = as_alone(alone, result)
    ok(not why, f"{test.command}: as with the kernel alone", why)
    equal(result.joins, 0, f"{test.command}: nothing is adopted")


def _adopted(test, way, alone):
    result = run(test, *(f"add {kind} {port} {way.options}"
                         for kind, port in way.ports or ports(test)))
    why = way.expect(alone, result)
    ok(not why, f"{test.command}: {way.what}", why)
    if way.joins is None:
        ok(result.joins > 0, f"{test.command}: sockets are adopted")
    else:
        equal(result.joins, way.joins,
              f"{test.command}: so many sockets are adopted")


def main(*tests):
    """Run all of tests in every way."""
    alone = {}

    @tap.test
    def kernel_alone():
        """what all else is compared with"""
        for test in tests:
            alone[test] = _kernel_alone(test)
        ps.load()

    @tap.test
    def hooks_armed():
        """the same with others' members on the same ports"""
        for test in tests:
            _hooks_armed(test, alone[test])

    @tap.test
    def adopted():
        """the same with rules that adopt their sockets"""
        for test in tests:
            for way in test.ways:
                _adopted(test, way, alone[test])

    tap.run(_ready, _left_behind, ps.remove_module, limit=6 * LIMIT)
