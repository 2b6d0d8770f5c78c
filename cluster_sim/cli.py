"""The command line: commands, and errors as exit codes. What a run prints goes through report/console.py.

0 done, 1 a check failed, 2 bad input, 130 interrupted (Ctrl-C or SIGTERM). Slow imports are made by the
command that needs them, so that --help answers at once.
"""

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from cluster_sim import __version__
from cluster_sim.errors import UserError
from cluster_sim.usage import HELP

if TYPE_CHECKING:
    from cluster_sim.config import Config

DONE, CHECK_FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
HELP_OPTIONS = {"-h", "--help"}
OPTIONS = {"--version", "--cfg", "--config", "--debug"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (default: those of this process); returns the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(given)
        sys.stdout.flush()
        return code
    except UserError as error:
        return _refused(error, given)
    except ModuleNotFoundError as missing:
        rule, remedy = "its packages must be installed", "Run make demo, then source .venv/bin/activate."
        return _refused(UserError(rule, f"no module {missing.name}", sys.executable, remedy), given)
    except KeyboardInterrupt:
        print("cluster_sim: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has gone, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _refused(error: UserError, given: list[str]) -> int:
    if "--debug" in given:
        traceback.print_exc()
    print(f"cluster_sim: error: {error}", file=sys.stderr)
    return BAD_INPUT


def _run(given: list[str]) -> int:
    if HELP_OPTIONS & set(given):
        print(HELP, end="")
        return DONE
    if given and given[0] in WITH_OPTIONS:
        return WITH_OPTIONS[given[0]](given[1:])
    options = _parse(given)
    words: list[str] = options.words
    if options.version:
        print(f"cluster_sim {__version__}")
    elif options.cfg is not None:
        _print_config(options.cfg, words, options.config)
    elif words and _is_command(words[0]):
        return _command(words[0])(words[1:])
    else:
        return _simulate_or_search(words, options.config)
    return DONE


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        remedy = "See python -m cluster_sim --help."
        raise UserError("options must be those of --help", message, "command line", remedy)


def _parse(given: list[str]) -> argparse.Namespace:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--version", action="store_true")
    parser.add_argument("-c", "--cfg")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--debug", action="store_true")
    if flags := {word.partition("=")[0] for word in given if word.startswith("--")} - OPTIONS:
        from cluster_sim.schema import refuse_flags_of_vllm

        refuse_flags_of_vllm(flags)
    return parser.parse_intermixed_args(given)


def _is_command(word: str) -> bool:
    return "=" not in word and not word.startswith(("+", "~"))


def _command(word: str) -> Callable[[list[str]], int]:
    commands = {**WITH_OPTIONS, "replay-vllm": _replay, "list": _list}
    if word not in commands:
        from cluster_sim.schema import closest

        rule = "the first word must be a command or an override KEY=VALUE"
        raise UserError(rule, repr(word), "command line", closest(word, commands, "Commands"))
    return commands[word]


def _simulate_or_search(overrides: list[str], file: Path | None) -> int:
    config = _composed(overrides, file)
    if config.study is not None:
        from cluster_sim.study.command import run_study

        return run_study(config, overrides)
    if config.sweep is None:
        return _simulate(config)
    from cluster_sim.sweep import run_sweep

    return run_sweep(config, overrides)


def _composed(overrides: list[str], file: Path | None) -> "Config":
    from cluster_sim.compose import compose, compose_file

    return compose(overrides) if file is None else compose_file(file, overrides)


def _simulate(config: "Config") -> int:
    from cluster_sim.report.at_end import leave_page
    from cluster_sim.report.console import announce_compilation, say, show
    from cluster_sim.report.progress import progress
    from cluster_sim.report.terminal import header_of, run_view
    from cluster_sim.single import run_single
    from cluster_sim.slo import own_limits

    announce_compilation("loop")
    with progress("simulation", "requests", sys.stderr) as report:
        done = run_single(config, report)
    show(run_view(done.summary, header_of(done.run), config.slo, dict(own_limits(config))))
    say(f"results in {done.directory}")
    leave_page(config.output, done.directory)
    return DONE


def _print_config(what: str, overrides: list[str], file: Path | None) -> None:
    if what != "job":
        rule = "--cfg prints the configuration of the job"
        raise UserError(rule, repr(what), "command line", "Write --cfg job.")
    from cluster_sim.compose import to_yaml

    print(to_yaml(_composed(overrides, file)), end="")


def _replay(paths: list[str]) -> int:
    if not paths:
        raise UserError(
            "replay-vllm needs a PATH", "none", "command line", "Name a recording or a directory of them."
        )
    from cluster_sim import replay
    from cluster_sim.report.console import announce_compilation

    files = replay.recordings([Path(path) for path in paths])
    announce_compilation("by_hand")
    different = 0
    for file in files:
        difference = replay.first_difference(file)
        if difference is not None:
            different += 1
            print(f"{file.name}: {difference}")
    print(f"{len(files) - different} identical, {different} differ")
    return CHECK_FAILED if different else DONE


def _validate(given: list[str]) -> int:
    parser = _Parser(prog="validate", add_help=False, allow_abbrev=False)
    parser.add_argument("directory", metavar="DIR", nargs="?")
    parser.add_argument("--published", action="store_true")
    parser.add_argument("--bundle")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--json")
    parser.add_argument("--debug", action="store_true")
    options = parser.parse_args(given)
    if options.published:
        return _validate_published(options)
    if options.directory is None:
        rule, remedy = "validate needs a DIR or --published", "Name a measured run, or write --published."
        raise UserError(rule, "neither", "command line", remedy)
    from cluster_sim import validate
    from cluster_sim.report.console import announce_compilation, say, show
    from cluster_sim.report.validation import validation_view

    announce_compilation("loop")
    done = validate.validate(Path(options.directory), options.bundle, options.overrides)
    show(validation_view(done))
    if options.json is not None:
        validate.write(done, Path(options.json))
        say(f"errors in {options.json}")
    return DONE


def _validate_published(options: argparse.Namespace) -> int:
    for name in ("directory", "bundle", "overrides"):
        if getattr(options, name):
            rule, remedy = "--published has setups of its own", "Leave it out; --json FILE goes with it."
            raise UserError(rule, getattr(options, name), "command line", remedy)
    from cluster_sim.published import comparison
    from cluster_sim.report.console import announce_compilation, say, show
    from cluster_sim.report.progress import progress
    from cluster_sim.report.published import published_view

    announce_compilation("loop")
    with progress("published speed-ups", "rows", sys.stderr) as report:
        done = comparison.compare(report)
    show(published_view(done))
    if options.json is not None:
        comparison.write(done, Path(options.json))
        say(f"speed-ups in {options.json}")
    return DONE


def _import_bundle(given: list[str]) -> int:
    parser = _Parser(prog="import-bundle", add_help=False, allow_abbrev=False)
    parser.add_argument("path", metavar="PATH")
    for name in ("model", "hardware", "source", "licence"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--tensor-parallel-size", type=int)
    parser.add_argument("--debug", action="store_true")
    options = parser.parse_args(given)
    from cluster_sim.bundle.importing import Options, import_bundle

    asked = {name: getattr(options, name) for name in Options.__dataclass_fields__}
    done = import_bundle(Path(options.path), Options(**asked))
    print("\n".join([*done.lines, done.name]))
    return DONE


def _calibrate(given: list[str]) -> int:
    from cluster_sim.calibrate.command import run
    from cluster_sim.report.calibration import calibration_view
    from cluster_sim.report.console import show

    found, overrides = run(_Parser(prog="calibrate", add_help=False, allow_abbrev=False), given)
    show(calibration_view(found))
    print(f"to simulate with it: python -m cluster_sim {' '.join(overrides)}")
    return DONE


def _trace(given: list[str]) -> int:
    parser = _Parser(prog="trace", add_help=False, allow_abbrev=False)
    parser.add_argument("action", choices=("describe",), metavar="describe")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--json")
    parser.add_argument("--debug", action="store_true")
    options = parser.parse_args(given)
    from cluster_sim.files import write_json
    from cluster_sim.report.console import say, show
    from cluster_sim.report.trace import trace_view
    from cluster_sim.trace_facts import describe

    facts = describe(Path(options.file).expanduser())
    show(trace_view(facts))
    if options.json is not None:
        write_json(Path(options.json), facts)
        say(f"facts in {options.json}")
    return DONE


def _list(words: list[str]) -> int:
    from cluster_sim.listing import names

    print("\n".join(names(words)))
    return DONE


def _report(given: list[str]) -> int:
    from cluster_sim.report.command import report

    print(report(_Parser(prog="report", add_help=False, allow_abbrev=False), given))
    return DONE


def _export(given: list[str]) -> int:
    from cluster_sim.export.command import export

    print(export(_Parser(prog="export", add_help=False, allow_abbrev=False), given))
    return DONE


WITH_OPTIONS = {
    "validate": _validate,
    "calibrate": _calibrate,
    "import-bundle": _import_bundle,
    "trace": _trace,
    "report": _report,
    "export": _export,
}


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt
