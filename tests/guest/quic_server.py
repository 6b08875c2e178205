#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# guest: mem=2048 timeout=900
"""QUIC by aioquic: workers with a socket each, whose connection IDs carry the
id of the member, and clients that change their port, while workers stay and
while they are replaced. `quic_server.py table TURNS [aioquic]` compares with
the kernel alone and prints what docs/reload.md quotes: make reload."""
import asyncio
import contextlib
import datetime
import errno
import os
import platform
import sys

# In Debian from 13 on; scripts/rootfs brings it to 12 as well.
from aioquic.asyncio import server as aioquic_server
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import StreamDataReceived
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from lib import daemons, net, ns, proc, ps, tap
from lib.net import Pool
from lib.tap import equal, test

WORKERS = 4
CLIENTS = 8
TURNS = 2 if os.environ.get("PS_QUICK") else 5
IDLE = 600		# seconds that a connection may be silent
# How long a client waits: a lost connection comes from the kernel alone only.
PATIENCE = 120
PATIENCE_ALONE = 8


# The servers

def place(cid, number):
    """The connection ID with the member's id where policy quic looks."""
    return cid[:1] + number.to_bytes(2, "big") + cid[3:]


def connection_of(number):
    """A server's connection whose IDs all carry that number."""
    class Connection(QuicConnection):
        def __init__(self, **keywords):
            super().__init__(**keywords)
            first = self._host_cids[0]
            first.cid = self.host_cid = place(first.cid, number)
            self._local_initial_source_connection_id = first.cid

        def _replenish_connection_ids(self):
            had = len(self._host_cids)
            super()._replenish_connection_ids()
            for more in self._host_cids[had:]:
                more.cid = place(more.cid, number)
    return Connection


def protocol_of(number):
    """Each request is answered by who answers."""
    class Protocol(QuicConnectionProtocol):
        def quic_event_received(self, event):
            if isinstance(event, StreamDataReceived) and event.end_stream:
                self._quic.send_stream_data(event.stream_id, b"%d" % number,
                                            end_stream=True)
                self.transmit()
    return Protocol


def certificate():
    """(certificate, key) for who doesn't look at names."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "guest")])
    begin = datetime.datetime(2020, 1, 1)
    signed = x509.CertificateBuilder(
        subject_name=name, issuer_name=name, public_key=key.public_key(),
        serial_number=1, not_valid_before=begin,
        not_valid_after=begin.replace(year=2099)).sign(key, hashes.SHA256())
    return signed, key


def wish(**wishes):
    """Wishes of who doesn't need portsteer: the kernel alone knows none."""
    def prepare(sock):
        net.reuseport(sock)
        for name, value in wishes.items():
            try:
                ps.set(sock, getattr(ps, name), value)
            except OSError as error:
                if error.errno != errno.ENOPROTOOPT:
                    raise
    return prepare


def worker(link, number, generation, port, secrets):
    """A socket for each family, until told to end."""
    asyncio.run(serve(link, number, generation, port, *secrets))


async def serve(link, number, generation, port, signed, key):
    loop = asyncio.get_running_loop()
    aioquic_server.QuicConnection = connection_of(number)
    configuration = QuicConfiguration(
        is_client=False, connection_id_length=8, idle_timeout=IDLE,
        certificate=signed, private_key=key)
    for family in net.FAMILIES:
        options = (net.v6only,) if family == net.INET6 else ()
        sock = net.server("udp", family, port, *options,
                          wish(ID=number, GENERATION=generation))
        await loop.create_datagram_endpoint(
            lambda: aioquic_server.QuicServer(
                configuration=configuration,
                create_protocol=protocol_of(number)), sock=sock)
    link.send("up")
    ended = asyncio.Event()
    loop.add_reader(link.fileno(), ended.set)
    await ended.wait()


def workers(pool, first, generation, port, secrets):
    """WORKERS of them, with ids from first on."""
    started = [proc.Child(worker, number, generation, port, secrets)
               for number in range(first, first + WORKERS)]
    for child in started:
        pool.push(child)
        child.get()
    return started


# Clients

class Client(QuicConnectionProtocol):
    """A connection whose port can change."""

    def __init__(self, address):
        super().__init__(QuicConnection(configuration=QuicConfiguration(
            is_client=True, verify_mode=0, server_name="guest",
            idle_timeout=IDLE)))
        self.address = address
        self.family = net.INET6 if ":" in address[0] else net.INET
        self.answers = {}
        self.worker = None

    async def bind(self):
        # A port that another has had may be that one's flow still.
        await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: self, local_addr=(net.LOOPBACK[self.family], net.port()))

    async def begin(self):
        await self.bind()
        self.connect(self.address)
        await self.wait_connected()
        self.worker = await self.ask()

    async def ask(self):
        """The number of the worker that answers one more request."""
        stream = self._quic.get_next_available_stream_id()
        self.answers[stream] = asyncio.get_running_loop().create_future()
        self._quic.send_stream_data(stream, b"who?", end_stream=True)
        self.transmit()
        return await self.answers[stream]

    def quic_event_received(self, event):
        if isinstance(event, StreamDataReceived) and event.end_stream:
            answer = self.answers[event.stream_id]
            if not answer.done():
                answer.set_result(int(event.data))

    async def move(self, renew):
        """Another port, as a NAT may bring about, or a client that moves: this
        one takes another connection ID then."""
        old = self._transport
        await self.bind()
        old.close()
        if renew:
            self._quic.change_connection_id()


