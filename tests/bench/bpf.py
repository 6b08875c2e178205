# SPDX-License-Identifier: GPL-2.0
"""BPF programs that choose among the sockets of a SO_REUSEPORT group: what
there is without portsteer. Assembled by hand, as a compiler would do it."""
import ctypes
import os
import socket
import struct

ATTACH_CBPF, ATTACH_EBPF, DETACH = 51, 52, 68

SYS_BPF = 321
MAP_CREATE, MAP_UPDATE_ELEM, PROG_LOAD = 0, 2, 5
MAP_ARRAY, MAP_REUSEPORT_SOCKARRAY = 2, 20
PROG_SK_REUSEPORT = 21
GET_PRANDOM_U32, GET_SMP_PROCESSOR_ID, SK_SELECT_REUSEPORT = 7, 8, 82
MD_HASH = 32            # offset in struct sk_reuseport_md
PSEUDO_MAP_FD, PSEUDO_MAP_VALUE = 1, 2

libc = ctypes.CDLL(None, use_errno=True)


def detach(sock):
    sock.setsockopt(socket.SOL_SOCKET, DETACH, 0)


# Classic BPF: the program returns the socket's place in the group.

CLASSIC = {
    "cpu": lambda n: [(0x20, 0xfffff024)],                  # ld #cpu
    "random": lambda n: [(0x20, 0xfffff038), (0x94, n)],    # ld #rand; mod #n
    "rxqueue": lambda n: [(0x20, 0xfffff018), (0x14, 1)],   # ld #queue; sub #1
}


def attach_classic(sock, name, n):
    program = CLASSIC[name](n) + [(0x16, 0)]                # ret a
    code = ctypes.create_string_buffer(
        b"".join(struct.pack("HBBI", op, 0, 0, k) for op, k in program))
    sock.setsockopt(socket.SOL_SOCKET, ATTACH_CBPF,
                    struct.pack("HxxxxxxP", len(program),
                                ctypes.addressof(code)))


# eBPF: the program names a place in a map of sockets.

def _bpf(command, attr):
    buffer = ctypes.create_string_buffer(attr, 128)
    fd = libc.syscall(SYS_BPF, command, buffer, 128)
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


def _map(kind, value_size, entries):
    return _bpf(MAP_CREATE, struct.pack("4I", kind, 4, value_size, entries))


def _insn(code, dst=0, src=0, off=0, imm=0):
    return struct.pack("=BBhi", code, dst | src << 4, off, imm)


def _call(helper):
    return _insn(0x85, imm=helper)


def _map_address(dst, pseudo, fd):
    return _insn(0x18, dst, pseudo, imm=fd) + _insn(0)


def _scale(n):
    """r0, 32 random bits, to 0..n-1"""
    return _insn(0x27, 0, imm=n) + _insn(0x77, 0, imm=32)   # r0 *= n; r0 >>= 32


def _turn(n, turn):
    return (_map_address(1, PSEUDO_MAP_VALUE, turn)
            + _insn(0xb7, 0, imm=1)                         # r0 = 1
            + _insn(0xdb, 1, 0, imm=1)                      # r0 = fetch_add
            + _insn(0x94, 0, imm=n))                        # w0 %= n


# How each of them puts the place in r0; r6 is the context.
EXTENDED = {
    "hash": lambda n, turn: _insn(0x61, 0, 6, MD_HASH) + _scale(n),
    "cpu": lambda n, turn: _call(GET_SMP_PROCESSOR_ID),
    "random": lambda n, turn: _call(GET_PRANDOM_U32) + _scale(n),
    "rr": _turn,
}


class Extended:
    """eBPF programs for the group of some sockets, which can be in one map
    only."""

    def __init__(self, sockets):
        self.sock, self.n = sockets[0], len(sockets)
        self.map = _map(MAP_REUSEPORT_SOCKARRAY, 8, self.n)
        self.turn = _map(MAP_ARRAY, 8, 1)
        for i, sock in enumerate(sockets):
            key = ctypes.c_uint32(i)
            value = ctypes.c_uint64(sock.fileno())
            _bpf(MAP_UPDATE_ELEM, struct.pack(
                "=IxxxxQQQ", self.map, ctypes.addressof(key),
                ctypes.addressof(value), 0))

    def attach(self, name):
        code = (_insn(0xbf, 6, 1)                           # r6 = r1
                + EXTENDED[name](self.n, self.turn)
                + _insn(0x63, 10, 0, -4)                    # [r10 - 4] = w0
                + _insn(0xbf, 1, 6)                         # r1 = r6
                + _map_address(2, PSEUDO_MAP_FD, self.map)
                + _insn(0xbf, 3, 10) + _insn(0x07, 3, imm=-4)   # r3 = r10 - 4
                + _insn(0xb7, 4)                            # r4 = 0
                + _call(SK_SELECT_REUSEPORT)
                + _insn(0xb7, 0, imm=1)                     # r0 = SK_PASS
                + _insn(0x95))                              # exit
        insns = ctypes.create_string_buffer(code)
        license = ctypes.create_string_buffer(b"GPL")
        program = _bpf(PROG_LOAD, struct.pack(
            "=IIQQ", PROG_SK_REUSEPORT, len(code) // 8,
            ctypes.addressof(insns), ctypes.addressof(license)))
        self.sock.setsockopt(socket.SOL_SOCKET, ATTACH_EBPF, program)
        os.close(program)

    def close(self):
        os.close(self.map)
        os.close(self.turn)
