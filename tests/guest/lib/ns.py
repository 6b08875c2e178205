# SPDX-License-Identifier: GPL-2.0
"""Namespaces. Python's own os.unshare() is newer than Debian 12."""
import ctypes
import fcntl
import os
import socket
import struct
import tempfile

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 2
SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
IFF_UP = 1

libc = ctypes.CDLL(None, use_errno=True)

# A sysfs shows the namespace that it was mounted in, not that of the reader.
_sysfs = ["/sys"]


def check(result):
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def sysfs():
    """Where the sysfs of the current network namespace is mounted."""
    return _sysfs[-1]


def unshare(flags):
    check(libc.unshare(flags))


def mount(source, target, kind, flags=0):
    check(libc.mount(source.encode(), target.encode(),
                     kind.encode() if kind else None,
                     ctypes.c_ulong(flags), None))


def lo_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14x", b"lo", 0)
        request = fcntl.ioctl(sock, SIOCGIFFLAGS, request)
        flags = struct.unpack("16sH14x", request)[1]
        fcntl.ioctl(sock, SIOCSIFFLAGS,
                    struct.pack("16sH14x", b"lo", flags | IFF_UP))


def mount_sysfs():
    path = tempfile.mkdtemp(prefix="sys-")
    mount("sysfs", path, "sysfs")
    return path


class Namespace:
    """A network namespace with lo up; "with" runs the block inside."""

    def __init__(self):
        self._outside = []
        home = self._current()
        try:
            unshare(CLONE_NEWNET)
            self._fd = self._current()
            lo_up()
            self.sysfs = mount_sysfs()
        finally:
            self._set(home)
            os.close(home)

    @staticmethod
    def _current():
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    @staticmethod
    def _set(fd):
        check(libc.setns(fd, CLONE_NEWNET))

    def fileno(self):
        return self._fd

    def __enter__(self):
        self._outside.append(self._current())
        self._set(self._fd)
        _sysfs.append(self.sysfs)
        return self

    def __exit__(self, *_):
        _sysfs.pop()
        home = self._outside.pop()
        self._set(home)
        os.close(home)

    def close(self):
        """Let go of it: it dies with its last socket."""
        check(libc.umount2(self.sysfs.encode(), MNT_DETACH))
        os.rmdir(self.sysfs)
        os.close(self._fd)


def own_everything():
    """Make this process root of a user and network namespace of its own."""
    uid, gid = os.getuid(), os.getgid()
    unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS)
    # The new credentials made the process undumpable once more.
    libc.prctl(4, 1, 0, 0, 0)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"),
                       ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    lo_up()
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("sysfs", "/sys", "sysfs")
