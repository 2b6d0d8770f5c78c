"""How the arms of a sweep look: the same draft length has the same colour in every figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster_sim.report.figures import OFF, OTHERS, SCHEDULE, colour_of_drafts
from cluster_sim.report.stored import Kind, Stored

DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True)
class Look:
    """Of one arm."""

    colour: str
    dash: str
    marker: str


def looks_of(stored: Stored) -> dict[str, Look]:
    """Arm -> its look: by draft length where arms differ in it, else one colour after the other."""
    if stored.kind is Kind.study:
        names = {one["arm"]: _of_ranges(one["ranges"]) for one in stored.summary["contenders"]}
    else:
        names = {arm: _drafts(changes, stored.config) for arm, changes in stored.sweep["arms"].items()}
    if len(set(names.values())) < max(2, len(names) // 4):
        return {
            arm: Look(OTHERS[place % len(OTHERS)], DASHES[place // len(OTHERS) % 4], MARKERS[place % 6])
            for place, arm in enumerate(names)
        }
    seen: dict[object, int] = {}
    looks = {}
    for arm, drafts in names.items():
        turn = seen.setdefault(drafts, 0)
        seen[drafts] += 1
        colour = {"off": OFF, "schedule": SCHEDULE}.get(str(drafts)) or colour_of_drafts(int(drafts))
        looks[arm] = Look(colour, DASHES[turn % 4], MARKERS[turn % 6])
    return looks


def _of_ranges(ranges: Sequence[Sequence[int]]) -> str | int:
    """`off`, `schedule` or the static draft length of an arm of a study."""
    lengths = {length for _, _, length in ranges}
    if lengths <= {0}:
        return "off"
    return "schedule" if len(lengths) > 1 else lengths.pop()


def _drafts(changes: Mapping[str, Any], config: Mapping[str, Any]) -> str | int:
    """`off`, `schedule` or the static draft length of an arm."""
    speculation = config["speculation"]
    if changes.get("speculation") == "none" or (
        "speculation" not in changes and speculation["method"] == "none"
    ):
        return "off"

    def of(key: str) -> Any:
        return changes.get(f"speculation.{key}", speculation[key])

    if of("num_speculative_tokens_per_batch_size") is not None or of("draft_len_schedule") is not None:
        return "schedule"
    return int(of("num_speculative_tokens") or 0)
