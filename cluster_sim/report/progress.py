"""Progress of long work, on stderr: a bar where people watch, else a line now and then."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress import Task as RichTask
from rich.text import Text

LINE_EVERY_S = 10.0
Report = Callable[[int, int], None]  # (done, all)


@contextmanager
def progress(what: str, unit: str, stream: TextIO) -> Iterator[Report]:
    """A function that takes how much is done, and of how much; it may be called as often as one likes."""
    if stream.isatty():
        with _bar(unit, stream) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield _lines(what, unit, stream, time.monotonic)


def _bar(unit: str, stream: TextIO) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(unit),
        TimeRemainingColumn(),
        console=Console(file=stream),
        transient=True,
    )


class _Rate(TextColumn):
    """Speed so far."""

    def __init__(self, unit: str) -> None:
        super().__init__("")
        self._unit = unit

    def render(self, task: RichTask) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self._unit}/s")


def _lines(what: str, unit: str, stream: TextIO, clock: Callable[[], float]) -> Report:
    """Report by a plain line every LINE_EVERY_S, and none for work that is shorter.

    The speed is that since the first news, before which code is compiled and kept results are read.
    """
    last_s, first = clock(), (0, 0.0)

    def report(done: int, total: int) -> None:
        nonlocal last_s, first
        now_s = clock()
        if done and not first[0]:
            first = done, now_s
        if now_s - last_s < LINE_EVERY_S:
            return
        last_s, speed = now_s, ""
        if done > first[0]:
            rate = (done - first[0]) / (now_s - first[1])
            speed = f", {rate:,.1f}/s, {(total - done) / rate:,.0f} s left"
        print(f"{what}: {done:,} of {total:,} {unit}{speed}", file=stream, flush=True)

    return report
