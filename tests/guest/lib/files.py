# SPDX-License-Identifier: GPL-2.0
"""A group's files in sysfs, by one of its sockets."""
import os

from . import ps

# Of a fresh group and its fresh member, by file.
GROUP = {"policy":
         "[hash] rr random least cpu numa rxqueue idle consistent quic",
         "locked": "0", "migrate": "1", "working_generation": "-1",
         "affinity": "0", "affinity_flows": "65536", "quic_offset": "1",
         "quic_length": "2", "stats/picked": "0", "stats/fallbacks": "0",
         "stats/migrated": "0", "stats/migrate_failed": "0",
         "stats/flows": "0", "stats/flows_full": "0"}
MEMBER = {"state": "active", "weight": "1", "cpu": "-1", "rx_queue": "-1",
          "generation": "0", "backlog": "0", "picked": "0",
          "migrated_in": "0", "migrated_out": "0"}	# inode: any


def fresh(sock, **values):
    """What ps.sysfs_files() of a group with one fresh member should be."""
    expected = dict(GROUP)
    expected.update({f"members/0/{name}": value
                     for name, value in MEMBER.items()})
    expected["members/0/inode"] = str(os.fstat(sock.fileno()).st_ino)
    expected.update(values)
    return expected


def current(text):
    """The one in brackets."""
    return text[text.index("[") + 1:text.index("]")]


def at(sock, path, value=None):
    """Read or write a file of the socket's group."""
    path = f"{ps.sysfs_dir(sock)}/{path}"
    if value is None:
        return ps.sysfs_read(path)
    return ps.sysfs_write(path, value)


def ids(sock):
    return sorted(map(int, os.listdir(f"{ps.sysfs_dir(sock)}/members")))
