# SPDX-License-Identifier: GPL-2.0
"""Rounds, each with a seed, until the time is over; after each of them the
kernel has to be as it was."""
import os
import random
import resource
import time

from lib import net, ps, slabs, tap
from lib.tap import ok

import rounds

MINUTES = float(os.environ.get("MINUTES", 2))
SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**32))
# Seconds; the round to warm up is half as long.
ROUND = max(30, min(120, MINUTES * 10))
# What may be in use that wasn't after the first round, beside two slabs of each
# cache: other parts of the kernel use the same caches, for processes and
# devices. A round makes and destroys some hundreds of members and groups, and a
# namespace is thousands of objects: a leak of each of them is more, one of some
# of them becomes more with time, for the limit doesn't.
OBJECTS = 32
PERCPU = 256 << 10


def grown(growth):
    return ", ".join(f"{name} {more:+d}" for name, more in sorted(
        growth.items(), key=lambda item: -item[1])[:12])


def settled(since, what, *limits):
    """Nothing is in use that wasn't; what is now."""
    usage, growth, excess = slabs.settle(since, *limits)
    ok(not excess, f"{what}: memory is back to where it was", excess)
    tap.diag(f"objects more than then: {grown(growth) or 'none'}")
    return usage


def soak(reloads):
    """everything is accounted for, and nothing left"""
    net.need_ipv6()
    began = slabs.Usage()
    end = time.monotonic() + 60 * MINUTES
    choose = random.Random(SEED)
    seed, number, before = SEED, 0, None
    while number < 2 or time.monotonic() + ROUND < end:
        seconds = ROUND if number else ROUND / 2
        tap.diag(f"round {number}: {seconds:g} seconds, SEED={seed}")
        rounds.Round(seed, seconds, reloads).run()
        if before:
            settled(before, f"round {number}", OBJECTS, PERCPU)
        else:		# sockets and namespaces: not even one
            before = settled(began, "the first round", 1 << 30, 1 << 30)
        if tap.failed():
            tap.diag(f"round {number} failed: make soak SEED={seed}")
            break		# more would tell less
        if number:
            seed = choose.randrange(2**32)
        number += 1


def run(reloads):
    def everything():
        soak(reloads)
    everything.__doc__ = soak.__doc__
    tap.test(everything)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module,
            limit=int(60 * MINUTES) + 3600)
