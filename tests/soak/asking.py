# SPDX-License-Identifier: GPL-2.0
"""Clients that keep accounts: each thing that they attempt has a number of its
own and ends in exactly one way."""
import errno
import random
import socket
import struct
import time
from concurrent import futures

from lib import net, tally

NUMBER = struct.Struct("!I4x")
# Numbers of one client are a block.
BLOCK = 1 << 17
# Longer than anything takes here that isn't lost: the kernel sends a SYN again
# after 1, 3, 7, 15 and 31 seconds.
PATIENCE = 60

# In which an attempt ends.
WAYS = ("answered", "reset", "refused", "timed out", "unreachable")
UNREACHABLE = (errno.EADDRNOTAVAIL, errno.ENETDOWN, errno.ENETUNREACH,
               errno.EHOSTUNREACH)
SENDING = ("sent", "refused", "unreachable")


def balanced(counts):
    """attempted = all ways in which it has ended"""
    return counts["attempted"] * 2 == sum(counts.values())


def way_of(error):
    """What an error says of an attempt; raises if it says nothing."""
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return "reset"
    if isinstance(error, socket.timeout):
        return "timed out"
    # its device is no more, or it has no address now
    if error.errno in UNREACHABLE:
        return "unreachable"
    raise error


def attempt(choose, address, number, patience):
    """Connect, say the number, hear it; how that ends."""
    said = NUMBER.pack(number)
    family = net.INET6 if ":" in address[0] else net.INET
    try:
        with net.new("tcp", family) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                            struct.pack("ii", 1, 0))	# no TIME_WAIT
            sock.settimeout(patience)
            sock.connect(address)
            if choose.random() < 0.2:		# queued, or half open
                time.sleep(choose.uniform(0, min(patience, 1) / 2))
            sock.sendall(said)
            heard = sock.recv(NUMBER.size)
    except OSError as error:
        return way_of(error)
    if not heard:
        return "reset"		# taken, but whoever had it is gone
    if heard != said:
        raise ValueError(f"{said} was answered with {heard}")
    return "answered"


class Client:
    """The account of one that asks for one thing after the other."""

    def __init__(self, place, seed, ways=WAYS):
        self.counts = tally.Tally("attempted", *ways)
        self.first = place * BLOCK
        self.seed = seed


def connect(link, clients, log, addresses, until, patience=PATIENCE):
    """Connections until that time, each client's in a thread of its own; log:
    the numbers that were answered."""
    with futures.ThreadPoolExecutor(len(clients)) as pool:
        for done in [pool.submit(_connect, client, log, addresses, until,
                                 patience) for client in clients]:
            done.result()
    link.send("done")


def _connect(client, log, addresses, until, patience):
    choose = random.Random(client.seed)
    counts, number, first = client.counts, client.first, client.first
    while time.monotonic() < until and number < first + BLOCK:
        counts.add("attempted")
        way = attempt(choose, choose.choice(addresses), number, patience)
        if way == "answered":
            log.mark(number)
        counts.add(way)
        number += 1
        time.sleep(choose.uniform(0, 0.03))


def send(link, client, log, addresses, until):
    """Datagrams of several flows; log: the numbers that were sent."""
    choose = random.Random(client.seed)
    flows = {}
    counts, number, first = client.counts, client.first, client.first
    while time.monotonic() < until and number + 8 < first + BLOCK:
        # Flows come and go.
        address = choose.choice(addresses)
        place = choose.randrange(4)
        if choose.random() < 0.05 and (address, place) in flows:
            flows.pop((address, place)).close()
        if (address, place) not in flows:
            flows[address, place] = net.new(
                "udp", net.INET6 if ":" in address[0] else net.INET)
        for _ in range(choose.randrange(1, 8)):
            counts.add("attempted")
            try:
                flows[address, place].sendto(NUMBER.pack(number), address)
                log.mark(number)
                counts.add("sent")
            except OSError as error:
                counts.add(way_of(error))
            number += 1
        time.sleep(choose.uniform(0, 0.02))
    for sock in flows.values():
        sock.close()
    link.send("done")
