"""Published speed-ups as data: conf/published_speedups.yaml, whose head says what each key means."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from cluster_sim.paths import conf_dir

Ends = tuple[float, float]  # of a measured range; equal for a value
Values = dict[int, dict[int, Any]]  # load -> draft length -> value or [low, high]
OFF = 0  # reference draft length: no drafter at all
FILE = "published_speedups.yaml"
LOWER_IS_BETTER = ("tpot_ms", "itl_ms")
AS_THEY_ARE = ("speedup", "kept", "last_batch_size")


@dataclass(frozen=True)
class Other:
    """Another drafter of the same setup, which a row is compared with."""

    method: str
    draft_length: int
    acceptance_length: float


@dataclass(frozen=True)
class Row:
    """One published setup with one drafter."""

    id: str
    what: str
    source: str
    engine: str  # and how it differs from what is simulated
    overrides: tuple[str, ...]  # of this tool's configuration
    method: str
    acceptance_lengths: dict[int, float]  # draft length -> AL
    acceptance: str  # where they come from
    quantity: str  # of `values`: speedup | kept | tok_per_s | tpot_ms | itl_ms | last_batch_size
    values: Values
    explanation: str
    load: str = "batch_size"  # or request_rate
    kv_tokens: float = 0.0  # context of a decode
    draft_model: str | None = None
    drafter_in_graph: bool = False
    is_independent: bool = True  # False: its numbers went into its own prediction, or it is no measurement
    reference: int = OFF
    over: Other | None = None
    without: dict[int, float] | None = None  # load -> value without a drafter
    tolerance_percent: float | None = None  # of each value; None: the row does not hold
    most_regret_percent: float | None = None  # None: not compared, or it does not hold
    same_order: bool = False  # the source's best draft length is this tool's too


@cache
def rows() -> tuple[Row, ...]:
    """The published rows, in the file's order."""
    content = yaml.safe_load((conf_dir() / FILE).read_text(encoding="utf-8"))
    return tuple(_row(entry) for entry in content["rows"])


def measured_speedups(row: Row) -> dict[int, dict[int, Ends]]:
    """[load][draft length]: (low, high) over the row's reference; what is no speed-up stays as it is."""
    ends = {load: {k: _ends(value) for k, value in of.items()} for load, of in row.values.items()}
    if row.quantity in AS_THEY_ARE:
        return ends
    found: dict[int, dict[int, Ends]] = {}
    for load, by_length in ends.items():
        base = row.without[load] if row.without is not None else by_length[row.reference][0]
        wanted = {k: value for k, value in by_length.items() if row.without is not None or k != row.reference}
        if row.quantity in LOWER_IS_BETTER:
            found[load] = {k: (base / high, base / low) for k, (low, high) in wanted.items()}
        else:
            found[load] = {k: (low / base, high / base) for k, (low, high) in wanted.items()}
    return found


def _row(entry: dict[str, Any]) -> Row:
    over = Other(**entry["over"]) if "over" in entry else None
    return Row(**entry | {"overrides": tuple(entry["overrides"]), "over": over})


def _ends(value: Any) -> Ends:
    return (float(value[0]), float(value[1])) if isinstance(value, list) else (float(value), float(value))
