# SPDX-License-Identifier: GPL-2.0
"""Those who look at kernel functions: on(functions), off(), and calls(), how
often each was called since on() was last called."""
import collections
import contextlib
import os
import re

from . import bpf, ps, tap

TRACING = ps.TRACING


def _write(name, text, mode="w"):
    fd = os.open(f"{TRACING}/{name}", os.O_WRONLY | (
        os.O_APPEND if mode == "a" else os.O_TRUNC))
    try:
        data = text.encode()
        while data:			# a word at a time is taken of some
            data = data[os.write(fd, data):]
    finally:
        os.close(fd)


def _read(name):
    with open(f"{TRACING}/{name}") as file:
        return file.read()


class FunctionTracer:
    """The kernel's own function tracer, which fills a buffer."""

    tracer = "function"
    pattern = re.compile(r": (\w+)(?: \[\w+\])? <-")

    def __init__(self):
        if self.tracer not in _read("available_tracers").split():
            raise tap.Skip(f"this kernel has no tracer {self.tracer}")

    def on(self, functions):
        _write("trace", "")
        _write("set_ftrace_filter", " ".join(functions))
        # Also our own, of which some take the place of those.
        with contextlib.suppress(OSError):
            _write("set_ftrace_filter", ":mod:portsteer", "a")
        _write("current_tracer", self.tracer)
        _write("tracing_on", "1")

    def off(self):
        _write("current_tracer", "nop")
        _write("set_ftrace_filter", "")

    def calls(self):
        return collections.Counter(self.pattern.findall(_read("trace")))


class GraphTracer(FunctionTracer):
    """The same for a function's end as well: it changes the return address."""

    tracer = "function_graph"
    pattern = re.compile(r"\| +(\w+)(?: \[\w+\])?\(\)(?: \{|;)")


class Kprobes:
    """A breakpoint, or a call, at the functions' entries."""

    letter = "p"

    def __init__(self):
        if not os.path.exists(f"{TRACING}/kprobe_events"):
            raise tap.Skip("this kernel has no kprobe events")
        self._names = []

    def on(self, functions):
        self._names = [f"{self.letter}_{name}" for name in functions]
        for name, function in zip(self._names, functions):
            _write("kprobe_events",
                   f"{self.letter}:{self._group()}/{name} {function}", "a")
        _write(f"events/{self._group()}/enable", "1")

    def off(self):
        _write(f"events/{self._group()}/enable", "0")
        for name in self._names:
            _write("kprobe_events", f"-:{self._group()}/{name}", "a")

    def _group(self):
        return f"probes_{self.letter}"

    def calls(self):
        lines = [line.split() for line in _read("kprobe_profile").splitlines()]
        return collections.Counter({
            words[0][2:]: int(words[1]) for words in lines
            if words[0].startswith(f"{self.letter}_")})


class Kretprobes(Kprobes):
    """And at their ends."""

    letter = "r"


class Programs:
    """BPF programs, which ftrace calls without any callback."""

    kind = bpf.ENTRY

    def __init__(self):
        self._ids = {}
        self._programs = {}
        self.refused = {}

    def _attach(self, name):
        program = bpf.Program(self._ids[name], self.kind)
        try:
            program.attach()
        except OSError:
            program.close()
            raise
        self._programs[name] = program

    def on(self, functions):
        """Some kernels refuse what has many parameters, or is redirected."""
        missing = [name for name in functions if name not in self._ids]
        if missing:
            self._ids.update(bpf.function_ids(missing))
        self.refused = {}
        for name in functions:
            try:
                self._attach(name)
            except KeyError:
                self.refused[name] = "has no type"
            except OSError as error:
                self.refused[name] = tap.name_of(error)

    def off(self):
        for program in self._programs.values():
            program.close()
        self._programs = {}

    def calls(self):
        return collections.Counter({name: program.runs() for name, program
                                    in self._programs.items()})


class ExitPrograms(Programs):
    """The same at the functions' ends."""

    kind = bpf.EXIT


ALL = (FunctionTracer, GraphTracer, Kprobes, Kretprobes, Programs,
       ExitPrograms)
