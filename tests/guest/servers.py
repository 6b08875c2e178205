#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: mem=2048 timeout=600
"""Servers that know nothing of portsteer, restarted under load. A test with a
few restarts each; `servers.py table RESTARTS [SERVER]...` compares with the
kernel alone and prints what docs/reload.md quotes: make reload."""
import contextlib
import os
import pathlib
import platform
import re
import select
import signal
import socket
import subprocess
import sys
import time

from lib import clients, daemons, net, proc, ps, tap
from lib.daemons import TMP, alive, children, need, run
from lib.tap import ok, test

PAUSE = 0.5		# between restarts
CONNECTIONS = 8		# of each load generator

NGINX = """
daemon off;
worker_processes {workers};
pid {tmp}/nginx.pid;
error_log {tmp}/nginx.err;
events {{ worker_connections 512; }}
http {{
	access_log off;
	server {{
		listen {port} reuseport backlog=1024;
		{ipv6}
		location / {{ return 200 "ok\\n"; }}
	}}
}}
"""

HAPROXY = """
global
	nbthread 4
	maxconn 2000
defaults
	mode http
	timeout client 20s
	timeout connect 20s
	timeout server 20s
frontend web
	bind {binds} shards by-thread backlog 1024
	http-request return status 200 content-type text/plain string ok
"""


# Draining by id, for kernels that can't move what is queued

def drain(members):
    """Nothing new for these, {group: ids}; back when they have nothing."""
    daemons.set_members(members, "state", "draining")
    # A handshake that has begun before is in the queue only when it has ended.
    time.sleep(1)
    daemons.need_empty(Server.port, members)


def present():
    return daemons.present(Server.port)


# The servers. restart() replaces the listeners, or some; drained() does it
# after draining those that will go.

class Server:
    port = 8080

    @property
    def hosts(self):
        return ["127.0.0.1", "[::1]"][:len(net.FAMILIES)]

    def serves(self):
        with contextlib.suppress(OSError):
            with socket.create_connection(("127.0.0.1", self.port), 5) as sock:
                sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
                return b" 200 " in sock.recv(100)


class Nginx(Server):
    """`nginx -s reload`, the number of workers as it is."""

    name = "nginx -s reload"
    counts = (4,)

    def configure(self, workers):
        ipv6 = (f"listen [::]:{self.port} reuseport ipv6only=on backlog=1024;"
                if net.INET6 in net.FAMILIES else "")
        (TMP / "nginx.conf").write_text(NGINX.format(
            workers=workers, port=self.port, tmp=TMP, ipv6=ipv6))

    def start(self):
        self.turn = 0
        self.configure(self.counts[0])
        self.master = subprocess.Popen(["nginx", "-c", TMP / "nginx.conf"])
        need(lambda: len(children(self.master.pid)) == self.counts[0],
             "nginx runs")

    def restart(self):
        self.turn += 1
        workers = self.counts[self.turn % len(self.counts)]
        self.configure(workers)
        before = set(children(self.master.pid))
        run("nginx", "-c", TMP / "nginx.conf", "-s", "reload")
        need(lambda: len(children(self.master.pid)) == workers and
             not before & set(children(self.master.pid)), "nginx has reloaded")

    def drained(self):
        # A worker's listener is the one of its number; the last ones go.
        workers = self.counts[(self.turn + 1) % len(self.counts)]
        drain({name: sorted(ids)[workers:] for name, ids in present().items()})
        self.restart()

    def stop(self):
        self.master.terminate()
        self.master.wait()


class NginxCount(Nginx):
    """`nginx -s reload` with fewer workers, and with more again."""

    name = "nginx, 4 workers to 2 and back"
    counts = (4, 2)


class Haproxy(Server):
    """A new process that binds the port itself and ends the old one."""

    name = "HAProxy -sf"

    def start(self):
        binds = f"0.0.0.0:{self.port}"
        if net.INET6 in net.FAMILIES:
            binds += f",[::]:{self.port} v6only"
        (TMP / "haproxy.cfg").write_text(HAPROXY.format(binds=binds))
        self.pids = self.launch()

    def launch(self, *more):
        run("haproxy", "-D", "-f", TMP / "haproxy.cfg", "-p", TMP / "haproxy.pid",
            *more)
        return [int(word) for word in
                (TMP / "haproxy.pid").read_text().split()]

    def restart(self):
        old = self.pids
        self.pids = self.launch("-sf", *old)
        need(lambda: not any(map(alive, old)), "the old process has gone")

    def drained(self):
        old, members = self.pids, present()
        self.pids = self.launch()
        drain(members)
        for pid in old:
            os.kill(pid, signal.SIGUSR1)
        need(lambda: not any(map(alive, old)), "the old process has gone")

    def stop(self):
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        need(lambda: not any(map(alive, self.pids)), "HAProxy has gone")


