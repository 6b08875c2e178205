#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: smp=4 timeout=600
"""The policy "idle": work goes to workers that sleep waiting for it, first the
one whose CPU it comes on, else the one last awake. DESIGN.md 2.3."""
import os
import select
import signal
import socket
import time

from lib import kernel, net, proc, ps, tap
from lib.net import INET, Pool, combinations
from lib.tap import equal, ok, test

# System calls in which a worker waits for its sockets.
WAITING = {0, 7, 23, 43, 45, 47, 232, 270, 271, 281, 288, 299, 441}
ROUNDS = 10


class Released(Exception):
    """A busy worker may go on."""


def released(*_):
    raise Released


def spin():
    while True:
        pass


def nap():
    time.sleep(600)


def wait_by_poll(sock):
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    poll.poll()


def wait_by_epoll(sock):
    with select.epoll() as epoll:
        epoll.register(sock, select.EPOLLIN)
        epoll.poll()


WAYS = {
    "accept or recv": lambda sock: None,	# which block
    "poll": wait_by_poll,
    "select": lambda sock: select.select([sock], [], []),
    "epoll_wait": wait_by_epoll,
}
BUSY = {b"spin": spin, b"nap": nap}


def receive(sock):
    """What the next client says."""
    if sock.type == socket.SOCK_DGRAM:
        return sock.recv(64)
    with sock.accept()[0] as served:
        return served.recv(64)


def work(link, kind, family, port, way, cpu, weight):
    """Tell what comes; spin or nap when that says so, until a signal."""
    signal.signal(signal.SIGUSR1, released)
    os.sched_setaffinity(0, {cpu})
    with net.server(kind, family, port,
                    ps.member("idle", weight=weight)) as sock:
        if way != "accept or recv":
            # As event loops do: at the end of each turn there is none left.
            try:
                receive(sock)
            except BlockingIOError:
                pass
        sock.setblocking(True)
        link.send("up")
        while True:
            WAYS[way](sock)
            what = receive(sock)
            link.send(what)
            try:
                if what in BUSY:
                    BUSY[what]()
            except Released:
                link.send("released")


