# SPDX-License-Identifier: GPL-2.0
"""BPF programs at the entry or the end of kernel functions, as bpftrace's
kfunc and kretfunc are, without a library. They do nothing; the kernel counts
their runs."""
import contextlib
import ctypes
import os
import re
import struct

from . import ns, tap

SYS_BPF = 321
PROG_LOAD, RAW_TRACEPOINT_OPEN = 5, 17
PROG_TRACING = 26
ENTRY, EXIT = 24, 25			# BPF_TRACE_FENTRY, BPF_TRACE_FEXIT
VMLINUX = "/sys/kernel/btf/vmlinux"
STATS = "/proc/sys/kernel/bpf_stats_enabled"

# BTF: what follows a type of each kind, in all and for each of its parts.
KIND_FUNC = 12
EXTRA = {1: 4, 3: 12, 14: 4, 17: 4}
EACH = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}

# r0 = 0; exit
CODE = struct.pack("=BBhi", 0xb7, 0, 0, 0) + struct.pack("=BBhi", 0x95, 0, 0, 0)


def function_ids(names):
    """{name: number} of these functions in the kernel's type information."""
    try:
        with open(VMLINUX, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        raise tap.Skip("this kernel has no type information (BTF)")
    head, types, size, strings = struct.unpack_from("=4xIIII", data)
    wanted = {}
    for name in names:
        place = data.find(b"\0" + name.encode() + b"\0", head + strings)
        wanted[place + 1 - head - strings] = name
    found = {}
    at, end, number = head + types, head + types + size, 0
    unpack = struct.Struct("=II4x").unpack_from
    while at < end:
        number += 1
        name, info = unpack(data, at)
        kind = info >> 24 & 0x1f
        if kind == KIND_FUNC and name in wanted:
            found[wanted[name]] = number
        at += 12 + EXTRA.get(kind, 0) + EACH.get(kind, 0) * (info & 0xffff)
    return found


def _bpf(command, attr):
    buffer = ctypes.create_string_buffer(attr, 128)
    return ns.check(ns.libc.syscall(SYS_BPF, command, buffer, 128))


class Program:
    """One for a function, from when it is attached until it is detached."""

    def __init__(self, number, kind):
        code = ctypes.create_string_buffer(CODE)
        license = ctypes.create_string_buffer(b"GPL")
        self._link = None
        self._fd = _bpf(PROG_LOAD, struct.pack(
            "=IIQQ44xI36xI", PROG_TRACING, len(CODE) // 8,
            ctypes.addressof(code), ctypes.addressof(license), kind, number))

    def attach(self):
        self._link = _bpf(RAW_TRACEPOINT_OPEN,
                          struct.pack("=QI", 0, self._fd))

    def detach(self):
        if self._link is not None:
            os.close(self._link)
            self._link = None

    def runs(self):
        with open(f"/proc/self/fdinfo/{self._fd}") as file:
            return int(re.search(r"run_cnt:\s*(\d+)", file.read())[1])

    def close(self):
        self.detach()
        os.close(self._fd)


@contextlib.contextmanager
def counted():
    """The kernel counts how often programs run."""
    if not os.path.exists(STATS):
        raise tap.Skip("this kernel doesn't count runs of BPF programs")
    with open(STATS, "w") as file:
        file.write("1")
    try:
        yield
    finally:
        with open(STATS, "w") as file:
            file.write("0")
