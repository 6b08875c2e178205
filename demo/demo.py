# SPDX-License-Identifier: GPL-2.0
"""What portsteer does, shown on servers that know nothing of it. Runs in the
guest; scripts/demo starts it there.

Two services of the distribution, nginx over TCP and Unbound over UDP, share a
port among four workers. Each is driven by a load generator of the distribution
under the kernel's own hash, then under a rule that says `rr`, written while it
serves; then the module is unloaded under load. The exit status is 1 if a claim
that is printed doesn't hold.
"""
import os
import pathlib
import platform
import re
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
TMP = pathlib.Path("/tmp/demo")
MODULE = "/portsteer/portsteer.ko"
RULES = pathlib.Path("/sys/class/portsteer/rules")
TABLE = pathlib.Path("/proc/net/portsteer")
WORKERS = 4
ADDRESSES = {"IPv4": "127.0.0.1", "IPv6": "::1"}
GROUPS = {"IPv4": "0.0.0.0", "IPv6": "[::]"}

CONNECTIONS = 400
QUERIES = 2000
CLIENTS = 16            # at a time; a client of dnsperf has one source port
RR_TOLERANCE = 0.01     # of all: shares under rr differ by no more

broken = []             # claims that didn't hold
complaints = []         # what load generators that failed had to say


def say(text=""):
    print(text, flush=True)


def claim(holds, text):
    say(f"   {'' if holds else 'NOT SO: '}{text}")
    if not holds:
        broken.append(text)


def wait_for(condition, what, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"demo: gave up waiting for {what}")
        time.sleep(0.05)


def read(path):
    try:
        return pathlib.Path(path).read_text()
    except FileNotFoundError:
        return ""


def output(*command):
    return subprocess.run(command, check=True, text=True,
                          stdout=subprocess.PIPE).stdout


# portsteer

def load():
    say(f"   # insmod {os.path.basename(MODULE)}")
    subprocess.run(["/sbin/insmod", MODULE], check=True)


def unload():
    subprocess.run(["/sbin/rmmod", "portsteer"], check=True)


def rule(text):
    # one write(), as a shell's echo does it
    fd = os.open(RULES, os.O_WRONLY)
    os.write(fd, text.encode())
    os.close(fd)
    say(f"   # echo {text} > {RULES}")


def picked(group):
    """What the policy gave each member of a group, in order of their ids."""
    counts = []
    inside = False
    for line in read(TABLE).splitlines():
        if not line.startswith(" "):
            inside = line.split()[0] == group
        elif inside:
            counts.append(int(re.search(r"\bpicked=(\d+)", line)[1]))
    return counts


# The services: what they answered, by worker, and how they are driven. A load's
# result is (how many were answered, how many failed).

