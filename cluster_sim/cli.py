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

if TYPE_CHECKING:
    from cluster_sim.config import Config

DONE, CHECK_FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

HELP = """\
usage: python -m cluster_sim [OPTION ...] [OVERRIDE ...]
       python -m cluster_sim COMMAND [ARGUMENT ...]

Does speculative decoding pay for your traffic, with which draft length, on how many instances?

commands:
  (none)                     simulate one cluster under one load, or run the sweep that an override names
  replay-vllm PATH...        replay recorded runs of vLLM's scheduler; exit code 1 when one differs
  list WHAT                  names of: models, hardware, bundles, routers, proposers, policies, sweeps

overrides (Hydra's grammar):
  KEY=VALUE                  a value:          workload.request_rate=20  cluster.instances=4
  GROUP=OPTION               a file of conf/:  speculation=none  router=round_robin  executor=ray
  +sweep=NAME                a sweep:          +sweep=spec_grid 'sweep.axes.workload.request_rate=[4,16,64]'
  hydra.searchpath=[DIR]     more options:     DIR/model/mine.yaml, chosen with model=mine

options:
  -c, --cfg job              print the configuration that would run, and do nothing
  --debug                    show where an error comes from
  --version                  print the version
  -h, --help                 print this

examples:
  python -m cluster_sim
  python -m cluster_sim workload.trace=requests.csv cluster.instances=4 output.dir=results
  python -m cluster_sim +sweep=spec_grid
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (default: those of this process); returns the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(given)
        sys.stdout.flush()
        return code
    except UserError as error:
        if "--debug" in given:
            traceback.print_exc()
        print(f"cluster_sim: error: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("cluster_sim: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of stdout has gone, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _run(given: list[str]) -> int:
    options = _parse(given)
    words: list[str] = options.words
    if options.help:
        print(HELP, end="")
    elif options.version:
        print(f"cluster_sim {__version__}")
    elif options.cfg is not None:
        _print_config(options.cfg, words)
    elif words and _is_command(words[0]):
        return _command(words[0])(words[1:])
    else:
        return _simulate_or_sweep(words)
    return DONE


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(
            "options must be those of --help", message, "command line", "See python -m cluster_sim --help."
        )


def _parse(given: list[str]) -> argparse.Namespace:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("words", nargs="*")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="store_true")
    parser.add_argument("-c", "--cfg")
    parser.add_argument("--debug", action="store_true")
    return parser.parse_intermixed_args(given)


def _is_command(word: str) -> bool:
    return "=" not in word and not word.startswith(("+", "~"))


def _command(word: str) -> Callable[[list[str]], int]:
    commands = {"replay-vllm": _replay, "list": _list}
    if word not in commands:
        from cluster_sim.schema import closest

        rule = "the first word must be a command or an override KEY=VALUE"
        raise UserError(rule, repr(word), "command line", closest(word, commands, "Commands"))
    return commands[word]


def _simulate_or_sweep(overrides: list[str]) -> int:
    from cluster_sim.compose import compose

    config = compose(overrides)
    if config.sweep is None:
        return _simulate(config)
    from cluster_sim.sweep import run_sweep

    return run_sweep(config, overrides)


def _simulate(config: "Config") -> int:
    from cluster_sim.report.console import announce_compilation, say, show
    from cluster_sim.report.progress import progress
    from cluster_sim.report.terminal import header_of, run_view
    from cluster_sim.single import run_single

    announce_compilation("loop")
    with progress("simulation", "requests", sys.stderr) as report:
        done = run_single(config, report)
    show(run_view(done.summary, header_of(done.run), config.slo))
    say(f"results in {done.directory}")
    return DONE


def _print_config(what: str, overrides: list[str]) -> None:
    if what != "job":
        rule = "--cfg prints the configuration of the job"
        raise UserError(rule, repr(what), "command line", "Write --cfg job.")
    from cluster_sim.compose import compose, to_yaml

    print(to_yaml(compose(overrides)), end="")


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


def _list(words: list[str]) -> int:
    from cluster_sim.listing import names

    print("\n".join(names(words)))
    return DONE


def _interrupt(_signal: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt
