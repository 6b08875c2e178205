# SPDX-License-Identifier: GPL-2.0
"""The kernel's own knobs and counters."""
import contextlib
import os

from . import tap


def set_sysctl(name, value):
    """For good, or as long as the current network namespace lives."""
    with open(f"/proc/sys/{name.replace('.', '/')}", "w") as file:
        file.write(str(value))


@contextlib.contextmanager
def sysctl(name, value):
    """Another value for as long as the block runs."""
    with open(f"/proc/sys/{name.replace('.', '/')}") as file:
        old = file.read()
    set_sysctl(name, value)
    try:
        yield
    finally:
        set_sysctl(name, old)


def snmp(protocol, name):
    """A counter of this network namespace: snmp("Tcp", "OutRsts")."""
    for path in ("snmp", "netstat"):
        with open(f"/proc/thread-self/net/{path}") as file:
            lines = [line.split() for line in file
                     if line.startswith(f"{protocol}:")]
        if lines and name in lines[0]:
            return int(lines[1][lines[0].index(name)])
    raise KeyError(f"{protocol} {name}")


def snmp6(name):
    with open("/proc/thread-self/net/snmp6") as file:
        return int(dict(line.split() for line in file)[name])


@contextlib.contextmanager
def on_cpu(*cpus):
    """Run the block on these CPUs: so do the packets that it sends over lo."""
    old = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, old)


def _list(path):
    """The numbers of "0-3,5"."""
    with open(path) as file:
        parts = [part.split("-") for part in file.read().strip().split(",")]
    return [number for part in parts
            for number in range(int(part[0]), int(part[-1]) + 1)]


def cpu_list(name):
    """The CPUs that are online, possible, present…"""
    return _list(f"/sys/devices/system/cpu/{name}")


def node_list(name):
    """The NUMA nodes that are online, possible, has_cpu…"""
    return _list(f"/sys/devices/system/node/{name}")


def online(cpu, value):
    """Take a CPU away, or give it back."""
    with open(f"/sys/devices/system/cpu/cpu{cpu}/online", "w") as file:
        file.write(str(int(value)))


@contextlib.contextmanager
def offline(*cpus):
    """These CPUs are away while the block runs."""
    with contextlib.ExitStack() as back:
        for cpu in cpus:
            try:
                online(cpu, False)
            except OSError as error:
                raise tap.Skip("CPUs can't be taken offline: "
                               f"{error.strerror}")
            back.callback(online, cpu, True)
        yield
