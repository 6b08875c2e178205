# SPDX-License-Identifier: GPL-2.0
"""Is a distribution uniform?"""
import math


def chi_square(counts):
    """Pearson's statistic of counts against the uniform distribution."""
    mean = sum(counts) / len(counts)
    return sum((count - mean) ** 2 for count in counts) / mean


def p_value(counts):
    """Chance of a uniform source to be at least as uneven as counts.

    By Wilson and Hilferty's cube root, good to a few percent of p far into
    the tails, which is all that a test of one in a million needs.
    """
    freedom = len(counts) - 1
    spread = 2 / (9 * freedom)
    z = (chi_square(counts) / freedom) ** (1 / 3) - (1 - spread)
    return math.erfc(z / math.sqrt(2 * spread)) / 2


def uniform(counts, odds=1e-6):
    """True but once in a million runs if counts come from a good hash.

    Too even is as suspicious as too uneven: it would be round robin.
    """
    return odds < p_value(counts) < 1 - odds
