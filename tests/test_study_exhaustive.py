"""A study against all of a small space, each schedule simulated: four buckets with 0 to 4 drafts, 625."""

import itertools
from pathlib import Path

import pytest
from made_up import MadeUp, planned, search_on

from cluster_sim.comparison import SMALLEST_EFFECT
from cluster_sim.study.space import Candidate
from cluster_sim.trial import Trial, run_trial
from cluster_sim.trials import Row

# Bursts on an A100: batches of one to fifty requests, where no static draft length is best at all sizes.
SPACE = (
    "+study=draft_schedule",
    "study.objective=tpot",
    "study.bucket_lasts=[4,12,32]",
    "study.max_draft_length=4",
    "study.monotone=false",
    "study.axes.workload.request_rate=[null]",  # bursts have rates of their own
    "study.seeds=[0]",
    "hardware=a100",
    "workload=bursts",
    "workload.requests=200",
    "workload.prompt_tokens=64",
    "workload.output_tokens=64",
    "workload.burst_rate=600",
    "workload.burst_s=0.2",
    "workload.calm_s=8",
    "speculation.acceptance={policy: geometric, rate: 0.7}",
    "study.trials=125",
)


@pytest.mark.slow
def test_a_fifth_of_all_schedules_simulated_finds_the_best_of_them_or_a_tie_with_it(tmp_path: Path) -> None:
    """A tie: within 1 %, of which verdict.py and comparison.py make nothing. A static length is no tie."""
    rows: dict[str, Row] = {}
    plan = planned(*SPACE)
    for lengths in itertools.product(range(5), repeat=4):
        arm = plan.arms.arm(Candidate(lengths, plan.space.lasts))
        (cell,) = plan.arms.cells(arm, [0])
        rows[arm.name] = run_trial(cell.trial()).row
    assert len(rows) == 625

    def known(trial: Trial) -> Row:
        return {key: value for key, value in rows[trial.arm].items() if key != "trial"}

    executor = MadeUp(known)
    search = search_on(planned(*SPACE), executor, tmp_path)
    assert len(executor.trials) <= 125
    value = {arm: row["tpot_s.mean"] for arm, row in rows.items()}
    best = min(value.values())
    static = min(value[f"K={length}"] for length in range(1, 5))
    assert min(told.score.value for told in search.told) <= (1 + SMALLEST_EFFECT) * best < static
