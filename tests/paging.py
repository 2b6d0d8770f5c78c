"""Pages for tests: their tables, read back from the HTML, and results that are made up."""

from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from cluster_sim.report.stored import Kind, Stored

CONFIG: dict[str, Any] = {
    "model": {"name": "m", "source": "a test"},
    "hardware": {"name": "h", "source": "a test"},
    "cluster": {"instances": 1, "bundle": None},
    "speculation": {"method": "eagle3"},
    "workload": {"classes": None},
    "slo": {"ttft_s": 0.5, "tpot_s": 0.05, "e2el_s": None, "attainment": 0.9},
    "sweep": {
        "name": "made_up",
        "question": "Which?",
        "arms": {"off": {"speculation": "none"}, "K=1": {}, "K=3": {}},
        "baseline": "off",
        "axes": {"workload.request_rate": [1, 2]},
        "seeds": [0, 1, 2],
    },
}


class _Tables(HTMLParser):
    """The cells of all tables, by the section that they are in."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[list[list[str]]]] = {}
        self._section, self._is_cell = "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "section":
            self._section = dict(attrs).get("id") or ""
        elif tag == "table":
            self.found.setdefault(self._section, []).append([])
        elif tag == "tr":
            self.found[self._section][-1].append([])
        elif tag in ("td", "th"):
            self.found[self._section][-1][-1].append("")
            self._is_cell = True

    def handle_endtag(self, tag: str) -> None:
        self._is_cell = self._is_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.found[self._section][-1][-1][-1] += data


def tables_of(page: Path) -> dict[str, list[list[list[str]]]]:
    """Section -> its tables: rows of cells, the heads first."""
    parser = _Tables()
    parser.feed(page.read_text("utf-8"))
    return parser.found


def ratio(value: float, verdict: str, half: float = 0.01) -> dict[str, Any]:
    """A ratio as comparison.compare_arms makes it."""
    return {"ratio": value, "low": value - half, "high": value + half, "verdict": verdict}


def entry(rate: float, tpot_s: float, saturated: float = 0.0) -> dict[str, Any]:
    """An entry of `arms` with what a choice between them reads."""
    return {
        "axes": {"workload.request_rate": rate},
        "saturated": saturated,
        "tpot_s": {"mean": {"value": tpot_s, "low": tpot_s, "high": tpot_s}},
    }


def against(rate: float, tpot: dict[str, Any], throughput: dict[str, Any] | None = None) -> dict[str, Any]:
    """An entry of `vs_baseline`."""
    tie = ratio(1.0, "tie")
    return {
        "axes": {"workload.request_rate": rate},
        "output_throughput_tok_s": throughput or tie,
        "slo_goodput_rps": tie,
        "tpot_s": tpot,
    }


def row(arm: str, rate: float, seed: int, tpot_s: float, **others: object) -> dict[str, Any]:
    """A trial's row with what caveats read."""
    return {
        "trial": 0,
        "arm": arm,
        "workload.request_rate": rate,
        "seed": seed,
        "tpot_s.mean": tpot_s,
        "requests.completed": 2000,
        "tokens.prompt": 1000,
        "tokens.cached": 0,
        "slo_attainment": 1.0,
        "draft_cost": "bundle",
        "acceptance_source": "[given] a test",
        "warnings": [],
        **others,
    }


def stored_of(
    arms: Mapping[str, Sequence[Any]],
    compared: Mapping[str, Sequence[Any]],
    rows: Sequence[dict[str, Any]] = (),
    **changes: object,
) -> Stored:
    """A sweep of CONFIG, with `changes` of groups of it."""
    manifest = {"config": {**CONFIG, **changes}, "seeds": [0, 1, 2], "sources": {}, "digests": {}}
    return Stored(Path(), Kind.sweep, manifest, {"arms": arms, "vs_baseline": compared}, list(rows))
