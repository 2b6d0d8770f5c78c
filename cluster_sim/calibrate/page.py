"""One scrape of a server's /metrics.

Format: Prometheus' text exposition format 0.0.4: NAME{LABEL="VALUE",..} NUMBER [TIME], a line feed behind
every line. TIME, in ms, is there where Prometheus itself hands samples on (/federate), not in a server's own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from cluster_sim.calibrate.entries import LARGEST, said
from cluster_sim.errors import UserError
from cluster_sim.traces.text import TraceText, load, shortened

Labels = tuple[tuple[str, str], ...]  # sorted by name
Key = tuple[str, Labels]
VLLM, SGLANG = "vllm:", "sglang:"
WHOLE = ("_total", "_count", "_bucket")
CUMULATIVE = (*WHOLE, "_sum", "_created")
DRAFTS, BY_POSITION = "spec_decode_num_drafts", "spec_decode_num_accepted_tokens_per_pos"
FAMILIES = {  # that calibrate reads; all others may hold what they like
    VLLM: {
        *(DRAFTS, "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens", BY_POSITION),
        *("num_requests_running", "num_requests_waiting"),
        *("prefix_cache_queries", "prefix_cache_hits", "generation_tokens"),
        *("request_prompt_tokens", "request_generation_tokens"),
        *("time_to_first_token_seconds", "inter_token_latency_seconds"),
        *("request_time_per_output_token_seconds", "e2e_request_latency_seconds"),
    },
    SGLANG: {
        *("num_running_reqs", "num_queue_reqs", "prompt_tokens"),
        *("generation_tokens", "cached_tokens", "prompt_tokens_histogram", "generation_tokens_histogram"),
        *("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds"),
    },
}
REMEDY = "Save it again: curl -s http://SERVER/metrics > FILE."
_VALUE = r'(?:[^"\\\x00-\x1f\x7f-\x9f\u2028\u2029]|\\[\\"n])*'
_LABEL = rf'[a-zA-Z_][a-zA-Z0-9_]*="{_VALUE}"'
_SAMPLE = re.compile(
    rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{{((?:{_LABEL},?)*)\}})?[ \t]+(\S+)(?:[ \t]+(-?\d{{1,15}}))?[ \t]*"
)


@dataclass(frozen=True)
class Page:
    """The samples of a server in one scrape."""

    path: Path
    prefix: str  # VLLM or SGLANG
    samples: Mapping[Key, float]  # of its FAMILIES
    time_s: float | None  # that all of them state; None: they state none

    def of(self, name: str, **labels: str) -> dict[Labels, float]:
        """The series called `name`, with its prefix, whose labels have these values."""
        wanted = set(labels.items())
        return {
            found: value
            for (series, found), value in self.samples.items()
            if series == self.prefix + name and wanted <= set(found)
        }

    def refuse(self, rule: str, got: object, remedy: str = REMEDY) -> NoReturn:
        """Raise what is wrong with it."""
        raise UserError(rule, got, str(self.path), remedy)


def read_page(path: Path) -> Page:
    """The samples of vLLM or SGLang in a file.

    Raises:
        UserError: the file cannot be read or is damaged, a sample comes twice, or none is of such a server.
    """
    text = load(path, "a scrape of /metrics", "sample", "the option")
    lines = text.data.decode().split("\n")
    samples: dict[Key, float] = {}
    times_ms = set()
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            key, value, time_ms = _sample(text, number, line.strip())
            if key in samples:
                text.refuse("a sample comes once in a scrape", said(line.strip()), number, REMEDY)
            times_ms.add(time_ms)
            samples[key] = value
    if not path.read_bytes().endswith(b"\n"):
        rule = "a scrape ends with a line feed; one cut short does not"
        text.refuse(rule, said(lines[-1].strip()), len(lines), REMEDY)
    return _page(path, samples, times_ms)


def label_words(labels: Labels) -> str:
    """Labels as a page writes them."""
    return shortened("{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}")


def _sample(text: TraceText, number: int, line: str) -> tuple[Key, float, str | None]:
    found = _SAMPLE.fullmatch(line)
    if found is None:
        text.refuse('a sample must read NAME{LABEL="VALUE"} NUMBER', said(line), number, REMEDY)
    labels = re.findall(rf'([a-zA-Z_][a-zA-Z0-9_]*)="({_VALUE})"', found[2] or "")
    if len({name for name, _ in labels}) < len(labels):
        text.refuse("a label comes once in a sample", said(line), number, REMEDY)
    try:
        return (found[1], tuple(sorted(labels))), float(found[3]), found[4]
    except ValueError:
        text.refuse("a sample must have a number", said(found[3]), number, REMEDY)


def _page(path: Path, samples: Mapping[Key, float], times_ms: set[str | None]) -> Page:
    """What calibrate reads of the samples of a file, which state `times_ms`."""
    for prefix, families in FAMILIES.items():
        if any(name.startswith(prefix) for name, _ in samples):
            own = {key: value for key, value in samples.items() if _family(key[0], prefix) in families}
            time_ms = times_ms.pop() if len(times_ms) == 1 else None
            page = Page(path, prefix, own, None if time_ms is None else int(time_ms) / 1e3)
            _check_cumulative(page)
            return page
    raise UserError(f"a scrape must hold samples of {VLLM} or {SGLANG}", "none", str(path), REMEDY)


def _family(name: str, prefix: str) -> str:
    """The name without the prefix, and without what a kind of sample adds to it."""
    suffix = next((each for each in CUMULATIVE if name.endswith(each)), "")
    return name.removeprefix(prefix).removesuffix(suffix) if name.startswith(prefix) else ""


def _check_cumulative(page: Page) -> None:
    """What adds up is 0 or more and no damage, and what is counted is whole."""
    for (name, labels), value in page.samples.items():
        is_number = 0 <= value <= LARGEST
        if name.endswith(CUMULATIVE) and not (is_number and (not name.endswith(WHOLE) or value % 1 == 0)):
            kind = "whole number" if name.endswith(WHOLE) else "number"
            rule = f"{shortened(name)}{label_words(labels)} must be a {kind} from 0 to {LARGEST:g}"
            page.refuse(rule, f"{value:g}")
