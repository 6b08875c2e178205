# SPDX-License-Identifier: GPL-2.0
"""Control groups for memory, version 2."""
import os

from . import proc, tap

ROOT = "/sys/fs/cgroup"


def _write(path, value):
    with open(path, "w") as file:
        file.write(str(value))


class Cgroup:
    """One that is empty at first; "with" puts this process into it."""

    def __init__(self, name):
        try:
            with open(f"{ROOT}/cgroup.controllers") as file:
                there = file.read().split()
        except OSError as error:
            raise tap.Skip(f"no cgroup2: {error.strerror}")
        if "memory" not in there:
            raise tap.Skip("no memory controller in cgroup2")
        _write(f"{ROOT}/cgroup.subtree_control", "+memory")
        self._path = f"{ROOT}/{name}"
        os.mkdir(self._path)

    def add(self, pid):
        _write(f"{self._path}/cgroup.procs", pid)

    def limit(self, octets):
        _write(f"{self._path}/memory.max", octets)

    def used(self):
        with open(f"{self._path}/memory.current") as file:
            return int(file.read())

    def _pairs(self, name):
        with open(f"{self._path}/{name}") as file:
            return {key: int(value) for key, value in map(str.split, file)}

    def kernel(self):
        """Octets of kernel memory; from 5.18 on not only in slabs."""
        stat = self._pairs("memory.stat")
        return stat.get("kernel", stat["slab"])

    def killed(self):
        """How many processes have been killed for want of memory."""
        return self._pairs("memory.events")["oom_kill"]

    def __enter__(self):
        self.add(os.getpid())
        return self

    def __exit__(self, *_):
        _write(f"{ROOT}/cgroup.procs", os.getpid())

    def _remove(self):
        try:
            os.rmdir(self._path)
        except OSError:
            return False		# who was killed takes a moment to go
        return True

    def close(self):
        proc.wait_for(self._remove)