class Prefork(Server):
    """Workers with a listener each; new ones first, then the old ones end."""

    name = "prefork, a listener a worker"
    workers = 4

    def start(self):
        self.children = self.launch()

    def launch(self):
        started = [proc.Child(prefork_worker, self.port)
                   for _ in range(self.workers)]
        for child in started:
            child.get()
        return started

    def end(self, old):
        for child in old:
            os.kill(child.pid, signal.SIGTERM)
        for child in old:
            if not child.wait():
                raise TimeoutError("a worker doesn't end")

    def restart(self):
        old, self.children = self.children, self.launch()
        self.end(old)

    def drained(self):
        members = present()
        old, self.children = self.children, self.launch()
        drain(members)
        self.end(old)

    def stop(self):
        for child in self.children:
            child.kill()


def prefork_worker(link, port):
    """One listener for each family; SIGTERM: ends what it is at, and goes."""
    def stop(*_):
        stopping.append(True)
    stopping = []
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    wakeup, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    with net.Pool() as pool, select.epoll() as epoll:
        socks = {}
        for family in net.FAMILIES:
            options = (net.v6only,) if family == net.INET6 else ()
            sock = pool.server("tcp", family, port, net.reuseport, *options)
            socks[sock.fileno()] = sock
            epoll.register(sock, select.EPOLLIN)
        epoll.register(wakeup, select.EPOLLIN)
        link.send("up")
        while not stopping:
            for fd, _ in epoll.poll():
                if fd in socks:
                    with contextlib.suppress(BlockingIOError):
                        respond(socks[fd].accept()[0])


def respond(conn):
    with conn, contextlib.suppress(OSError):
        conn.settimeout(20)
        if not conn.recv(4096):
            return
        conn.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
                     b"Content-Length: 3\r\n\r\nok\n")


# Load

class Load:
    """Requests, a connection for each, until stop(): (failed, answered)."""

    def __init__(self, hosts, port):
        self.wrks = [subprocess.Popen(
            ["wrk", "-t1", f"-c{CONNECTIONS}", "-d600s", "--timeout", "20s",
             "-H", "Connection: close", f"http://{host}:{port}/"], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for host in hosts]

    def stop(self):
        failed = answered = 0
        self.output = ""
        for wrk in self.wrks:
            wrk.send_signal(signal.SIGINT)
        for wrk in self.wrks:
            text = wrk.communicate(timeout=60)[0]
            self.output += text
            answered += int(re.search(r"(\d+) requests in", text)[1])
            errors = re.search(r"Socket errors: (.*)", text)
            if errors:
                failed += sum(map(int, re.findall(r"\d+", errors[1])))
            errors = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
            if errors:
                failed += int(errors[1])
        return failed, answered


def restarted(server, times, draining=False):
    """(failed, answered, what the load said) over so many restarts."""
    server.start()
    try:
        need(server.serves, f"{server.name} serves")
        load = Load(server.hosts, server.port)
        time.sleep(1)
        try:
            for _ in range(times):
                server.drained() if draining else server.restart()
                time.sleep(PAUSE)
        finally:
            failed, answered = load.stop()
    finally:
        server.stop()
    return failed, answered, load.output


def make_room():
    """All connections come from one address, and the server ends them."""
    for name, value in (("tcp_max_tw_buckets", "65536"),
                        ("ip_local_port_range", "10000 65535")):
        pathlib.Path(f"/proc/sys/net/ipv4/{name}").write_text(value)
    TMP.mkdir(exist_ok=True)


def with_rule(server, times):
    """Under portsteer, with nothing but a rule."""
    ps.rule(f"add tcp {server.port} policy=hash")
    try:
        return restarted(server, times, draining=not clients.migrates())
    finally:
        ps.rule(f"del tcp {server.port}")


SERVERS = (Nginx, NginxCount, Haproxy, Prefork)


def table(times, names):
    chosen = daemons.chosen(SERVERS, names)
    if not chosen:
        return 0
    make_room()
    ps.prepare_guest()
    how = "a rule" if clients.migrates() else "a rule, drained first"
    print(f"Linux {platform.release()}, {times} restarts each, failed of all "
          "requests:")
    print(f"{'':34}{'kernel alone':>16}{'portsteer, ' + how:>34}")
    bad = 0
    for kind in chosen:
        server = kind()
        without = restarted(server, times)
        rule = with_rule(server, times)
        print(f"{server.name:34}{without[0]:6} of {without[1]:6}"
              f"{rule[0]:24} of {rule[1]:6}", flush=True)
        if rule[0]:
            bad += 1
            print(rule[2])
    ps.unload()
    return 1 if bad else 0


@test
def restarts():
    """requests that fail while servers are restarted, with a rule"""
    make_room()
    for kind in SERVERS:
        server = kind()
        failed, answered, said = with_rule(server, 2)
        ok(failed == 0 and answered > 0,
           f"{server.name}: {failed} of {answered} requests failed", said)


if __name__ == "__main__":
    if sys.argv[1:2] == ["table"]:
        sys.exit(table(int(sys.argv[2]), sys.argv[3:]))
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=500)
