# SPDX-License-Identifier: GPL-2.0
"""Modules other than portsteer, and what the kernel log says."""
import contextlib
import os
import subprocess

from . import tap


def _run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return None if not done.returncode else done.stderr.strip()


def load(name, **parameters):
    """insmod; None, or what it says."""
    path = f"/portsteer/{name}.ko"
    if not os.path.exists(path):
        raise tap.Skip(f"this kernel has no {name}.ko")
    return _run("/sbin/insmod", path, *(f"{key}={value}" for key, value
                                        in parameters.items()))


def unload(name):
    """rmmod; None, or what it says."""
    return _run("/sbin/rmmod", name)


@contextlib.contextmanager
def _loaded(name, function):
    """A module of ours that does something to a kernel function."""
    error = load(name, function=function)
    if error:
        raise RuntimeError(f"{name} {function}: {error}")
    try:
        yield
    finally:
        error = unload(name)
        if error:
            raise RuntimeError(error)


def taken(function):
    """Somebody replaces a kernel function while the block runs."""
    return _loaded("taker", function)


@contextlib.contextmanager
def counted(function):
    """The block gets a function: how often the kernel has called this one."""
    def calls():
        with open("/sys/module/counter/parameters/calls") as file:
            return int(file.read())

    with _loaded("counter", function):
        yield calls


class Log:
    """What the kernel says from now on."""

    def __init__(self):
        self._mark = f"mark {os.urandom(8).hex()}"
        with open("/dev/kmsg", "w") as file:
            file.write(self._mark)

    def lines(self, word=""):
        """Those that contain it."""
        text = subprocess.run(["dmesg"], capture_output=True,
                              text=True).stdout
        return [line for line in text.split(self._mark, 1)[1].splitlines()
                if word in line]
