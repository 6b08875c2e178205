# SPDX-License-Identifier: GPL-2.0
"""accept() by io_uring: as much of it as a test needs, without a library."""
import ctypes
import mmap
import os
import struct

from . import ns, tap

SETUP, ENTER = 425, 426		# system calls
ENTER_GETEVENTS = 1
OP_ACCEPT = 13
SQES = 0x10000000		# where they are mapped; the ring is at 0
RING_BYTES = 4096


class Acceptor:
    """One accept at a time, which waits in the kernel."""

    def __init__(self):
        # struct io_uring_params: 10 words, then the two rings' offsets
        params = ctypes.create_string_buffer(120)
        try:
            self._fd = ns.check(ns.libc.syscall(SETUP, 4, params))
        except OSError as error:
            raise tap.Skip(f"no io_uring: {error.strerror}")
        words = struct.unpack("30I", params.raw)
        sq, cq = words[10:20], words[20:30]
        self._sq_tail, self._sq_array = sq[1], sq[6]
        self._cq_head, self._cq_tail, self._cqes = cq[0], cq[1], cq[5]
        self._cq_mask = words[1] - 1
        # IORING_FEAT_SINGLE_MMAP, from 5.4 on: one mapping has both rings.
        self._ring = mmap.mmap(self._fd, RING_BYTES, offset=0)
        self._sqes = mmap.mmap(self._fd, RING_BYTES, offset=SQES)

    def _word(self, offset):
        return struct.unpack_from("I", self._ring, offset)[0]

    def accept(self, sock):
        """The descriptor of a connection; sleeps until there is one."""
        struct.pack_into("64s", self._sqes, 0, struct.pack(
            "BBHi", OP_ACCEPT, 0, 0, sock.fileno()))
        struct.pack_into("I", self._ring, self._sq_array, 0)
        struct.pack_into("I", self._ring, self._sq_tail,
                         self._word(self._sq_tail) + 1 & 0xffffffff)
        head = self._word(self._cq_head)
        submit = 1
        while self._word(self._cq_tail) == head:
            try:
                ns.check(ns.libc.syscall(ENTER, self._fd, submit, 1,
                                         ENTER_GETEVENTS, None, 0))
            except InterruptedError:
                pass
            submit = 0
        result = struct.unpack_from(
            "i", self._ring, self._cqes + 16 * (head & self._cq_mask) + 8)[0]
        struct.pack_into("I", self._ring, self._cq_head,
                         head + 1 & 0xffffffff)
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return result

    def close(self):
        self._ring.close()
        self._sqes.close()
        os.close(self._fd)