class Side:
    """The clients of a port. They rest between the calls, so that workers can
    be forked meanwhile."""

    def __init__(self, port, patience):
        self.port = port
        self.patience = patience
        self.loop = asyncio.new_event_loop()

    def close(self):
        self.loop.close()

    def begin(self, count):
        """count clients, to each address in turn."""
        async def begin():
            for number in range(count):
                family = net.FAMILIES[number % len(net.FAMILIES)]
                found.append(Client((net.LOOPBACK[family], self.port)))
                await asyncio.wait_for(found[-1].begin(), PATIENCE)
        found = []
        self.loop.run_until_complete(begin())
        return found

    def move(self, clients):
        """Every second one of them takes another connection ID, too."""
        async def move():
            for number, client in enumerate(clients):
                # both families are among both
                await client.move(renew=number // len(net.FAMILIES) % 2)
        self.loop.run_until_complete(move())

    def lost(self, clients):
        """How many are not answered by their worker any more."""
        async def kept(client):
            try:
                return await asyncio.wait_for(client.ask(),
                                              self.patience) == client.worker
            except (asyncio.TimeoutError, ConnectionError):
                return False

        async def ask():
            return (await asyncio.gather(*map(kept, clients))).count(False)
        return self.loop.run_until_complete(ask())

    def leave(self, clients):
        async def leave():
            for client in clients:
                client.close()
                client._transport.close()
        self.loop.run_until_complete(leave())


# What is compared: (connections lost, connections)

def changing_port(side, pool, turns, secrets, steered):
    """Clients change their port."""
    workers(pool, 0, 1, side.port, secrets)
    gone = 0
    for _ in range(turns):
        clients = side.begin(CLIENTS)
        side.move(clients)
        gone += side.lost(clients)
        side.leave(clients)
    return gone, turns * CLIENTS


def replaced(side, pool, turns, secrets, steered):
    """New workers come beside the old ones, which go when they have no client.
    Half of the clients change their port meanwhile."""
    old = workers(pool, 0, 1, side.port, secrets)
    gone = 0
    for turn in range(1, turns + 1):
        clients = side.begin(CLIENTS)
        first = turn * WORKERS
        new = workers(pool, first, turn + 1, side.port, secrets)
        if steered:
            daemons.set_group(side.port, "working_generation", turn + 1)
        side.move(clients[CLIENTS // 2:])
        gone += side.lost(clients)
        side.leave(clients)
        if steered:
            clients = side.begin(CLIENTS)
            found = [client.worker for client in clients]
            side.leave(clients)
            if min(found) < first:
                raise AssertionError(f"new clients went to workers {found}, "
                                     f"not to {first} and up")
        for child in old:
            child.link.send("end")
        for child in old:
            if not child.wait():
                raise TimeoutError("a worker doesn't end")
        old = new
    return gone, turns * CLIENTS


CASES = {"clients change their port": changing_port,
         "workers are replaced": replaced}


def alone(case, turns, secrets):
    with Pool() as pool, contextlib.closing(
            Side(net.port(), PATIENCE_ALONE)) as side:
        return case(side, pool, turns, secrets, False)


def with_rule(case, turns, secrets):
    with Pool() as pool, contextlib.closing(
            Side(net.port(), PATIENCE)) as side:
        ps.rule(f"add udp {side.port} policy=quic")
        return case(side, pool, turns, secrets, True)


def table(turns, names):
    if names and "aioquic" not in names:
        return 0
    secrets = certificate()
    ns.lo_up()
    print(f"Linux {platform.release()}: connections lost of all")
    print(f"{'':30}{'kernel alone':>16}{'portsteer, policy quic':>26}")
    bad = 0
    for text, case in CASES.items():
        if ps.loaded():
            ps.unload()
        without = alone(case, turns, secrets)
        ps.prepare_guest()
        rule = with_rule(case, turns, secrets)
        ps.rule("clear")
        print(f"{text:30}{without[0]:9} of {without[1]:3}{rule[0]:19} of "
              f"{rule[1]:3}", flush=True)
        bad += rule[0]
    ps.unload()
    return 1 if bad else 0


@test
def connections_stay():
    """policy quic: connections stay with their worker"""
    secrets = certificate()
    for text, case in CASES.items():
        gone, _ = with_rule(case, TURNS, secrets)
        equal(gone, 0, f"{text}: 0 connections are lost")


if __name__ == "__main__":
    if sys.argv[1:2] == ["table"]:
        sys.exit(table(int(sys.argv[2]), sys.argv[3:]))
    tap.run(ps.prepare_guest, ps.left_behind, ps.remove_module, limit=800)
