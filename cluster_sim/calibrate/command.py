"""`calibrate`: its command line."""

import argparse
from pathlib import Path

from cluster_sim.calibrate.calibration import Asked, Calibration, calibrate
from cluster_sim.calibrate.output import check_name, write
from cluster_sim.errors import UserError
from cluster_sim.files import default_dir
from cluster_sim.report.console import announce_compilation, say

SCRAPES = ("--metrics-before", "--metrics-after")


def run(parser: argparse.ArgumentParser, given: list[str]) -> tuple[Calibration, list[str]]:
    """Do what the options `given` say: what was found, and the overrides that simulate with it.

    Raises:
        UserError: an option, a file or the configuration is wrong, or nothing can be written.
    """
    for option in (*SCRAPES, "--bundle", "--output"):
        parser.add_argument(option)
    parser.add_argument("words", metavar="FILE", nargs="*")
    parser.add_argument("--fit", type=_list)
    parser.add_argument("--fit-to", type=_list, default=("tpot",))
    parser.add_argument("--name", default="calibrated")
    parser.add_argument("--debug", action="store_true")
    options = parser.parse_intermixed_args(given)
    check_name(options.name)
    files = [word for word in options.words if "=" not in word or Path(word).is_file()]
    asked = Asked(
        files=tuple(map(Path, files)),
        scrapes=_scrapes(options.metrics_before, options.metrics_after),
        bundle=options.bundle,
        names=options.fit,
        metrics=options.fit_to,
        overrides=tuple(word for word in options.words if word not in files),
        name=options.name,
    )
    if not asked.files and asked.scrapes is None:
        rule, remedy = "calibrate needs measurements", "Name FILEs, or two scrapes with --metrics-before A .."
        raise UserError(rule, "none", "command line", remedy)
    announce_compilation("loop")
    found = calibrate(asked, lambda step, change: say(f"step {step} of the fit changed {100 * change:.1f}%"))
    directory = Path(options.output) if options.output else default_dir("calibrate")
    return found, write(found, asked.name, directory)


def _scrapes(before: str | None, after: str | None) -> tuple[Path, Path] | None:
    if before is None and after is None:
        return None
    if before is None or after is None:
        rule = f"{' and '.join(SCRAPES)} go together: counters grow from one to the other"
        raise UserError(rule, f"{SCRAPES[after is not None]} alone", "command line", "Give both.")
    return Path(before), Path(after)


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))
