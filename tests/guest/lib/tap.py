# SPDX-License-Identifier: GPL-2.0
"""Test Anything Protocol: a line per assertion, the plan at the end.

A test file decorates functions with @test and ends in run(). A function may
assert as often as it likes; one that throws, or hangs, is one more failure
and the next function still runs.
"""
import errno
import os
import signal
import sys
import time
import traceback

_tests = []
_count = 0
_failed = 0


class Skip(Exception):
    """Thrown by a test that this kernel or guest can't run."""


def test(function):
    _tests.append(function)
    return function


def diag(text):
    for line in str(text).splitlines():
        print("#", line, flush=True)


def ok(condition, text, why=None):
    global _count, _failed
    _count += 1
    if not condition:
        _failed += 1
    # Flushed, so that a fork doesn't print the buffer a second time and a
    # guest that dies has told how far it came.
    print(f"{'ok' if condition else 'not ok'} {_count} - {text}", flush=True)
    if not condition and why is not None:
        diag(why)
    return bool(condition)


def failed():
    """Has anything gone wrong so far?"""
    return _failed > 0


def equal(got, want, text):
    return ok(got == want, text, f"got  {got!r}\nwant {want!r}")


def skip(text, why):
    global _count
    _count += 1
    print(f"ok {_count} - {text} # SKIP {why}", flush=True)


def name_of(error):
    """The name of an OSError's errno."""
    name = errno.errorcode.get(error.errno, str(error))
    # Linux has one number for two names, Python knows the other one.
    return "EOPNOTSUPP" if name == "ENOTSUP" else name


def error_of(call, *args, **keywords):
    """The name of the errno that call() fails with, or None."""
    try:
        call(*args, **keywords)
    except OSError as error:
        return name_of(error)
    return None


def fails(want, text, call, *args, **keywords):
    """call() must fail with the errno named want, or one of several."""
    wanted = (want,) if isinstance(want, str) else tuple(want)
    got = error_of(call, *args, **keywords)
    return ok(got in wanted, f"{text}: {' or '.join(wanted)}", f"got {got}")


def _hung(_signal, _frame):
    raise TimeoutError("the test took too long")


def _run_one(function, after, limit):
    name = function.__name__.replace("_", " ")
    diag(f"{name}: {(function.__doc__ or '').strip()}")
    began = time.monotonic()
    try:
        signal.alarm(limit)
        function()
        signal.alarm(limit)
        trouble = after() if after else None
    except Skip as why:
        skip(name, why)
    except BaseException:
        ok(False, f"{name} runs to its end", traceback.format_exc())
        signal.alarm(limit)
        if after:
            after()
    else:
        if trouble:
            ok(False, f"{name} leaves nothing behind", trouble)
    finally:
        signal.alarm(0)
        # for who wonders why the suite takes so long
        diag(f"{time.monotonic() - began:.1f} s")


def run(before=None, after=None, last=None, limit=120):
    """Run what @test collected and leave the process.

    before() prepares the guest, after() tidies up behind every test and
    returns a text if the test left something behind, last() ends it all.
    limit: seconds that one test may take; more on a debug kernel.
    """
    global _tests
    limit *= int(os.environ.get("PS_SLOW", 1))
    signal.signal(signal.SIGALRM, _hung)
    if before:
        _tests = [before] + _tests
    if last:
        _tests.append(last)
    for function in _tests:
        failed = _failed
        _run_one(function, None if function in (before, last) else after, limit)
        if function is before and _failed > failed:
            break		# without the module every test would fail
    print(f"1..{_count}", flush=True)
    sys.exit(1 if _failed else 0)
