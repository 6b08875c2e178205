# SPDX-License-Identifier: GPL-2.0
"""Real servers and load generators: programs that know nothing of the tests."""
import contextlib
import pathlib
import subprocess

from . import proc, ps

TMP = pathlib.Path("/tmp/servers")


def run(*command):
    done = subprocess.run([str(word) for word in command], text=True,
                          capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")


def children(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        path = f"/proc/{pid}/task/{pid}/children"
        return [int(word) for word in pathlib.Path(path).read_text().split()]
    return []


def alive(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        return stat.rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


def need(condition, what):
    if not proc.wait_for(condition, 60):
        raise TimeoutError(f"gave up waiting until {what}")


def chosen(kinds, names):
    """The classes with one of these names in any case; no names: all."""
    return [kind for kind in kinds
            if not names or kind.__name__.lower() in names]


# Their groups, as an operator sees them

def groups(port):
    """The groups of a port: {name: group}."""
    return {name: group for name, group in ps.table().items()
            if name.endswith(f":{port}")}


def present(port):
    """The members of a port's groups: {name: ids}."""
    return {name: group.ids() for name, group in groups(port).items()}


def set_group(port, file, value):
    for name in groups(port):
        ps.sysfs_write(f"/sys/class/portsteer/{name}/{file}", value)


def set_members(members, file, value):
    """The same for each of these, {name: ids}."""
    for name, ids in members.items():
        for number in ids:
            ps.sysfs_write(
                f"/sys/class/portsteer/{name}/members/{number}/{file}", value)


def need_empty(port, members):
    """Wait until nothing is queued on these, {name: ids}."""
    need(lambda: not any(m["backlog"] for name, group in groups(port).items()
                         for m in group.members
                         if m["id"] in members.get(name, ())),
         "the queues are empty")
