# SPDX-License-Identifier: GPL-2.0
"""A device whose other end is this process: packets of any form come in, byte
for byte, and are through the stack when send() returns."""
import fcntl
import os
import struct
import subprocess

from . import link, net, tap

TUNSETIFF = 0x400454ca
TUNSETVNETHDRSZ = 0x400454d8
IFF_TUN, IFF_NAPI, IFF_NO_PI, IFF_VNET_HDR = 0x1, 0x10, 0x1000, 0x4000
VNET = struct.Struct("=BBHHHH")

NEAR = {net.INET: "10.66.0.1", net.INET6: "fd66::1"}


def peer(family, number):
    """One of 65,000 addresses at the other end."""
    number += 2
    if family == net.INET6:
        return f"fd66::{number:x}"
    return f"10.66.{number >> 8 & 255}.{number & 255}"


class Tun:
    """napi: through GRO; vnet: each packet has a header of virtio's before."""

    def __init__(self, pool, napi=False, vnet=False):
        subprocess.run(["modprobe", "-q", "tun"], check=False)
        if not os.path.exists("/dev/net/tun"):
            raise tap.Skip("this kernel has no TUN devices")
        self._fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        pool.callback(os.close, self._fd)
        self._vnet = vnet
        flags = IFF_TUN | IFF_NO_PI | (IFF_NAPI if napi else 0) | \
            (IFF_VNET_HDR if vnet else 0)
        fcntl.ioctl(self._fd, TUNSETIFF, struct.pack("16sH22x", b"pstun",
                                                     flags))
        if vnet:
            fcntl.ioctl(self._fd, TUNSETVNETHDRSZ,
                        struct.pack("i", VNET.size))
        link.ip(f"addr add {NEAR[net.INET]}/16 dev pstun")
        if net.INET6 in net.FAMILIES:
            link.ip(f"addr add {NEAR[net.INET6]}/64 dev pstun nodad")
        link.ip("link set pstun up")

    def send(self, packet, header=VNET.pack(0, 0, 0, 0, 0, 0)):
        """The errno's name if the device doesn't take it."""
        if self._vnet:
            packet = header + packet
        return tap.error_of(os.write, self._fd, packet)

    def replies(self):
        """All that the stack has sent this way since."""
        found = []
        while True:
            try:
                found.append(os.read(self._fd, 65536))
            except BlockingIOError:
                return found
