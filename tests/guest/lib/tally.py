# SPDX-License-Identifier: GPL-2.0
"""Accounts in shared memory: what a process has written there counts also
after it has been killed. Make them before the processes that share them."""
import mmap


class Tally:
    """Named counters. One process writes, any may read."""

    def __init__(self, *names):
        self._memory = mmap.mmap(-1, 8 * len(names))
        self._cells = memoryview(self._memory).cast("Q")
        self._place = {name: i for i, name in enumerate(names)}

    def add(self, name, count=1):
        self._cells[self._place[name]] += count

    def __getitem__(self, name):
        return self._cells[self._place[name]]

    def items(self):
        return {name: self[name] for name in self._place}.items()

    def total(self):
        return sum(self._cells)


def sum_of(tallies):
    """{name: count} of all of them."""
    done = {}
    for tally in tallies:
        for name, count in tally.items():
            done[name] = done.get(name, 0) + count
    return done


class Log:
    """How often each number was seen. Many write: the same number at the same
    time would be counted once only, but then it's there twice in all odds as
    two processes had it."""

    def __init__(self, size):
        self._seen = mmap.mmap(-1, size)

    def mark(self, number):
        self._seen[number] += 1

    def read(self, first, count):
        """An octet of each number."""
        return self._seen[first:first + count]
