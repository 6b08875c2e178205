# SPDX-License-Identifier: GPL-2.0
"""Runs in the guest: how long requests to four workers take, one of which is
slow, by how the workers share the port: the kernel's own hash, one listener for
all, and each of portsteer's policies.

Prints a table for each kind of slowness, the curves to plot ("@" lines), and
what isn't as promised; the exit status is 1 if anything isn't.
"""
import argparse
import math
import os
import platform
import subprocess
import sys

SERVICE = 0.004         # seconds a request, see tail.c
UTILIZATION = 0.7
HASH, SHARED = "the kernel's hash", "one shared listener"
POLICIES = ("hash", "rr", "random", "least", "cpu", "numa", "rxqueue", "idle",
            "consistent")
PROMISED = ("least", "idle")
PERCENTILES = (0.5, 0.9, 0.99)

PAUSE = 0.2             # seconds, once a second
FACTOR = 4

# name: title, arguments of tail, requests a second the four can do, further
# cases
LOADS = {
    "pauses": (f"Worker 0 pauses for {PAUSE * 1000:.0f} ms once a second",
               ["-m", f"{PAUSE * 1000:.0f}"], (4 - PAUSE) / SERVICE, {}),
    "slow": (f"Worker 0 takes {FACTOR} times as long for a request",
             ["-f", f"{FACTOR}"], (3 + 1 / FACTOR) / SERVICE,
             {f"rr, weights 1:{FACTOR}":
              ["-p", "rr", "-w", ",".join(["1"] + 3 * [f"{FACTOR}"])]}),
}

# least and idle: p99 at most so many times that of the shared listener where a
# worker pauses, and at most such a part of that of the kernel's hash everywhere
TIMES_SHARED = 1.2
PART_OF_HASH = 0.25

ports = iter(range(7000, 8000))


class Result:
    def __init__(self, lines):
        pairs = [line.split() for line in lines]
        self.took = sorted(int(us) / 1000 for us, _ in pairs)
        workers = [int(worker) for _, worker in pairs]
        self.shares = [workers.count(i) / len(workers) for i in range(4)]

    def percentile(self, p):
        """In milliseconds: so many of the requests took no longer."""
        return self.took[max(math.ceil(p * len(self.took)) - 1, 0)]


def run(load, count, name, case):
    print(f"{load}: {name}", file=sys.stderr, flush=True)
    _, arguments, capacity, _ = LOADS[load]
    done = subprocess.run(
        ["./tail", *arguments, *case, "-n", str(count), "-t", str(next(ports)),
         "-r", f"{UTILIZATION * capacity:.3f}"],
        stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{load}: tail {' '.join(case)} failed")
    return Result(done.stdout.splitlines())


def measure(load, count):
    """Results by case, in the order of the table."""
    results = {HASH: run(load, count, HASH, []),
               SHARED: run(load, count, SHARED, ["-s"])}
    subprocess.run(["insmod", "portsteer.ko"], check=True)
    for policy in POLICIES:
        results[policy] = run(load, count, policy, ["-p", policy])
    for name, case in LOADS[load][3].items():
        results[name] = run(load, count, name, case)
    subprocess.run(["rmmod", "portsteer"], check=True)
    return results


def print_row(name, cells, shares):
    print(f"| {name:19} | " + " | ".join(f"{cell:>8}" for cell in cells)
          + f" | {shares:>19} |")


def print_table(load, results):
    title, _, capacity, _ = LOADS[load]
    print(f"\n{title}; {UTILIZATION * capacity:.0f} requests a second:\n")
    print_row("milliseconds",
              [f"p{100 * p:.0f}" for p in PERCENTILES] + ["max"],
              "shares of workers, %")
    print_row("---", ["--:"] * (len(PERCENTILES) + 1), "---")
    for name, result in results.items():
        took = [result.percentile(p) for p in PERCENTILES] + [result.took[-1]]
        print_row(name, [f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"
                         for ms in took],
                  " ".join(f"{100 * share:4.1f}" for share in result.shares))


def print_curves(load, results, count):
    """For gnuplot: x = 1 / (1 - p), up to where ten requests are left."""
    print(f"@{load}", "x", *results, sep="\t")
    steps = 80
    for step in range(steps + 1):
        x = (count / 10) ** (step / steps)
        print(f"@{load}", f"{x:.4f}",
              *(f"{result.percentile(1 - 1 / x):.3f}"
                for result in results.values()), sep="\t")


def broken_promises(load, results):
    p99 = {name: result.percentile(0.99) for name, result in results.items()}
    for policy in PROMISED:
        for base, limit in ((SHARED, TIMES_SHARED), (HASH, PART_OF_HASH)):
            if base == SHARED and load != "pauses":
                continue
            ratio = p99[policy] / p99[base]
            if ratio > limit:
                yield (f"{load}, {policy}: p99 is {ratio:.2f} times that of "
                       f"{base}, at most {limit} was promised")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--only", choices=LOADS)
    args = parser.parse_args()
    loads = [args.only] if args.only else LOADS

    results = {load: measure(load, args.count) for load in loads}
    print(f"Measured on {platform.release()}, {os.cpu_count()} CPU"
          f"{'s' if os.cpu_count() > 1 else ''}; {args.count} requests each.")
    for load in loads:
        print_table(load, results[load])
    print()
    for load in loads:
        print_curves(load, results[load], args.count)
    broken = [text for load in loads
              for text in broken_promises(load, results[load])]
    if broken:
        print("Not as promised:\n")
        for text in broken:
            print(f"- {text}")
    return bool(broken)


sys.exit(main())
