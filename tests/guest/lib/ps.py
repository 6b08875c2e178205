# SPDX-License-Identifier: GPL-2.0
"""portsteer as a program and an operator see it: options, rules, /proc, the
module itself. Numbers and structures are those of uapi/portsteer.h."""
import collections
import ctypes
import os
import re
import socket
import struct
import subprocess

from . import ns, proc

JOIN = 20563
POLICY = 20564
WEIGHT = 20565
CPU = 20566
STATE = 20567
ID = 20568
GENERATION = 20569
WORKING_GENERATION = 20570
KEY = 20571
INFO = 20572
VERSION = 20573
RX_QUEUE = 20574
AFFINITY = 20575

OPTIONS = range(JOIN, AFFINITY + 1)
MAX_ID = 65535
ACTIVE, STANDBY, DRAINING = range(3)	# STATE
POLICIES = ("hash", "rr", "random", "least", "cpu", "numa", "rxqueue", "idle",
            "consistent", "quic")
KO = "/portsteer/portsteer.ko"
PARAMETERS = "/sys/module/portsteer/parameters"
TRACING = "/sys/kernel/tracing"
SYS_DELETE_MODULE = 176

Info = collections.namedtuple("Info", """size id state weight cpu rx_queue
    generation working_generation members selectable policy picked migrated_in
    migrated_out fallbacks""")
INFO_FORMAT = "=4I2iIi2I16s4Q"
INFO_SIZE = struct.calcsize(INFO_FORMAT)


# Socket options

def level(sock):
    return (socket.IPPROTO_IPV6 if sock.family == socket.AF_INET6
            else socket.IPPROTO_IP)


def set(sock, option, value):
    """value: an int, or bytes as they are."""
    if isinstance(value, int):
        value = struct.pack("i", value)
    sock.setsockopt(level(sock), option, value)


def get(sock, option):
    return struct.unpack("i", sock.getsockopt(level(sock), option, 4))[0]


def set_at(sock, option, pointer, length):
    """setsockopt() with any pointer."""
    ns.check(ns.libc.setsockopt(sock.fileno(), level(sock), option,
                                ctypes.c_void_p(pointer),
                                ctypes.c_uint(length & 0xffffffff)))


def get_at(sock, option, pointer, length):
    """getsockopt() to any pointer; the length that the kernel returns."""
    size = ctypes.c_int(length)
    ns.check(ns.libc.getsockopt(sock.fileno(), level(sock), option,
                                ctypes.c_void_p(pointer), ctypes.byref(size)))
    return size.value


def join(sock):
    set(sock, JOIN, 1)


def leave(sock):
    set(sock, JOIN, 0)


def policy(sock):
    text = sock.getsockopt(level(sock), POLICY, 16)
    return text.split(b"\0")[0].decode()


def set_policy(sock, name):
    set(sock, POLICY, name.encode())


def info(sock):
    values = list(struct.unpack(INFO_FORMAT, sock.getsockopt(
        level(sock), INFO, INFO_SIZE)))
    values[10] = values[10].split(b"\0")[0].decode()
    return Info(*values)


def member(policy=None, id=None, **wishes):
    """For net.server(): join at bind, with these wishes: weight=3, key=b"k"."""
    def prepare(sock):
        join(sock)
        if policy is not None:
            set_policy(sock, policy)
        if id is not None:
            set(sock, ID, id)
        for name, value in wishes.items():
            set(sock, globals()[name.upper()], value)
    return prepare


def wish_id(value):
    return lambda sock: set(sock, ID, value)


# /proc/net/portsteer

class Group(dict):
    """What the group's line says; .members: what its members' lines say."""

    def __init__(self, values):
        super().__init__(values)
        self.members = []

    def ids(self):
        return [member["id"] for member in self.members]

    def picked(self):
        return [member["picked"] for member in self.members]


def _pairs(words):
    pairs = (word.split("=", 1) for word in words)
    return {key: int(value) if re.fullmatch(r"-?\d+", value) else value
            for key, value in pairs}


def parse(text):
    groups = {}
    last = None
    for line in text.splitlines():
        if line.startswith(" "):
            last.members.append(_pairs(line.split()))
        else:
            called, *words = line.split()
            last = groups[called] = Group(_pairs(words))
    return groups


def table():
    """The groups of the current network namespace by name."""
    # /proc/net would be the namespace of the process' first thread.
    with open("/proc/thread-self/net/portsteer") as file:
        return parse(file.read())


def name(sock):
    """The name of the group that a bound socket would be in."""
    host, port = sock.getsockname()[:2]
    kind = "tcp" if sock.type == socket.SOCK_STREAM else "udp"
    if sock.family == socket.AF_INET6:
        host = f"[{host}]"
    return f"{kind}:{host}:{port}"


