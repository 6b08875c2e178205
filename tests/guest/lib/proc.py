# SPDX-License-Identifier: GPL-2.0
"""Processes that do something on the side.

A child is forked and so holds a duplicate of every socket its parent has:
where that matters, start the child first.
"""
import contextlib
import ctypes
import multiprocessing
import os
import time
import traceback

NOBODY = 65534
PR_SET_DUMPABLE = 4

_fork = multiprocessing.get_context("fork")


class Child:
    """function(link, *args) in a child; .link is our end of the pipe."""

    def __init__(self, function, *args):
        self.link, theirs = _fork.Pipe()
        self._process = _fork.Process(target=self._main, daemon=True,
                                      args=(theirs, function, args))
        self._process.start()
        theirs.close()

    def _main(self, link, function, args):
        self.link.close()
        os.setpriority(os.PRIO_PROCESS, 0, 0)	# also if urgent() made it
        try:
            function(link, *args)
        except (EOFError, BrokenPipeError):
            pass			# the parent is done with us
        except BaseException:
            link.send(RuntimeError(traceback.format_exc()))

    @property
    def pid(self):
        return self._process.pid

    def get(self, timeout=60):
        """What the child sent; what it threw is thrown here too."""
        if not self.link.poll(timeout):
            raise TimeoutError("the child says nothing")
        answer = self.link.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask(self, question, timeout=60):
        self.link.send(question)
        return self.get(timeout)

    def kill(self):
        self._process.kill()
        self._process.join()

    def wait(self, timeout=60):
        """True if the child ended by itself in time."""
        self._process.join(timeout)
        return self._process.exitcode is not None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.link.close()
        self.kill()


def call(function, *args):
    """The value of function(*args), run in a process of its own."""
    with Child(lambda link: link.send(function(*args))) as child:
        return child.get()


def become_nobody():
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    # The kernel hides /proc/self of who changed its uid; uid_map is there.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def as_nobody(function, *args):
    def main():
        become_nobody()
        return function(*args)
    return call(main)


def wait_for(condition, timeout=10):
    """Poll until condition() is true; its last value."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        time.sleep(0.05)


@contextlib.contextmanager
def urgent():
    """Before the load, which would keep this process waiting for seconds where
    all CPUs are emulated in one thread. Its children are as any other."""
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
