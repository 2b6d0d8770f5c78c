"""All that is printed: results on stdout, words about the run on stderr."""

import shutil
import sys
from collections.abc import Iterable

from rich.console import RenderableType

from cluster_sim.engine.jit import is_compiled_before
from cluster_sim.report.terminal import to_text

PIPED_WIDTH = 120  # columns where no terminal says its own


def width() -> int:
    """Columns of what is printed."""
    return shutil.get_terminal_size((PIPED_WIDTH, 0)).columns


def show(view: RenderableType) -> None:
    """Print a result, in colours if it goes to a terminal."""
    sys.stdout.write(to_text(view, width(), colours=sys.stdout.isatty()))


def show_lines(lines: Iterable[str]) -> None:
    """Print lines that hold commands to copy: none is broken at the width of the terminal."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def say(words: str) -> None:
    """Print a line about the run."""
    print(f"cluster_sim: {words}", file=sys.stderr, flush=True)


def announce_compilation(module: str) -> None:
    """Say so if the entries of an engine module must be compiled first."""
    if not is_compiled_before(module):
        say("compiling the engine, once, about a minute")
