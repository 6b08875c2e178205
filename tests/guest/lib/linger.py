# SPDX-License-Identifier: GPL-2.0
"""A task that is inside close(), and so in our code, for some seconds."""
import contextlib
import os
import select
import socket
import struct
import time

from . import net, proc, ps
from .net import INET


def _close(link, served, cpu):
    """close() waits for data that nobody reads."""
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    served.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                      struct.pack("ii", 1, 4))
    served.settimeout(0.2)
    with contextlib.suppress(socket.timeout):
        while True:
            served.send(bytes(65536))
    link.send("up")
    started = time.monotonic()
    served.close()
    link.send(time.monotonic() - started)


def closing(pool, cpu=None):
    """The child that is, on that CPU; it tells how many seconds it took."""
    listener = pool.server("tcp", INET, net.port(), ps.member("rr"))
    pool.add(net.client("tcp", listener.getsockname()))
    select.select([listener], [], [], 10)
    served = listener.accept()[0]
    child = pool.enter_context(proc.Child(_close, served, cpu))
    served.close()		# the child's is the last one
    child.get()
    time.sleep(0.3)		# it is in close() by now
    return child
