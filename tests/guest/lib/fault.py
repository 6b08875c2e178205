# SPDX-License-Identifier: GPL-2.0
"""Memory that isn't there: the kernel's fault injection, which debug kernels
have."""
import contextlib
import os

from . import tap

DEBUG = "/sys/kernel/debug"
NTH = "/proc/thread-self/fail-nth"

# What may fail: allocations of any cache, of single pages, also by who could
# wait. Each failure in the log, with its stack, would look like a complaint.
ALWAYS = {"verbose": "0", "probability": "0", "interval": "1", "space": "0",
          "task-filter": "N"}
SLAB = {"ignore-gfp-wait": "N", "cache-filter": "N"}
PAGES = {"ignore-gfp-wait": "N", "ignore-gfp-highmem": "N", "min-order": "0"}
MOST = 1 << 30


def _write(path, value):
    with open(path, "w") as file:
        file.write(str(value))


def _set(kind, settings):
    for name, value in settings.items():
        _write(f"{DEBUG}/{kind}/{name}", value)


def need():
    """Get everything ready; for kernels that can't do it, a skip."""
    if not os.path.exists(NTH):
        raise tap.Skip("this kernel has no fault injection")
    for kind, settings in (("failslab", SLAB), ("fail_page_alloc", PAGES)):
        if not os.path.isdir(f"{DEBUG}/{kind}"):
            raise tap.Skip(f"this kernel has no {kind}")
        _set(kind, ALWAYS)
        _set(kind, settings)


class Nth:
    """Lets one allocation fail of those that this thread makes in a call."""

    def __init__(self):
        self._fd = os.open(NTH, os.O_RDWR)

    def call(self, number, function):
        """(the errno that function() fails with or None, how many allocations
        were missing to the one that was to fail: 0 if it has)"""
        text = str(number).encode()
        error = None
        os.pwrite(self._fd, text, 0)
        try:
            function()
        except OSError as failure:
            error = failure
        left = os.pread(self._fd, 16, 0)
        os.pwrite(self._fd, b"0", 0)
        return error and tap.name_of(error), int(left)

    def count(self, function):
        """How many allocations a call takes, and what comes of it."""
        error, left = self.call(MOST, function)
        return MOST - left, error

    def close(self):
        os.close(self._fd)


def kernel_workers():
    """The threads that do what is put off."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/comm") as file:
                if file.read().startswith("kworker/"):
                    yield pid


def mark(pids):
    """These are the ones whose allocations fail by chance."""
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            _write(f"/proc/{pid}/make-it-fail", 1)


class Chance:
    """Of so many percent of the allocations that are made while the block
    runs: in marked tasks, or with everybody where nobody can wait."""

    def __init__(self, percent, marked=True):
        self._percent = percent
        self._settings = {
            "times": MOST, "task-filter": "Y" if marked else "N",
            "ignore-gfp-wait": "N" if marked else "Y"}
        # Open, so that switching it off doesn't take memory.
        self._fd = os.open(f"{DEBUG}/failslab/probability", os.O_WRONLY)
        self.failed = 0

    def __enter__(self):
        _set("failslab", self._settings)
        os.write(self._fd, str(self._percent).encode())
        return self

    def __exit__(self, *_):
        while tap.error_of(os.write, self._fd, b"0"):
            pass
        os.close(self._fd)
        with open(f"{DEBUG}/failslab/times") as file:
            self.failed = MOST - int(file.read())
        _set("failslab", {**ALWAYS, **SLAB})
