# SPDX-License-Identifier: GPL-2.0
"""What tests that try at random share: seeds that reproduce a run, memory
that ends where it should, texts that are almost right.

A run prints its seed; --seed N or PS_SEED=N does the same again, --rounds N or
PS_ROUNDS=N is how much of it, in percent of what the test does by itself.
"""
import argparse
import ctypes
import mmap
import os
import random

from . import net, ns, ps, tap

PAGE = mmap.PAGESIZE
PROT_NONE, PROT_READ, PROT_WRITE = 0, 1, 2
QUICK = 20	# percent, without PS_FULL

_parser = argparse.ArgumentParser()
_parser.add_argument("--seed", default=os.environ.get("PS_SEED"))
_parser.add_argument("--rounds", type=int, metavar="PERCENT", default=int(
    os.environ.get("PS_ROUNDS", 100 if os.environ.get("PS_FULL") else QUICK)))
_arguments = _parser.parse_args()
seed = _arguments.seed or str(random.SystemRandom().randrange(10 ** 6))
tap.diag(f"seed {seed}, rounds {_arguments.rounds} %")


def rounds(count):
    """So many of them in this run."""
    return max(1, count * _arguments.rounds // 100)


def chances(*names):
    """The same numbers in every run of this seed, others for other names."""
    return random.Random(" ".join((seed, *map(str, names))))


# Memory

class Memory:
    """Two pages with nothing behind them, full of a pattern."""

    size = 2 * PAGE
    PATTERN = b"\xa5"

    def __init__(self):
        self._map = mmap.mmap(-1, self.size + PAGE)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._protect(self._base + self.size, PAGE, PROT_NONE)
        self.fill()

    @staticmethod
    def _protect(address, length, how):
        ns.check(ns.libc.mprotect(ctypes.c_void_p(address),
                                  ctypes.c_size_t(length), how))

    def fill(self):
        self._map[:self.size] = self.PATTERN * self.size

    def end(self, room):
        """The address from which room bytes can be accessed, not one more."""
        return self._base + self.size - room

    def put(self, room, data):
        """Data at end(room), as far as it fits."""
        begin = self.size - room
        data = data[:room]
        self._map[begin:begin + len(data)] = data

    def take(self, room):
        """What is at end(room)."""
        return self._map[self.size - room:self.size]

    def touched(self, room):
        """Has anything before end(room) changed?"""
        before = self.size - room
        return self._map[:before] != self.PATTERN * before

    def read_only(self, yes=True):
        self._protect(self._base, self.size,
                      PROT_READ if yes else PROT_READ | PROT_WRITE)


# Texts

NUMBERS = ("0", "00", "-0", "1", "-1", "2", "8", "9", "19", "20", "63", "64",
           "255", "256", "32768", "65535", "65536", "2147483647",
           "2147483648", "-2147483648", "-2147483649", "4294967295",
           "4294967296", "4294967297", "9223372036854775807",
           "9223372036854775808", "-9223372036854775808",
           "-9223372036854775809", "18446744073709551616",
           "18446744073709551617", "0" * 20 + "1", "0" * 19 + "1", "1" * 21,
           "1" * 400, "0x10", "1e3", "1.0", "+1", "1_0", "\uff11")


def _digits(text):
    """[(begin, end)] of the numbers in it."""
    found, begin = [], None
    for i, byte in enumerate(text + b" "):
        digit = 48 <= byte <= 57
        if digit and begin is None:
            begin = i
        elif not digit and begin is not None:
            found.append((begin, i))
            begin = None
    return found


def _flip(chance, text):
    i = chance.randrange(len(text))
    return text[:i] + bytes([text[i] ^ 1 << chance.randrange(8)]) + text[i + 1:]


def _cut(chance, text):
    i, j = sorted(chance.choices(range(len(text) + 1), k=2))
    return text[:i] + text[j:]


def _double(chance, text):
    i, j = sorted(chance.choices(range(len(text) + 1), k=2))
    return text[:j] + text[i:]


def _insert(chance, text):
    i = chance.randrange(len(text) + 1)
    what = chance.choice((b"\0", b"\n", b" ", b"\t", b"  \t ", b"=", b"\r",
                          b"\v", b"\xa0", b"-", b"+", b"[", b"#", b",",
                          bytes([chance.randrange(256)])))
    return text[:i] + what + text[i:]


def _number(chance, text):
    found = _digits(text)
    if not found:
        return _insert(chance, text)
    begin, end = chance.choice(found)
    return text[:begin] + chance.choice(NUMBERS).encode() + text[end:]


def _words(chance, text):
    words = text.split(b" ")
    i, j = chance.randrange(len(words)), chance.randrange(len(words))
    how = chance.randrange(3)
    if how == 0:
        words[i], words[j] = words[j], words[i]
    elif how == 1:
        words.insert(i, words[j])
    else:
        del words[i]
    return b" ".join(words)


def _long(chance, text):
    i = chance.randrange(len(text) + 1)
    what = chance.choice((b" ", b"\t", b"0", b"x", b"\0", b" a", b"\n"))
    size = chance.choice((10, 100, 1000, PAGE - 1 - len(text),
                          PAGE - len(text), PAGE + 1 - len(text), 2 * PAGE))
    return text[:i] + (what * max(size, 1))[:size] + text[i:]


def _case(_chance, text):
    return text.swapcase()


def _newline(_chance, text):
    return text + b"\n"


_HOW = (_flip, _cut, _double, _insert, _number, _words, _long, _case, _newline)


def mutate(chance, text):
    """Bytes that are text, or almost, or hardly."""
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        if text:
            text = chance.choice(_HOW)(chance, text)
    return text


def check_exact(text):
    """The module works as if nothing had been."""
    for what, kind, family in net.combinations():
        with net.Pool() as pool:
            port = net.port()
            servers = pool.servers(4, kind, family, port, ps.member("rr"))
            shares = net.counts(net.burst(
                servers, (net.LOOPBACK[family], port), 40), 4)
            group = ps.group(servers[0])
            tap.equal((shares, group.picked(), group["fallbacks"]),
                      ([10] * 4, [10] * 4, 0), f"{text}: {what} exact afterwards")
