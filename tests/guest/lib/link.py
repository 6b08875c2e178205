# SPDX-License-Identifier: GPL-2.0
"""Devices: a cable to another namespace."""
import ctypes
import fcntl
import socket
import struct
import subprocess

from . import net, ns, tap

SIOCETHTOOL = 0x8946
ETHTOOL_SGRO = 0x2c


def ip(command):
    subprocess.run(["ip", *command.split()], check=True)


def veth(outside, inside, namespace):
    """A pair of devices, one end in namespace."""
    done = subprocess.run(
        ["ip", "link", "add", outside, "type", "veth", "peer", "name", inside],
        capture_output=True, text=True)
    if done.returncode:
        raise tap.Skip(f"no veth: {done.stderr.strip()}")
    subprocess.run(["ip", "link", "set", inside, "netns",
                    f"/proc/self/fd/{namespace.fileno()}"], check=True,
                   pass_fds=[namespace.fileno()])


def gro(device):
    """Let a device of the current namespace put packets together."""
    switch = ctypes.create_string_buffer(struct.pack("II", ETHTOOL_SGRO, 1))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, SIOCETHTOOL, struct.pack(
            "16sQ16x", device.encode(), ctypes.addressof(switch)))


class Cable:
    """A namespace, .space, at the other end of a device, .device; .near and
    .far are the addresses of both ends by family. number: where there are
    several at a time."""

    def __init__(self, pool, number=8):
        self.near = {net.INET: f"10.9.{number}.1",
                     net.INET6: f"fd{number:02x}::1"}
        self.far = {net.INET: f"10.9.{number}.2",
                    net.INET6: f"fd{number:02x}::2"}
        self.device = f"psnear{number}"
        self.space = ns.Namespace()
        pool.callback(self.space.close)
        veth(self.device, "psfar", self.space)
        pool.callback(ip, f"link del {self.device}")
        self._up(self.device, self.near)
        with self.space:
            self._up("psfar", self.far)
            gro("psfar")

    @staticmethod
    def _up(device, hosts):
        commands = [f"link set {device} up",
                    f"addr add {hosts[net.INET]}/24 dev {device}"]
        if net.INET6 in net.FAMILIES:
            commands.append(
                f"addr add {hosts[net.INET6]}/64 dev {device} nodad")
        # Starting a program is dear here.
        subprocess.run(["ip", "-batch", "-"], input="\n".join(commands),
                       text=True, check=True)
