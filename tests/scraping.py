"""Pages of /metrics as a server shows them one after the other, made of those of runs that start from 0."""

import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

SAMPLE = re.compile(r"(\S+) (\S+)")
GAUGES = ("num_requests_", "kv_cache_usage", "num_running_reqs", "num_queue_reqs")


def changed(page: str, change: Callable[[str, float], float]) -> str:
    """`page` with each sample's value changed, by name with labels."""

    def of(line: str) -> str:
        found = SAMPLE.fullmatch(line)
        return f"{found[1]} {change(found[1], float(found[2]))}" if found else line

    return "\n".join(map(of, page.split("\n")))


def started(page: str) -> str:
    """What the server showed before it served anything."""
    return changed(page, lambda _name, _value: 0.0)


def after(first: str, second: str) -> str:
    """What a server shows that did what `first` shows, and then what `second` does."""
    known = dict(found.groups() for line in first.split("\n") if (found := SAMPLE.fullmatch(line)))
    return changed(
        second,
        lambda name, value: value if any(each in name for each in GAUGES) else value + float(known[name]),
    )


def series(pages: Sequence[str], directory: Path) -> list[Path]:
    """The scrapes around loads that show `pages` each: one before them, and one after each."""
    texts = [started(pages[0]), *accumulate(pages, after)]
    files = [directory / f"scrape-{number}.prom" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, "utf-8")
    return files


def with_gauges(page: str, running: int, waiting: int = 0) -> str:
    """`page` of a server that has so many requests."""
    values = {"num_requests_running": running, "num_requests_waiting": waiting}
    return changed(
        page, lambda name, value: next((float(to) for gauge, to in values.items() if gauge in name), value)
    )
