"""What several runs of `vllm bench serve` say together: one given twice, other models, drafts not counted."""

import re
from collections.abc import Sequence

from cluster_sim.calibrate.bench import PREFIX
from cluster_sim.calibrate.entries import Entry, said
from cluster_sim.calibrate.timed import Timed
from cluster_sim.traces.text import shortened

IDENTITY = (
    *("date", "duration", "mean_ttft_ms", "mean_tpot_ms"),
    *(f"{PREFIX}num_drafts", f"{PREFIX}accepted_tokens"),
)
MOST_ITL_TO_TPOT = 1.4  # of a token a chunk: 1.0 but for how requests weigh; of one draft, near 1.8


def check_once(runs: Sequence[Entry]) -> None:
    """See that no run is there twice: a sweep's summary.json holds the runs of the files beside it.

    Raises:
        UserError: one is.
    """
    places: dict[tuple[str, ...], str] = {}
    for entry in runs:
        known = tuple(said(entry.values.get(name)) for name in IDENTITY)
        if "duration" in entry and known in places:
            remedy = "Name it once: summary.json holds the runs of the files beside it."
            entry.refuse(f"the run of {places[known]} counts once", "it again", remedy)
        places[known] = entry.place


def other_models(runs: Sequence[Entry], name: str) -> list[str]:
    """A note where runs name another model than `name`: a server may call it as it likes."""
    called = dict.fromkeys(said(run.values["model_id"]) for run in runs if "model_id" in run)
    others = shortened(", ".join(each for each in called if _letters(name) not in _letters(each)))
    words = f"measured with model_id {others}, calibrated as {name}: write model=NAME if they differ"
    return [words] if others else []


def of_several_tokens(runs: Sequence[Timed]) -> list[str]:
    """A note where chunks of runs without drafts hold several tokens, as ITL of chunks and TPOT tell."""
    means = [run.means_s for run in runs if not run.draft_length and {"itl", "tpot"} <= run.means_s.keys()]
    ratios = [one["itl"] / one["tpot"] for one in means]
    many = [ratio for ratio in ratios if ratio > MOST_ITL_TO_TPOT]
    if not many:
        return []
    return [
        f"mean ITL is up to {max(many):.1f} times mean TPOT in {len(many)} of {len(ratios)} runs without "
        "drafts: chunks hold several tokens, so the server drafts and its /metrics was not read, or it "
        "streams at an interval"
    ]


def _letters(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())