class Server(proc.Child):
    """A process with a member; it waits for something from the beginning."""

    def __init__(self, pool, what, *args):
        super().__init__(what, *args)
        pool.push(self)
        self.get()
        self.settle()

    def doing(self):
        """(state, system call) of the process."""
        with open(f"/proc/{self.pid}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
        with open(f"/proc/{self.pid}/syscall") as file:
            call = file.read().split()[0]
        return state, int(call) if call.isdigit() else call

    def waits(self):
        state, call = self.doing()
        return state == "S" and call in WAITING

    def settle(self):
        """Wait until it waits."""
        if not proc.wait_for(self.waits, 20):
            raise TimeoutError(f"a worker doesn't wait: {self.doing()}")


class Worker(Server):
    def __init__(self, pool, kind, family, port, way="epoll_wait", cpu=1,
                 weight=1):
        super().__init__(pool, work, kind, family, port, way, cpu, weight)

    def release(self):
        os.kill(self.pid, signal.SIGUSR1)
        self.get()
        self.settle()


def knock(kind, address, what=b"ok", cpu=0):
    """One client that says that, from that CPU."""
    with kernel.on_cpu(cpu):
        if kind == "tcp":
            sock = net.client(kind, address)
            sock.sendall(what)
            return sock
        sock = socket.socket(net.INET6 if ":" in address[0] else INET,
                             socket.SOCK_DGRAM)
        sock.sendto(what, address)
        return sock


def who(workers):
    """The number of the worker that gets it."""
    links = [worker.link for worker in workers]
    ready, _, _ = select.select(links, [], [], 20)
    number = links.index(ready[0])
    workers[number].get()
    return number


def chosen(workers, kind, address, count, cpu=0):
    """Which of the workers get count things, each after the other."""
    found = []
    for _ in range(count):
        with knock(kind, address, cpu=cpu):
            found.append(who(workers))
        workers[found[-1]].settle()
    return found


def busy(workers, kind, address, how):
    """Make one of them busy; its number."""
    with knock(kind, address, how):
        number = who(workers)
    proc.wait_for(lambda: not workers[number].waits(), 20)
    return number


@test
def a_busy_worker():
    """that spins, or sleeps otherwise, gets nothing while another waits"""
    for text, kind, family in combinations():
        for way in WAYS:
            for how in BUSY:
                with Pool() as pool:
                    port = net.port()
                    address = (net.LOOPBACK[family], port)
                    workers = [Worker(pool, kind, family, port, way)
                               for _ in range(2)]
                    one = busy(workers, kind, address, how)
                    equal(chosen(workers, kind, address, ROUNDS),
                          [1 - one] * ROUNDS, f"{text}, {way}: while one "
                          f"does {how.decode()}")
                    two = busy(workers, kind, address, how)
                    equal(two, 1 - one, f"{text}, {way}: then the other does")
                    workers[one].release()
                    equal(chosen(workers, kind, address, 3), [one] * 3,
                          f"{text}, {way}: and the first is free again")
                    workers[two].release()


@test
def nobody_idle():
    """as least: what waits is spread evenly"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            workers = [Worker(pool, kind, family, port) for _ in range(3)]
            for _ in workers:
                busy(workers, kind, address, b"nap")
            before = picked(kind, family, port)
            clients = [pool.add(knock(kind, address)) for _ in range(30)]
            want = [then + 10 for then in before]
            ok(proc.wait_for(lambda: picked(kind, family, port) == want, 5),
               f"{text}: 10 for each of 3", picked(kind, family, port))
            for worker in workers:
                os.kill(worker.pid, signal.SIGUSR1)
            for worker in workers:
                equal([worker.get() for _ in range(11)],
                      ["released"] + [b"ok"] * 10, f"{text}: and served")
            for client in clients:
                client.close()


def picked(kind, family, port):
    host = "0.0.0.0" if family == INET else "[::]"
    return ps.table()[f"{kind}:{host}:{port}"].picked()


@test
def warm_first():
    """of several idle ones the one last awake, on and on"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            workers = [Worker(pool, kind, family, port) for _ in range(3)]
            # The last that began to wait is the warmest at first.
            equal(chosen(workers, kind, address, ROUNDS), [2] * ROUNDS,
                  f"{text}: the last one that was awake")
            one = busy(workers, kind, address, b"nap")
            equal(one, 2, f"{text}: until it is busy")
            two = busy(workers, kind, address, b"nap")
            equal(two, 1, f"{text}: then the next")
            equal(chosen(workers, kind, address, 3), [0] * 3,
                  f"{text}: then the last one left")
            workers[1].release()
            workers[2].release()
            last = chosen(workers, kind, address, 1)[0]
            equal(chosen(workers, kind, address, 5), [last] * 5,
                  f"{text}: and the same again and again")


@test
def this_cpu_first():
    """before warmth, the one that serves the CPU"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            workers = [Worker(pool, kind, family, port, cpu=cpu)
                       for cpu in (1, 2, 3)]
            equal([chosen(workers, kind, address, 3, cpu)
                   for cpu in (1, 2, 3, 1)],
                  [[0] * 3, [1] * 3, [2] * 3, [0] * 3], f"{text}: its own")
            equal(chosen(workers, kind, address, 3, 0), [0] * 3,
                  f"{text}: the warmest where there is none")
            # Held off its CPU it can't tell us so.
            with kernel.on_cpu(2):
                with knock(kind, address, b"nap", 2):
                    one = who(workers)
            proc.wait_for(lambda: not workers[one].waits(), 20)
            equal((one, chosen(workers, kind, address, 3, 2)), (1, [0] * 3),
                  f"{text}: not while it is busy")
            workers[1].release()


@test
def something_queued():
    """a worker that has something to take isn't idle, though it sleeps"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            # It waits for something else than its socket.
            Server(pool, ignore, kind, family, port)
            workers = [Worker(pool, kind, family, port) for _ in range(2)]
            for worker in workers:
                busy(workers, kind, address, b"nap")
            first = pool.add(knock(kind, address))
            ok(proc.wait_for(lambda: picked(kind, family, port)[0] == 1, 5),
               f"{text}: it gets one when no other is idle",
               picked(kind, family, port))
            for worker in workers:
                worker.release()
            equal(set(chosen(workers, kind, address, ROUNDS)) <= {0, 1}, True,
                  f"{text}: and no further one")
            equal(picked(kind, family, port)[0], 1, f"{text}: it still has it")
            first.close()


def ignore(link, kind, family, port):
    # Neither the CPU of clients, which comes first, nor awake after the workers.
    os.sched_setaffinity(0, {1})
    with net.server(kind, family, port, ps.member("idle")) as sock:
        try:
            receive(sock)
        except BlockingIOError:
            pass
        link.send("up")
        link.recv()


@test
def states_count():
    """standby and draining workers sleep in vain"""
    for text, kind, family in combinations():
        with Pool() as pool:
            port = net.port()
            address = (net.LOOPBACK[family], port)
            spare = pool.server(kind, family, port,
                                ps.member("idle", state=ps.STANDBY))
            workers = [Worker(pool, kind, family, port)]
            busy(workers, kind, address, b"nap")
            with knock(kind, address):
                pass
            ok(proc.wait_for(lambda: picked(kind, family, port) == [0, 2], 5),
               f"{text}: the standby gets nothing while one is active",
               picked(kind, family, port))
            ps.set(spare, ps.STATE, ps.DRAINING)
            workers[0].kill()
            ok(proc.wait_for(lambda: ps.info(spare).members == 1, 5),
               f"{text}: it is alone")


if __name__ == "__main__":
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=300)
