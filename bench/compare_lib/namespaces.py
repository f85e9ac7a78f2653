"""Two hosts on one machine: network namespaces joined by one link.

The namespaces, their link and what is set on it are made here and removed here. Programs in them
reach nothing but each other; every byte between the two crosses the link, and the link's counters
say how many did. The link is a veth pair; a delay and a rate are set on it by tc's netem, or, where
the kernel has none, come from peers/delay_link.c in the pair's place. Needs root and iproute2.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

LINK = "link0"
SUBNET = "10.77.0.0/24"
UNITS = {
    "us": 1.0,
    "ms": 1e3,
    "s": 1e6,
    "kbit": 1e3,
    "mbit": 1e6,
    "gbit": 1e9,
}


class NamespaceError(Exception):
    """The two hosts cannot be made; the text says why."""


def _ip(*words: str) -> str:
    try:
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
    except FileNotFoundError:
        raise NamespaceError("iproute2 is not here; on Debian, install iproute2") from None
    if done.returncode:
        raise NamespaceError(f"`ip {' '.join(words)}` failed: {done.stderr.strip()}")
    return done.stdout


def amount(text: str, units: tuple[str, ...]) -> float:
    """The number of microseconds, or of bits a second, that `text` means."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]+)", text.strip().lower())
    if not match or match[2] not in units:
        raise NamespaceError(f"`{text}` is not a number with one of the units {', '.join(units)}")
    return float(match[1]) * UNITS[match[2]]


@dataclass
class Pair:
    """The names of the two namespaces; host 0 is 10.77.0.1, host 1 is 10.77.0.2."""

    names: tuple[str, str]
    link: str = "plain veth"
    relay: subprocess.Popen | None = field(default=None, repr=False)

    @staticmethod
    def address(host: int) -> str:
        return f"10.77.0.{host + 1}"

    def inside(self, host: int, argv: list[str]) -> list[str]:
        """`argv` as a program of that host, which also has a host name of its own."""
        named = 'hostname "$0" && exec "$@"'
        enter = ["ip", "netns", "exec", self.names[host], "unshare", "--uts"]
        return [*enter, "sh", "-c", named, self.names[host], *argv]

    def crossed(self) -> int:
        """The bytes that have crossed the link so far, both ways."""
        table = _ip("netns", "exec", self.names[0], "cat", "/proc/net/dev")
        lines = [line for line in table.splitlines() if line.strip().startswith(f"{LINK}:")]
        if not lines:
            raise NamespaceError("the link between the two hosts is gone")
        words = lines[0].partition(":")[2].split()
        return int(words[0]) + int(words[8])


def make(delay: str | None, rate: str | None, relay_program: Path) -> Pair:
    """Makes the two hosts; with `delay` (each way) or `rate`, their link is a slow one."""
    if os.geteuid() != 0:
        raise NamespaceError("network namespaces need root")
    microseconds = amount(delay, ("us", "ms", "s")) if delay else 0.0
    bits = amount(rate, ("kbit", "mbit", "gbit")) if rate else 0.0
    pair = Pair((f"carole-{os.getpid()}-0", f"carole-{os.getpid()}-1"))
    try:
        for name in pair.names:
            _ip("netns", "add", name)
        _join_by_veth(pair)
        if delay or rate:
            asked = filter(None, (delay and f"delay {delay} each way", rate and f"rate {rate}"))
            pair.link = ", ".join(asked)
            if _shape(pair, delay, rate):
                pair.link += " (tc netem)"
            else:
                pair.link += " (delay_link, this kernel having no netem)"
                _ip("-n", pair.names[0], "link", "delete", LINK)
                _join_by_relay(pair, relay_program, microseconds, bits)
        for host, name in enumerate(pair.names):
            _ip("-n", name, "address", "add", f"{pair.address(host)}/24", "dev", LINK)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", LINK, "up")
    except BaseException:
        remove(pair)
        raise
    return pair


def _join_by_veth(pair: Pair) -> None:
    first, second = pair.names
    _ip("link", "add", LINK, "netns", first, "type", "veth", "peer", LINK, "netns", second)


def _shape(pair: Pair, delay: str | None, rate: str | None) -> bool:
    """Sets netem on both ends; false where the kernel does not know it."""
    netem = ["tc", "qdisc", "add", "dev", LINK, "root", "netem", "limit", "100000"]
    netem += ["delay", delay] if delay else []
    netem += ["rate", rate] if rate else []
    for name in pair.names:
        try:
            _ip("netns", "exec", name, *netem)
        except NamespaceError as error:
            if "qdisc kind is unknown" in str(error):
                return False
            raise
    return True


def _join_by_relay(pair: Pair, program: Path, microseconds: float, bits: float) -> None:
    words = [str(program), LINK, *pair.names, f"{microseconds:.0f}", f"{bits:.0f}"]
    pipe = subprocess.PIPE
    pair.relay = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True)
    assert pair.relay.stdout and pair.relay.stderr
    if pair.relay.stdout.readline().strip() != "ready":
        raise NamespaceError(f"delay_link: {pair.relay.stderr.read().strip()}")
    for name in pair.names:
        _ip("-n", name, "link", "set", LINK, "mtu", "9000", "txqueuelen", "1000")


def remove(pair: Pair) -> None:
    """Removes what `make` made; the link goes with the namespaces."""
    if pair.relay:
        pair.relay.kill()
        pair.relay.communicate()
    for name in pair.names:
        if Path("/run/netns", name).exists():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
