# SPDX-License-Identifier: GPL-2.0
"""UDP flows: clients that keep their addresses, and who gets their
datagrams."""
import struct
import time

from . import clients, net, ps, tap

# The first octet and a version of 0: to the policy quic it is a packet of a
# version that it doesn't know, so that the rest of it names no member.
DATAGRAM = struct.Struct("!B4xII")

FOR_LONG = 600		# seconds of affinity: no flow here idles as long

# So many may wait at a time, for one member may get them all.
BATCH = 200


def datagram(flow, number=0):
    return DATAGRAM.pack(0x80, flow, number)


def parse(data):
    """(flow, number) of a datagram."""
    return DATAGRAM.unpack(data)[1:]


def group_of(pool, kind, count, policy, **wishes):
    """(servers, addresses) of a new group."""
    port = net.port()
    return members_of(pool, kind, port, count, policy, **wishes), \
        clients.addresses_of(kind, port)


def members_of(pool, kind, port, count, policy=None, **wishes):
    """So many more members on that port."""
    family, options = clients.listener_of(kind)
    return pool.servers(count, "udp", family, port, *options,
                        ps.member(policy, **wishes))


def receive(servers, count, timeout=20):
    """{flow: the server that has got its datagram} of count datagrams.

    Fewer if they don't come in time; raises if one comes twice.
    """
    found = {}
    end = time.monotonic() + timeout
    while len(found) < count and time.monotonic() < end:
        for sock in servers:
            for data in take(sock):
                flow, _ = parse(data)
                if flow in found:
                    raise ValueError(f"flow {flow}: a datagram too many")
                found[flow] = sock
    return found


def take(sock):
    """All that waits on a socket that doesn't block."""
    while True:
        try:
            yield sock.recv(64)
        except BlockingIOError:
            return


class Flows:
    """count of them, to each address in turn."""

    def __init__(self, pool, addresses, count):
        self._pool = pool
        self.addresses = addresses
        self._clients = []
        self.more(count)

    def more(self, count):
        """So many new ones; their numbers."""
        begin = len(self)
        for number in range(begin, begin + count):
            address = self.addresses[number % len(self.addresses)]
            sock = self._pool.new("udp", net.INET6 if ":" in address[0]
                                  else net.INET)
            sock.connect(address)
            self._clients.append(sock)
        return range(begin, begin + count)

    def __len__(self):
        return len(self._clients)

    def address(self, flow):
        return self._clients[flow].getsockname()[:2]

    def send(self, flow):
        self._clients[flow].send(datagram(flow))

    def send_as(self, flow, key, number):
        """Under another name than its place here, and numbered."""
        self._clients[flow].send(datagram(key, number))

    def owners(self, servers, flows=None):
        """Send a datagram of each; the server that it has come to, or None."""
        flows = range(len(self)) if flows is None else flows
        found = []
        for begin in range(0, len(flows), BATCH):
            batch = flows[begin:begin + BATCH]
            for flow in batch:
                self.send(flow)
            got = receive(servers, len(batch))
            found += [got.get(flow) for flow in batch]
        return found


def settled(pool, kind, policy, count, **wishes):
    """(servers, flows, owners): a new group of four with affinity, and so many
    flows, each of which has its server."""
    servers, addresses = group_of(pool, kind, 4, policy, affinity=FOR_LONG,
                                  **wishes)
    flows = Flows(pool, addresses, count)
    return servers, flows, flows.owners(servers)


def moved(before, after):
    """The flows whose owners differ."""
    return [flow for flow, (old, new) in enumerate(zip(before, after))
            if old is not new]


def stays(text, flows, servers, before):
    """All flows are where they were."""
    after = flows.owners(servers)
    return tap.equal((moved(before, after), None in after), ([], False), text)


def shares(owners, servers):
    """How many flows each server has."""
    return [sum(owner is sock for owner in owners) for sock in servers]


# What sysfs says of a group

def setting(sock, name, value=None):
    """Read a file of a bound socket's group, or write it."""
    path = f"{ps.sysfs_dir(sock)}/{name}"
    if value is None:
        return int(ps.sysfs_read(path))
    return ps.sysfs_write(path, value)


def live(sock):
    return setting(sock, "stats/flows")


def full(sock):
    return setting(sock, "stats/flows_full")
