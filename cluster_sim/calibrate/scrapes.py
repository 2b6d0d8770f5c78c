"""Two scrapes of vLLM's /metrics: what its counters of drafts grew by between them, all engines together.

Format: Prometheus' text exposition format 0.0.4: NAME{LABEL="VALUE",..} NUMBER [TIME], a line feed behind
every line. Names: vLLM 0.33.0 (../shared/spec-decode-facts.md F2). Counters only grow while a server runs:
one that fell, or whose _created changed, is another run's.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from cluster_sim.calibrate.counts import MOST_POSITIONS, Counts, check
from cluster_sim.calibrate.entries import LARGEST, said
from cluster_sim.errors import UserError
from cluster_sim.traces.text import TraceText, load, shortened

Labels = tuple[tuple[str, str], ...]  # sorted by name
Key = tuple[str, Labels]
PREFIX = "vllm:spec_decode_num_"
DRAFTS, DRAFT_TOKENS, ACCEPTED = "drafts", "draft_tokens", "accepted_tokens"
BY_POSITION = "accepted_tokens_per_pos"
COUNTERS = (DRAFTS, DRAFT_TOKENS, ACCEPTED, BY_POSITION)
OF_SGLANG = "sglang:"
REMEDY = "Save it again: curl -s http://SERVER/metrics > FILE."
SERVER_REMEDY = "Take both scrapes from one run of one server."
_VALUE = r'(?:[^"\\\x00-\x1f\x7f-\x9f\u2028\u2029]|\\[\\"n])*'
_LABEL = rf'[a-zA-Z_][a-zA-Z0-9_]*="{_VALUE}"'
_SAMPLE = re.compile(
    rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{{((?:{_LABEL},?)*)\}})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*"
)


@dataclass(frozen=True)
class Scrape:
    """The samples of drafts in one file."""

    path: Path
    samples: Mapping[Key, float]

    def engines(self) -> list[Labels]:
        """Labels of those that count drafts."""
        return sorted(labels for name, labels in self.samples if name == f"{PREFIX}{DRAFTS}_total")


def growth(before: Path, after: Path) -> Counts:
    """What the counters grew by from one scrape to the next.

    Raises:
        UserError: a file is damaged or has no such counters, or the two are not of one run of one server.
    """
    first, second = read_scrape(before), read_scrape(after)
    _check_same_server(first, second)
    totals = {name: _grown(first, second, f"{PREFIX}{name}_total") for name in COUNTERS}
    by_position = _by_position(totals[BY_POSITION], after)
    drafts, tokens, accepted = (
        round(sum(totals[name].values())) for name in (DRAFTS, DRAFT_TOKENS, ACCEPTED)
    )
    place = f"{before}, {after}"
    if drafts == 0:
        _refuse("drafts must be counted between two scrapes", "none", place, "Scrape after some traffic.")
    counts = Counts(place, drafts, tokens, by_position)
    if counts.accepted != accepted:
        rule = f"accepted tokens by position add up to all, {accepted}"
        _refuse(rule, counts.accepted, place, SERVER_REMEDY)
    check(counts)
    return counts


def read_scrape(path: Path) -> Scrape:
    """The samples of drafts in a file.

    Raises:
        UserError: the file cannot be read or is damaged, or a sample comes twice.
    """
    text = load(path, "a scrape of /metrics", "sample", "the option")
    lines = text.data.decode().split("\n")
    samples: dict[Key, float] = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            key, value = _sample(text, number, line.strip())
            if key in samples:
                text.refuse("a sample comes once in a scrape", said(line.strip()), number, REMEDY)
            samples[key] = value
    if not path.read_bytes().endswith(b"\n"):
        text.refuse(
            "a scrape ends with a line feed; one cut short does not",
            said(lines[-1].strip()),
            len(lines),
            REMEDY,
        )
    of_drafts = {key: value for key, value in samples.items() if key[0].startswith(PREFIX)}
    if f"{PREFIX}{DRAFTS}_total" not in {name for name, _ in of_drafts}:
        _refuse_without(text.path, any(name.startswith(OF_SGLANG) for name, _ in samples))
    _check_counters(text.path, of_drafts)
    return Scrape(path, of_drafts)


def _sample(text: TraceText, number: int, line: str) -> tuple[Key, float]:
    found = _SAMPLE.fullmatch(line)
    if found is None:
        text.refuse('a sample must read NAME{LABEL="VALUE"} NUMBER', said(line), number, REMEDY)
    labels = re.findall(rf'([a-zA-Z_][a-zA-Z0-9_]*)="({_VALUE})"', found[2] or "")
    if len({name for name, _ in labels}) < len(labels):
        text.refuse("a label comes once in a sample", said(line), number, REMEDY)
    try:
        return (found[1], tuple(sorted(labels))), float(found[3])
    except ValueError:
        text.refuse("a sample must have a number", said(found[3]), number, REMEDY)


def _check_counters(path: Path, samples: Mapping[Key, float]) -> None:
    for (name, labels), value in samples.items():
        if name.endswith("_total") and not (0 <= value <= LARGEST and value == math.floor(value)):
            rule = f"{shortened(name)}{_words(labels)} must be a whole number from 0 to {LARGEST:g}"
            _refuse(rule, f"{value:g}", str(path), REMEDY)


def _check_same_server(first: Scrape, second: Scrape) -> None:
    """Refuse scrapes of other engines, of several models, or with a restart between them."""
    if first.engines() != second.engines():
        rule = f"both scrapes are of the same engines, here {_all_words(first)}"
        _refuse(rule, _all_words(second), str(second.path), SERVER_REMEDY)
    models = sorted({dict(labels).get("model_name", "") for labels in first.engines()})
    if len(models) > 1:
        remedy = "Keep the lines of one model."
        _refuse("a profile is of one model", shortened(", ".join(models)), str(first.path), remedy)
    for (name, labels), value in first.samples.items():
        grown = second.samples.get((name, labels))
        is_reset = grown is not None and name.endswith("_created") and grown != value
        if grown is None or is_reset or (name.endswith("_total") and grown < value):
            rule = (
                f"{name}{_words(labels)} cannot fall or start anew while a server runs: at first {value:.12g}"
            )
            got = "nothing" if grown is None else f"{grown:.12g}"
            _refuse(rule, got, str(second.path), SERVER_REMEDY)


def _grown(first: Scrape, second: Scrape, name: str) -> dict[Labels, float]:
    """What each series of a counter grew by; a position that was never accepted before had no sample."""
    return {
        labels: value - first.samples.get((of, labels), 0.0)
        for (of, labels), value in second.samples.items()
        if of == name
    }


def _by_position(grown: Mapping[Labels, float], path: Path) -> tuple[int, ...]:
    """Sums over engines, by position from 0."""
    sums: dict[int, float] = {}
    for labels, value in grown.items():
        position = dict(labels).get("position", "")
        if not re.fullmatch(r"\d{1,4}", position) or int(position) >= MOST_POSITIONS:
            rule = f"{PREFIX}{BY_POSITION}_total has a position from 0 to {MOST_POSITIONS - 1}"
            _refuse(rule, shortened(repr(position)), str(path), REMEDY)
        sums[int(position)] = sums.get(int(position), 0.0) + value
    if sorted(sums) != list(range(len(sums))) or not sums:
        rule = f"{PREFIX}{BY_POSITION}_total has all positions from 0 on"
        got = shortened(", ".join(map(str, sorted(sums))) or "none")
        _refuse(rule, got, str(path), REMEDY)
    return tuple(round(sums[position]) for position in range(len(sums)))


def _refuse_without(path: Path, is_of_sglang: bool) -> NoReturn:
    if is_of_sglang:
        rule = "counts make a profile, and SGLang's /metrics hold means alone (sglang:spec_accept_length)"
        remedy = "Give the responses, with their meta_info, as JSON lines."
        _refuse(rule, "a scrape of SGLang", str(path), remedy)
    rule = f"a scrape must hold {PREFIX}{DRAFTS}_total"
    _refuse(rule, "none", str(path), "Scrape a vLLM server with a --speculative-config.")


def _words(labels: Labels) -> str:
    return shortened("{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}")


def _all_words(scrape: Scrape) -> str:
    return shortened(" ".join(map(_words, scrape.engines())))


def _refuse(rule: str, got: object, where: str, remedy: str) -> NoReturn:
    raise UserError(rule, got, where, remedy)
