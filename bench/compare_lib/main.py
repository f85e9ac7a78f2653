"""Puts the parts together: options, installs, rounds, table, files."""

from __future__ import annotations

import json
import os
import platform
import secrets
import signal
import sys
import tempfile
import time
from pathlib import Path

from . import cache, carole, machine, namespaces, plot, programs, report, rounds, summary
from .gloo import Gloo
from .kungfu import KungFu
from .limits import Limits
from .mpi import IntelMpi, MpichDebian, MpichPypi, OpenMpiDebian, OpenMpiPypi
from .options import LARGEST_PART, Options, parse
from .peer import Job, Peer
from .process import run

BENCH = Path(__file__).resolve().parent.parent
PEERS: tuple[Peer, ...] = (
    OpenMpiDebian(),
    OpenMpiPypi(),
    MpichDebian(),
    MpichPypi(),
    IntelMpi(),
    Gloo(),
    KungFu(),
)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments, tuple(peer.name for peer in PEERS), BENCH / "results")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return compare(options)
    except (cache.PeerError, namespaces.NamespaceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 130


def compare(options: Options) -> int:
    versions, missing = install([peer for peer in PEERS if peer.name in options.peers])
    if options.install_only:
        for name, version in versions.items():
            print(f"{name} {version}")
        for note in missing:
            print(f"! {note}")
        return 0
    with tempfile.TemporaryDirectory(prefix="carole-compare-") as scratch:
        token_file = Path(scratch, "token")
        token_file.touch(mode=0o600)
        token_file.write_text(secrets.token_hex(32))
        caroles = []
        if not options.without_carole:
            caroles = carole.both(carole.find(options.carole), token_file)
            versions = {one.name: one.version() for one in caroles} | versions
        limits = Limits(programs.built("limits"))
        if not alone(options.force):
            return 1
        peers = [peer for peer in PEERS if peer.name in versions]
        pair = None
        if options.netns:
            pair = namespaces.make(options.delay, options.rate, programs.built("delay_link"))
        try:
            run_ = rounds.Run(
                limits,
                pair,
                options.transport,
                options.seconds,
                separate=options.separate,
                vary=options.vary,
                notes=missing,
            )
            if options.separate:
                in_place = [peer.name for peer in peers if not peer.takes_separate_buffers]
                told = ", ".join(["carole", *in_place])
                run_.note(f"all_reduce: the MPIs had a buffer to read and one to write; not {told}")
            if options.vary:
                absent = ", ".join(peer.name for peer in peers if not peer.varies) or "nobody"
                run_.note(f"new tensors for every sample; left out: {absent}")
            whole = go_round(options, caroles, peers, run_)
        finally:
            if pair:
                namespaces.remove(pair)
    shown = show(options, run_, versions)
    return shown if whole else 130


def go_round(
    options: Options, caroles: list[carole.Carole], peers: list[Peer], run_: rounds.Run
) -> bool:
    """All rounds of all cases; false if somebody ended them early, which keeps what there is."""
    number, case = 0, None
    try:
        for number in range(1, options.rounds + 1):
            for case in cases(options):
                cache.say(f"round {number} of {options.rounds}: {case}")
                rounds.measure(case, caroles, peers, number, run_)
    except (KeyboardInterrupt, SystemExit):
        run_.note(f"ended early, in round {number} of {options.rounds}, at {case}")
        return False
    return True


def install(peers: list[Peer]) -> tuple[dict[str, str], list[str]]:
    """Installs and tries each peer; versions of those that work, reasons for the others."""
    versions, missing = {}, []
    with cache.locked() as folder:
        cache.say(f"peers in {folder}:")
        for peer in peers:
            try:
                version = peer.ensure()
                outcome = run(peer.commands(Job("all_reduce", 2, 0.01, [4])), timeout=90)
                if outcome.failure or '"check": "ok"' not in outcome.stdout:
                    why = outcome.failure or "no checked result"
                    raise cache.PeerError(f"{why}: {cache.last_words(outcome.stderr)}")
            except cache.PeerError as error:
                missing.append(f"{peer.name} is not compared: {error}")
                cache.say(f"  {missing[-1]}")
            else:
                versions[peer.name] = version
                cache.say(f"  {peer.name} {version}: ready")
    return versions, missing


def alone(force: bool) -> bool:
    """Whether the machine is quiet enough to measure on; says so when it is not."""
    load = machine.look(1.0)
    if load.busy:
        cache.say(f"{'warning' if force else 'error'}: the machine is busy: {load}")
        if not force:
            cache.say("hint: wait until it is idle, or measure anyway with --force")
    return force or not load.busy


def cases(options: Options) -> list[rounds.Case]:
    found = []
    for ranks in options.ranks:
        for op in options.ops:
            limit = LARGEST_PART if op == "all_gather" else max(options.sizes)
            sizes = tuple(size for size in options.sizes if size <= limit)
            found.append(rounds.Case(op, ranks, () if op == "barrier" else sizes))
        for name in options.lists:
            tensors = json.loads((BENCH / "lists" / f"{name}.json").read_text())["tensors"]
            counts = tuple(tensor["elements"] for tensor in tensors)
            found.append(rounds.Case("all_reduce", ranks, list_name=name, counts=counts))
    return found


def show(options: Options, run_: rounds.Run, versions: dict[str, str]) -> int:
    """Prints the table or the JSON, and writes both files."""
    rows = summary.rows(run_.samples, run_.copies, across_hosts=run_.pair is not None)
    if not rows:
        raise cache.PeerError("nothing was measured")
    seen = {name for row in rows for name in row.figures}
    labels = {peer.name: peer.label for peer in PEERS}
    labels |= {"carole": "carole", "carole-shared": "shared"}
    columns = {n: (labels[n], v) for n, v in versions.items() if n in seen}
    document = {
        "taken": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": {"cores": machine.cores(), "kernel": platform.release(), "cpu": cpu_name()},
        "link": run_.pair.link if run_.pair else None,
        "options": {
            "rounds": options.rounds,
            "seconds": options.seconds,
            "transport": options.transport,
            "separate_buffers": options.separate,
            "vary": options.vary,
        },
        "versions": versions,
        "rows": [row.as_json() for row in rows],
        "notes": run_.notes,
        "flags": run_.flags,
        "copies": run_.copies,
        "samples": run_.samples,
    }
    options.results.mkdir(parents=True, exist_ok=True)
    base = options.results / time.strftime("compare-%Y%m%d-%H%M%S")
    base.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    titles = {name: f"{name} {versions[name]}" for name in columns}
    base.with_suffix(".svg").write_text(plot.svg(rows, titles))

    if options.output == "json":
        print(json.dumps(document))
    else:
        print(f"{cpu_name()}, {machine.cores()} cores", end="")
        print(f"; two hosts, link: {run_.pair.link}" if run_.pair else "")
        print(report.limits_text(run_.flags, run_.copies))
        print(report.table(rows, columns, run_.notes), end="")
    cache.say(f"written: {os.path.relpath(base)}.json and .svg")
    wrong = any(sample.get("wrong") for sample in run_.samples)
    return 1 if wrong else 0


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
