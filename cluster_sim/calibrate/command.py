"""`calibrate`: its command line."""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from cluster_sim.calibrate.calibration import Asked, Calibration, calibrate
from cluster_sim.calibrate.output import check_name, write
from cluster_sim.calibrate.server_times import SECONDS
from cluster_sim.errors import UserError
from cluster_sim.files import default_dir
from cluster_sim.report.console import announce_compilation, say

SCRAPES = ("--metrics-before", "--metrics-after")
LONGEST_S = 1e9


def run(parser: argparse.ArgumentParser, given: list[str]) -> tuple[Calibration, list[str]]:
    """Do what the options `given` say: what was found, and the overrides that simulate with it.

    Raises:
        UserError: an option, a file or the configuration is wrong, or nothing can be written.
    """
    for option in SCRAPES:
        parser.add_argument(option, action="append", dest="scrapes", type=partial(_scrape, option))
    for option in ("--bundle", "--output"):
        parser.add_argument(option)
    parser.add_argument(SECONDS, type=_seconds, default=())
    parser.add_argument("words", metavar="FILE", nargs="*")
    parser.add_argument("--fit", type=_list)
    parser.add_argument("--fit-to", type=_list)
    parser.add_argument("--name", default="calibrated")
    parser.add_argument("--debug", action="store_true")
    options = parser.parse_intermixed_args(given)
    check_name(options.name)
    files = [word for word in options.words if "=" not in word or Path(word).is_file()]
    asked = Asked(
        files=tuple(map(Path, files)),
        scrapes=_series(options.scrapes or []),
        seconds=getattr(options, SECONDS.removeprefix("--").replace("-", "_")),
        bundle=options.bundle,
        names=options.fit,
        metrics=options.fit_to,
        overrides=tuple(word for word in options.words if word not in files),
        name=options.name,
    )
    if not asked.files and not asked.scrapes:
        rule, remedy = "calibrate needs measurements", "Name FILEs, or two scrapes with --metrics-before A .."
        raise UserError(rule, "none", "command line", remedy)
    announce_compilation("loop")
    found = calibrate(asked, lambda step, change: say(f"step {step} of the fit changed {100 * change:.1f}%"))
    directory = Path(options.output) if options.output else default_dir("calibrate")
    return found, write(found, asked.name, directory)


def _scrape(option: str, path: str) -> tuple[str, Path]:
    return option, Path(path)


def _series(scrapes: Sequence[tuple[str, Path]]) -> tuple[tuple[Path, ...], ...]:
    """The scrapes of each run of a server: one before, and those after it."""
    found: list[list[Path]] = []
    for option, path in scrapes:
        if option == SCRAPES[0]:
            found.append([path])
        elif found:
            found[-1].append(path)
        else:
            _refuse_alone(option)
    if any(len(each) == 1 for each in found):
        _refuse_alone(SCRAPES[0])
    return tuple(map(tuple, found))


def _refuse_alone(option: str) -> NoReturn:
    rule = f"{' and '.join(SCRAPES)} go together: counters grow from one to the other"
    raise UserError(rule, f"{option} alone", "command line", "Give both.")


def _seconds(text: str) -> tuple[float, ...]:
    try:
        values = tuple(map(float, text.split(",")))
    except ValueError:
        values = ()
    if not values or not all(0 < value < LONGEST_S for value in values):
        rule = f"{SECONDS} is a number of seconds above 0, or one for each pair of scrapes: 600,600"
        raise UserError(rule, repr(text), "command line", "Correct it.")
    return values


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))
