"""The command `export`: which format, of which trial, into which file."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cluster_sim.errors import UserError
from cluster_sim.export import bench
from cluster_sim.export.bench_tree import drawn_with, write_tree
from cluster_sim.export.prometheus import prometheus_text
from cluster_sim.export.source import is_sweep, read_source, requests_of
from cluster_sim.export.table import requests_csv, requests_jsonl
from cluster_sim.export.timed_trace import timed_trace
from cluster_sim.files import write_json, write_text
from cluster_sim.report.console import say
from cluster_sim.report.stored import Stored
from cluster_sim.trials import Row

OUTPUT = "--output"
OF_REQUESTS: Mapping[str, tuple[str, Callable[[Stored], str]]] = {  # format -> file name, what makes its text
    "csv": ("requests.csv", requests_csv),
    "jsonl": ("requests.jsonl", requests_jsonl),
    "prometheus": ("metrics.prom", prometheus_text),
    "timed-trace": ("timed-trace.jsonl", timed_trace),
}
DATASET = "--dataset-name timed_trace --dataset-path"
LEFT_OUT = f"left out, since no result has it: {', '.join(bench.LEFT_OUT)}"
FORMATS = (bench.FORMAT, *OF_REQUESTS)


def export(parser: argparse.ArgumentParser, given: Sequence[str]) -> str:
    """Do what `given` asks for; the path of what was written.

    Raises:
        UserError: the arguments do not fit together, there are no such results, or nothing can be written.
    """
    parser.add_argument("directory", metavar="DIR", nargs="?")
    parser.add_argument("--format", metavar="FORMAT")
    parser.add_argument("--output", metavar="PATH")
    parser.add_argument("--trial", type=int)
    parser.add_argument("--save-detailed", action="store_true")
    parser.add_argument("--debug", action="store_true")
    options = parser.parse_args(given)
    _check(options)
    stored = read_source(Path(options.directory))
    if options.format == bench.FORMAT:
        return str(_bench(stored, options))
    return str(_of_requests(stored, options))


def _check(options: argparse.Namespace) -> None:
    if options.directory is None:
        remedy = "Name the output.dir of a simulation or a sweep."
        raise UserError("export needs a DIR", "none", "command line", remedy)
    if options.format not in FORMATS:
        got = "none" if options.format is None else repr(options.format)
        raise UserError(f"--format is one of {', '.join(FORMATS)}", got, "command line", "Choose one.")
    if options.save_detailed and options.format != bench.FORMAT:
        rule = f"--save-detailed goes with --format {bench.FORMAT}"
        raise UserError(rule, f"--format {options.format}", "command line", "Leave it out.")


def _of_requests(stored: Stored, options: argparse.Namespace) -> Path:
    name, text = OF_REQUESTS[options.format]
    _refuse_sweep(stored, f"--format {options.format}")
    _refuse_trial(stored, options)
    path = Path(options.output or stored.directory / name)
    write_text(path, text(stored), OUTPUT)
    if options.format == "timed-trace":
        count = int(stored.rows[0]["requests.offered"])
        say(f"to replay it: vllm bench serve --backend vllm {DATASET} {path} --num-prompts {count}")
    return path


def _bench(stored: Stored, options: argparse.Namespace) -> Path:
    if is_sweep(stored) and options.trial is None:
        _refuse_detailed(stored, options)
        path = Path(options.output or stored.directory / bench.FORMAT)
        write_tree(stored, path)
        say(LEFT_OUT)
        for line in drawn_with(stored, path):
            say(line)
        return path
    if is_sweep(stored):
        _refuse_detailed(stored, options)
        result = bench.bench_result(stored, _chosen(stored, options.trial))
        name = f"{bench.FORMAT}-{options.trial:05d}.json"
    else:
        _refuse_trial(stored, options)
        requests = requests_of(stored, bench.REQUEST_COLUMNS)
        result = bench.bench_result(stored, stored.rows[0], requests, options.save_detailed)
        name = f"{bench.FORMAT}.json"
    path = Path(options.output or stored.directory / name)
    write_json(path, result, OUTPUT)
    say(LEFT_OUT)
    return path


def _chosen(stored: Stored, trial: int) -> Row:
    for row in stored.rows:
        if row["trial"] == trial:
            return row
    known = [int(row["trial"]) for row in stored.rows]
    rule = f"--trial is one of the {len(known)} trials that have ended, {min(known)} to {max(known)}"
    raise UserError(rule, trial, str(stored.directory), "Their arms and points are in trials.parquet.")


def _refuse_sweep(stored: Stored, what: str) -> None:
    if is_sweep(stored):
        rule, got = f"{what} needs the requests of one simulation", "a sweep, which keeps none"
        remedy = f"Simulate one of its arms by itself, or write --format {bench.FORMAT}."
        raise UserError(rule, got, str(stored.directory), remedy)


def _refuse_detailed(stored: Stored, options: argparse.Namespace) -> None:
    if options.save_detailed:
        _refuse_sweep(stored, "--save-detailed")


def _refuse_trial(stored: Stored, options: argparse.Namespace) -> None:
    if options.trial is not None:
        rule = "--trial chooses one of a sweep's trials"
        raise UserError(rule, "one simulation", str(stored.directory), "Leave --trial out.")
