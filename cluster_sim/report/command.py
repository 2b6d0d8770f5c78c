"""The command `report`: the page, its Markdown, or two results side by side, from what is stored alone."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from cluster_sim.errors import UserError
from cluster_sim.report.markdown import write_markdown
from cluster_sim.report.page import write_page
from cluster_sim.report.pair_page import write_pair
from cluster_sim.report.side_by_side import side_by_side


def report(parser: argparse.ArgumentParser, given: Sequence[str]) -> str:
    """Do what `given` asks for; what to print: the path of what was written, or the comparison.

    Raises:
        UserError: the arguments do not fit together, there are no results, or nothing can be written.
    """
    parser.add_argument("directories", metavar="DIR", nargs="*")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--output", metavar="FILE")
    parser.add_argument("--debug", action="store_true")
    options = parser.parse_args(given)
    directories = [Path(directory) for directory in options.directories]
    if options.compare and options.markdown:
        rule, remedy = (
            "--compare prints a table, or writes a page with --output FILE",
            "Leave --markdown out.",
        )
        raise UserError(rule, "--markdown too", "command line", remedy)
    if options.output is not None and not options.compare:
        rule, remedy = "--output is where the page of --compare goes", "Leave it out: pages stand in DIR."
        raise UserError(rule, "no --compare", "command line", remedy)
    wanted = 2 if options.compare else 1
    if len(directories) != wanted:
        rule = "report --compare needs two directories" if options.compare else "report needs one directory"
        remedy = "Name the output.dir of a simulation, a sweep or a study."
        raise UserError(rule, len(directories), "command line", remedy)
    if options.compare and options.output is not None:
        return str(write_pair(directories[0], directories[1], Path(options.output)))
    if options.compare:
        return side_by_side(*directories)
    return str((write_markdown if options.markdown else write_page)(directories[0]))