def group(sock):
    """The group of a bound socket's address, None if there is none."""
    return table().get(name(sock))


# sysfs

def sysfs_names():
    """The groups that have a directory in the current network namespace."""
    names = os.listdir(f"{ns.sysfs()}/class/portsteer")
    return sorted(n for n in names if n != "rules")


def sysfs_dir(sock):
    """Where the group of a bound socket is."""
    return f"{ns.sysfs()}/class/portsteer/{name(sock)}"


def sysfs_read(path):
    with open(path) as file:
        return file.read().rstrip("\n")


def sysfs_files(directory):
    """{path below it: content} of all files but the kernel's own."""
    found = {}
    for path, _, names in os.walk(directory):
        for name in names:
            below = os.path.relpath(os.path.join(path, name), directory)
            if below != "uevent":
                found[below] = sysfs_read(os.path.join(directory, below))
    return found


def sysfs_write(path, value):
    """Hand value to the file in one write(); bytes as they are."""
    if not isinstance(value, bytes):
        value = str(value).encode()
    fd = os.open(path, os.O_WRONLY)
    try:
        return os.write(fd, value)
    finally:
        os.close(fd)


# Rules

def rules_path():
    return f"{ns.sysfs()}/class/portsteer/rules"


def rule(text):
    """Hand text to the module in one write()."""
    if isinstance(text, str):
        text = text.encode()
    fd = os.open(rules_path(), os.O_WRONLY)
    try:
        return os.write(fd, text)
    finally:
        os.close(fd)


def rule_lines():
    """The rules as the module reads them back, one a line."""
    with open(rules_path()) as file:
        return file.read().splitlines()


def rules():
    """[(protocol, port, policy)] as the module reads them back."""
    lines = rule_lines()
    pattern = re.compile(r"\b(tcp|udp) (\d+) (?:.* )?policy=(\S+)")
    found = [pattern.search(line) for line in lines]
    if None in found:
        raise ValueError(f"not one rule a line: {lines}")
    return [(m[1], int(m[2]), m[3]) for m in found]


# The module

def _kernel_log(lines=6):
    text = subprocess.run(["dmesg"], capture_output=True, text=True).stdout
    return "\n".join(text.splitlines()[-lines:])


def _modutil(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}"
                           f"kernel log:\n{_kernel_log()}")


def loaded():
    return os.path.exists("/sys/module/portsteer")


def load(**parameters):
    _modutil("/sbin/insmod", KO, *(f"{k}={v}" for k, v in parameters.items()))


def unload():
    _modutil("/sbin/rmmod", "portsteer")


def try_unload():
    """False if somebody is inside one of the module's options just now."""
    try:
        ns.check(ns.libc.syscall(SYS_DELETE_MODULE, b"portsteer",
                                 os.O_NONBLOCK))
    except BlockingIOError:
        return False
    return True


def parameter(name, value=None):
    """Read a module parameter, or write it."""
    fd = os.open(f"{PARAMETERS}/{name}",
                 os.O_RDONLY if value is None else os.O_WRONLY)
    try:
        if value is None:
            return os.read(fd, 4096).decode().strip()
        return os.write(fd, value.encode())
    finally:
        os.close(fd)


# Hooks

def _enabled():
    """The words on each traced function's line: "function (callbacks) flags"."""
    path = f"{TRACING}/enabled_functions"
    if not os.path.exists(path):
        ns.mount("tracefs", TRACING, "tracefs")
    with open(path) as file:
        return [line.split("tramp:")[0].split("->")[0].split()
                for line in file if line.strip()]


def hooks():
    """The functions that someone redirects: the module, nobody else here."""
    # I stands for IPMODIFY
    return {words[0] for words in _enabled() if "I" in words[2:]}


def traced():
    """The functions whose calls are seen by someone, also without a change."""
    return {words[0] for words in _enabled()}


def disarmed():
    """Disarming may lag behind the last close() by a moment."""
    return proc.wait_for(lambda: not hooks())


# What test files hand to tap.run()

def prepare_guest():
    """the module is loaded"""
    ns.lo_up()
    # A connection that is closed when that many are is forgotten at once, and a
    # segment that is sent again (the machine is slow) gets a reset then.
    with open("/proc/sys/net/ipv4/tcp_max_tw_buckets", "w") as file:
        file.write(str(1 << 20))
    load()


def remove_module():
    """the module is removed at the end"""
    unload()


def left_behind():
    """Clear the rules; tell what groups a test forgot or the module kept."""
    if not loaded():
        return "the module is not loaded"
    rule("clear")
    if proc.wait_for(lambda: not table(), 2):
        return None
    return f"groups: {table()}"
