"""The command line of bench/compare, and what it means."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

OPERATIONS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier")
LISTS = ("resnet50", "bert")
SIZE = re.compile(r"(\d+)\s*(|b|kib|mib|gib|k|m|g)$", re.IGNORECASE)
SHIFT = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30}

ALL_SIZES = "4,1KiB,64KiB,1MiB,16MiB,64MiB,256MiB"
QUICK_SIZES = "4,64KiB,1MiB,16MiB"
LINK_SIZES = "1KiB,64KiB,1MiB,16MiB,64MiB"
# Every rank of an all_gather holds everybody's part; larger parts measure paging.
LARGEST_PART = 64 << 20


@dataclass(frozen=True)
class Options:
    """A resolved command line."""

    ops: list[str]
    lists: list[str]
    ranks: list[int]
    sizes: list[int]
    peers: list[str]
    rounds: int
    seconds: float
    separate: bool
    vary: bool
    transport: str
    netns: bool
    delay: str | None
    rate: str | None
    carole: str | None
    without_carole: bool
    install_only: bool
    output: str
    results: Path
    force: bool


def _size(text: str) -> int:
    match = SIZE.match(text.strip())
    if not match:
        raise argparse.ArgumentTypeError(f"`{text}` is no size; try 4, 64KiB or 16MiB")
    size = int(match[1]) << SHIFT[match[2].lower()[:1]]
    if size < 4 or size % 4:
        raise argparse.ArgumentTypeError(f"`{text}` is no whole number of float32 elements")
    return size


def _sizes(text: str) -> list[int]:
    return sorted({_size(word) for word in text.split(",")})


def _ranks(text: str) -> list[int]:
    try:
        numbers = sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is no list of numbers like 2,4,8") from None
    if numbers[0] < 2:
        raise argparse.ArgumentTypeError("a collective needs 2 ranks at the least")
    return numbers


def _choices(known: tuple[str, ...]):
    def parse(text: str) -> list[str]:
        words = [word.strip().replace("-", "_") for word in text.split(",") if word.strip()]
        by_name = {name.replace("-", "_"): name for name in known}
        for word in words:
            if word not in by_name:
                listed = ", ".join(known)
                raise argparse.ArgumentTypeError(f"`{word}` is unknown; choose from {listed}")
        return [by_name[word] for word in words]

    return parse


def parse(arguments: list[str] | None, peers: tuple[str, ...], results: Path) -> Options:
    """Reads the command line; ends the program on a usage error, with exit code 2."""
    parser = argparse.ArgumentParser(
        prog="bench/compare",
        description="Carole beside the MPIs, gloo and KungFu, interleaved in one run.",
        epilog="What is measured, and how, is in bench/README.md.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="all_reduce, 2 and 4 ranks, few sizes, 2 rounds")
    add("--rounds", type=int, help="rounds to take the median of (default 5)")
    add("--seconds", type=float, help="time for each size in each run (default 0.3)")
    add("--ops", type=_choices(OPERATIONS), help="operations, comma-separated")
    add("--ranks", type=_ranks, help="numbers of ranks (default 2,4,8)")
    add("--sizes", type=_sizes, help=f"sizes of a rank's tensor (default {ALL_SIZES})")
    add("--lists", type=_choices(LISTS), help=f"tensor lists: {', '.join(LISTS)}; '' for none")
    add("--peers", type=_choices(peers), help=f"peers: {', '.join(peers)}; '' for none")
    add(
        "--vary",
        action="store_true",
        help="new tensors at odd places every time, and random names on two threads for Carole",
    )
    add("--separate", action="store_true", help="the MPIs' all_reduce with two buffers a rank")
    add("--transport", choices=("auto", "shm", "tcp"), help="tcp: TCP on one host, peers too")
    add("--netns", action="store_true", help="two hosts in network namespaces, over TCP (root)")
    add("--delay", help="with --netns: delay of the link each way, such as 1ms")
    add("--rate", help="with --netns: rate of the link, such as 1gbit")
    add("--carole", help="the carole to measure (default target/release/carole, built if absent)")
    add("--without-carole", action="store_true", help="measure the peers alone")
    add("--install-only", action="store_true", help="install the peers, measure nothing")
    add("--output", choices=("table", "json"), default="table", help="what to print")
    add("--results", type=Path, default=results, help="folder for the JSON and the SVG")
    add("--force", action="store_true", help="measure although the machine is busy")
    given = parser.parse_args(arguments)

    if (given.delay or given.rate) and not given.netns:
        parser.error("--delay and --rate belong to --netns")
    if given.netns and given.ranks not in (None, [2]):
        parser.error("--netns has two hosts with one rank each")
    if given.rounds is not None and given.rounds < 1:
        parser.error("--rounds must be 1 at the least")
    small = given.quick or given.netns
    sizes = LINK_SIZES if given.netns else QUICK_SIZES if given.quick else ALL_SIZES
    only_ops = given.ops is not None or given.netns or given.quick
    return Options(
        ops=given.ops if given.ops is not None else list(OPERATIONS[:1] if small else OPERATIONS),
        lists=given.lists if given.lists is not None else [] if only_ops else list(LISTS),
        ranks=given.ranks or ([2] if given.netns else [2, 4] if given.quick else [2, 4, 8]),
        sizes=given.sizes or _sizes(sizes),
        peers=given.peers if given.peers is not None else list(peers),
        rounds=given.rounds or (2 if given.quick else 5),
        seconds=given.seconds or (0.2 if given.quick else 0.3),
        separate=given.separate,
        vary=given.vary,
        transport=given.transport or ("tcp" if given.netns else "auto"),
        netns=given.netns,
        delay=given.delay,
        rate=given.rate,
        carole=given.carole,
        without_carole=given.without_carole,
        install_only=given.install_only,
        output=given.output,
        results=given.results,
        force=given.force,
    )