class Http:
    proto, port, one, many = "tcp", 8080, "connection", "connections"
    count = CONNECTIONS
    workers = "worker"

    def start(self):
        self.server = subprocess.Popen(["nginx", "-c", HERE / "nginx.conf"])
        wait_for(lambda: len(self.pids()) == WORKERS, "nginx")
        wait_for(lambda: self.result(self.load("IPv4", 1))[0] == 1, "nginx")

    def stop(self):
        self.server.terminate()
        self.server.wait()

    def pids(self):
        return read(f"/proc/{self.server.pid}/task/{self.server.pid}"
                    "/children").split()

    def answered(self, family=None):
        """{worker: requests}, from nginx's access log"""
        lines = [line.split() for line in read(TMP / "access.log").splitlines()]
        return {pid: sum(1 for line in lines if line[0] == pid and
                         family in (None, "IPv6" if ":" in line[1] else "IPv4"))
                for pid in self.pids()}

    def load(self, family, count):
        host = ADDRESSES[family]
        host = f"[{host}]" if ":" in host else host
        # -l: answers differ in length, as the workers' numbers do
        return count, subprocess.Popen(
            ["ab", "-q", "-r", "-l", "-n", str(count),
             "-s", "120", "-c", str(min(CLIENTS, count)), f"http://{host}:{self.port}/"],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def result(self, load):
        count, process = load
        text = process.communicate()[0]
        numbers = [re.search(rf"^{name}: +(\d+)", text, re.MULTILINE)
                   for name in ("Complete requests", "Failed requests")]
        if process.returncode or None in numbers:
            complaints.append(text)
            return 0, count
        complete, failed = (int(number[1]) for number in numbers)
        if "Non-2xx" in text:
            failed = complete
        if failed or complete < count:
            complaints.append(text)
        return complete - failed, count - complete + failed


class Dns:
    proto, port, one, many = "udp", 53, "query", "queries"
    count = QUERIES
    workers = "thread"

    def start(self):
        (TMP / "queries").write_text("demo.example A\ndemo.example AAAA\n")
        self.server = subprocess.Popen(["unbound", "-d", "-c",
                                        HERE / "unbound.conf"])
        wait_for(lambda: (TMP / "unbound.ctl").exists() and
                 self.result(self.load("IPv4", 2))[0] == 2, "unbound")

    def stop(self):
        self.server.terminate()
        self.server.wait()

    def answered(self, family=None):
        """{thread: queries}, from Unbound's own statistics. They don't tell
        the families apart: one is driven at a time."""
        text = output("unbound-control", "-c", HERE / "unbound.conf",
                      "stats_noreset")
        return {thread: int(count) for thread, count in re.findall(
            r"^thread(\d+)\.num\.queries=(\d+)", text, re.MULTILINE)}

    def load(self, family, count):
        return count, subprocess.Popen(
            ["dnsperf", "-s", ADDRESSES[family], "-p", str(self.port),
             "-d", str(TMP / "queries"), "-n", str(count // 2),
             "-c", str(CLIENTS), "-q", str(CLIENTS), "-T", "1", "-t", "10"],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def result(self, load):
        count, process = load
        text = process.communicate()[0]
        done = re.search(r"Queries completed: +(\d+)", text)
        codes = re.search(r"Response codes: +NOERROR (\d+)", text)
        good = 0
        if not process.returncode and done and codes:
            good = min(int(done[1]), int(codes[1]))
        if good < count:
            complaints.append(text)
        return good, count - good


# What is shown of each

def drive(service, family):
    """Load over one family: what each worker answered, and failures."""
    before = service.answered(family)
    _, failed = service.result(service.load(family, service.count))
    after = service.answered(family)
    return [after[worker] - before[worker] for worker in after], failed


def print_shares(rows):
    heads = [f"{number + 1}" for number in range(WORKERS)]
    say(f"   {'':22}" + "".join(f"{head:>8}" for head in heads)
        + "   most/least")
    for name, counts in rows:
        total = sum(counts) or 1
        shares = "".join(f"{100 * count / total:7.1f}%" for count in counts)
        ratio = f"{max(counts) / min(counts):.2f}" if min(counts) else "-"
        say(f"   {name:22}{shares}   {ratio:>10}")


def even(counts):
    return (len(counts) == WORKERS and sum(counts) > 0 and
            max(counts) - min(counts) <= RR_TOLERANCE * sum(counts))


def show_hash(service):
    rows, lost = [], 0
    for family in ADDRESSES:
        counts, failed = drive(service, family)
        rows.append((f"{family}, {service.workers}", counts))
        lost += failed
    say(f"\n   The kernel's own choice, {service.count} {service.many} each:")
    print_shares(rows)
    claim(lost == 0, f"{lost} of {2 * service.count} {service.many} failed.")


class Pressure:
    """Load over both families from here to done(), without a pause."""

    def __init__(self, service):
        self.service = service
        self.start = self.total()
        self.enough = threading.Event()
        self.results = []
        self.threads = [threading.Thread(target=self.run, args=(family,))
                        for family in ADDRESSES]
        for thread in self.threads:
            thread.start()
        self.wait_for_more()

    def run(self, family):
        while not self.enough.is_set():
            load = self.service.load(family, self.service.count)
            self.results.append(self.service.result(load))

    def total(self):
        return sum(self.service.answered().values())

    def answered(self):
        return self.total() - self.start

    def wait_for_more(self):
        """Until a good part of a load has been answered from now on."""
        goal = self.total() + self.service.count // 2
        wait_for(lambda: self.total() >= goal, "requests to be answered", 120)

    def done(self):
        """Ends it; how many requests failed, of how many."""
        self.wait_for_more()
        self.enough.set()
        for thread in self.threads:
            thread.join()
        failed = sum(result[1] for result in self.results)
        return failed, failed + sum(result[0] for result in self.results)


def steer_while_serving(service):
    say("\n   Now the rule, while requests come in:")
    pressure = Pressure(service)
    rule(f"add {service.proto} {service.port} policy=rr")
    failed, total = pressure.done()
    claim(failed == 0, f"{failed} of {total} {service.many} failed while the "
          "rule was set.")


def show_rr(service):
    rows, lost = [], 0
    for family in ADDRESSES:
        group = f"{service.proto}:{GROUPS[family]}:{service.port}"
        before = picked(group)
        counts, failed = drive(service, family)
        steered = [b - a for a, b in zip(before, picked(group))]
        lost += failed
        rows.append((f"{family}, {service.workers}", counts))
        rows.append((f"{family}, portsteer", steered))
    say(f"\n   Policy rr, {service.count} {service.many} each; as the "
        f"{service.workers}s see it, and by {TABLE}:")
    print_shares(rows)
    if any(sum(counts) > service.count for _, counts in rows):
        say("   (portsteer saw a few more: ab opens connections that it "
            "doesn't use.)")
    claim(all(even(counts) for _, counts in rows),
          f"The shares are within {RR_TOLERANCE:.0%} of each other.")
    claim(lost == 0, f"{lost} of {2 * service.count} {service.many} failed.")


def unload_while_serving(service):
    say("\n   Unloading while requests come in:")
    pressure = Pressure(service)
    say("   # rmmod portsteer")
    before = pressure.answered()
    unload()
    after = pressure.answered()
    failed, total = pressure.done()
    claim(failed == 0 and not TABLE.exists(),
          f"{failed} of {total} {service.many} failed; {before} were answered "
          f"before, {after - before} during,\n   {total - failed - after} "
          "after it.")


def make_room_for_one_client():
    """All connections here come from one address, and the server closes them:
    where its TIME_WAIT sockets fill their table, or a port comes back too soon,
    connections are reset or delayed, with and without portsteer."""
    for name, value in (("tcp_max_tw_buckets", "65536"),
                        ("ip_local_port_range", "1024 65535")):
        pathlib.Path(f"/proc/sys/net/ipv4/{name}").write_text(value)


def main():
    TMP.mkdir()
    make_room_for_one_client()
    nginx_version = subprocess.run(["nginx", "-v"], capture_output=True,
                                   text=True).stderr.split("/")[-1].strip()
    unbound_version = output("unbound", "-V").split()[1]
    say(f"Linux {platform.release()}, as the distribution ships it, "
        f"{os.cpu_count()} CPUs.")

    say(f"\n1. nginx {nginx_version}, {WORKERS} workers, `listen 8080 "
        "reuseport`, driven by ab\n")
    http = Http()
    load()
    say("   # nginx")
    http.start()
    show_hash(http)
    steer_while_serving(http)
    show_rr(http)
    unload_while_serving(http)
    http.stop()

    say(f"\n2. Unbound {unbound_version}, {WORKERS} threads, `so-reuseport: "
        f"yes`, driven by dnsperf from {CLIENTS} source ports\n")
    dns = Dns()
    say("   # unbound")
    dns.start()
    load()
    show_hash(dns)
    steer_while_serving(dns)
    show_rr(dns)
    unload_while_serving(dns)
    dns.stop()

    say()
    if broken:
        for text in complaints:
            say(text)
        say(f"FAILED: {len(broken)} of what was to be shown didn't hold, see "
            "NOT SO above.")
        return 1
    say("Shown: unmodified nginx and Unbound on a stock kernel, their workers' "
        "shares made even\nby one rule while they served, and the module "
        "unloaded under load with no request lost.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
