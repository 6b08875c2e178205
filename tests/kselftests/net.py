#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""tools/testing/selftests/net: SO_REUSEPORT, bind(), UDP segments."""
# guest: mem=2048 timeout=1800 file=build/kselftests
from lib import ksft
from lib.ksft import Test, Way

TCP_AND_UDP = ("tcp", 8888), ("udp", 8888)
NONE = (Way(joins=0),)		# it has no socket that asks for SO_REUSEPORT


def parting(alone, result):
    """The number of the line in which the outputs part."""
    pairs = zip(alone.lines, result.lines)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), None)


def turns(family, kind, sockets=10):
    """reuseport_bpf has each program choose sockets in turn, first all of them
    and then half of them. So does `rr`, but that deals to all of them always."""
    def expect(alone, result):
        at = parting(alone, result)
        if at is None:
            return "the program's choice stands"
        seen = result.lines[:at]
        got = [[line for line in seen if line.startswith("----")][-1],
               [line for line in seen if line.startswith("Testing")][-1],
               [line for line in seen if not line.startswith("Socket")][-1],
               alone.lines[at], result.lines[at],
               result.lines[at + 1].split(": ")[-1], result.status]
        half = sockets // 2
        want = [f"---- {family} ----", f"Testing {kind} mod {sockets}...",
                f"Reprograming, testing mod {half}...", f"Socket 0: {half}",
                f"Socket {half}: {half}", "expected socket 0", 1]
        return "" if got == want else f"got  {got}\nwant {want}"
    return expect


def instead_of_cpu(family):
    """reuseport_bpf_cpu has sockets chosen by CPU: 0, 1, then 1, 0."""
    def expect(alone, result):
        at = parting(alone, result)
        if at is None:
            return "the program's choice stands"
        got = [[line for line in result.lines[:at]
                if line.startswith("----")][-1],
               alone.lines[at], result.lines[at],
               result.lines[at + 1].split(": ")[-1], result.status]
        want = [f"---- {family} ----", "send cpu 1, receive socket 1",
                "send cpu 1, receive socket 0",
                "cpu id/receive socket mismatch", 1]
        return "" if got == want else f"got  {got}\nwant {want}"
    return expect


def all_fail(alone, result):
    """SO_INCOMING_CPU is what the program asks for: the rule is stronger."""
    names = set(alone.subtests)
    return "" if names and result.failed() == names else result.tail()


# The port of each test with a program, and how the test is called; on the other
# ports programs are only attached.
PROGRAMS = {("udp", 8000): ("IPv4 UDP", "EBPF"),
            ("udp", 8001): ("IPv4 UDP", "CBPF"),
            ("udp", 8003): ("IPv6 UDP", "EBPF"),
            ("udp", 8004): ("IPv6 UDP", "CBPF"),
            ("udp", 8006): ("IPv6 UDP w/ mapped IPv4", "EBPF", 20),
            ("udp", 8007): ("IPv6 UDP w/ mapped IPv4", "CBPF"),
            ("tcp", 8008): ("IPv4 TCP", "EBPF"),
            ("tcp", 8009): ("IPv4 TCP", "CBPF"),
            ("tcp", 8012): ("IPv6 TCP", "EBPF"),
            ("tcp", 8013): ("IPv6 TCP", "CBPF"),
            ("tcp", 8016): ("IPv6 TCP w/ mapped IPv4", "EBPF"),
            ("tcp", 8017): ("IPv6 TCP w/ mapped IPv4", "CBPF")}
ATTACHED = (("udp", 8002), ("udp", 8005), ("udp", 8008), ("tcp", 8010),
            ("tcp", 8011), ("tcp", 8014), ("tcp", 8015))
INSTEAD = "a rule's policy takes the place of"

ksft.main(
    Test("net/reuseport_bpf", (*PROGRAMS, *ATTACHED), ways=(
        Way(ports=ATTACHED, joins=4),
        *(Way(f"{INSTEAD} the {kind} program of {family}", ports=(port,),
              expect=turns(family, kind, *some), joins=some[0] if some else 10)
          for port, (family, kind, *some) in PROGRAMS.items()))),
    Test("net/reuseport_bpf_cpu", TCP_AND_UDP, ways=(
        Way(f"{INSTEAD} the program, UDP", ports=(("udp", 8888),),
            expect=instead_of_cpu("IPv4 UDP"), joins=2),
        Way(f"{INSTEAD} the program, TCP", ports=(("tcp", 8888),),
            expect=instead_of_cpu("IPv4 TCP"), joins=2))),
    # one node, one socket
    Test("net/reuseport_bpf_numa", TCP_AND_UDP, ways=(Way(joins=4),)),
    Test("net/reuseport_dualstack", TCP_AND_UDP, ways=(
        Way(joins=2 * (10 + 32 + 10)),)),
    Test("net/reuseport_addr_any.sh", TCP_AND_UDP),
    Test("net/so_incoming_cpu", chosen="tcp", passes=False, ways=(
        Way(f"{INSTEAD} SO_INCOMING_CPU", expect=all_fail),)),
    Test("net/bind_wildcard", chosen="tcp", passes=False),
    Test("net/bind_timewait", chosen="tcp", ways=NONE),
    Test("net/reuseaddr_conflict", (("tcp", 9999),), ways=NONE),
    Test("net/reuseaddr_ports_exhausted.sh", (("tcp", 32768),)),
    Test("net/sk_bind_sendto_listen", (("tcp", 20000),), ways=NONE),
    Test("net/sk_connect_zero_addr", (("tcp", 20000),), ways=NONE),
    Test("net/sk_so_peek_off", chosen="both", passes=False, ways=NONE),
    Test("net/tcp_port_share", (("tcp", 30000), ("tcp", 40000)), passes=False,
         ways=NONE),
    Test("net/udpgso.sh", (("udp", 8000),), passes=False, ways=NONE),
    Test("net/udpgro.sh", (("udp", 8000), ("udp", 12345)), passes=False))
