"""A study from a checked configuration to results on disk: search, verdict, sensitivity, exports.

Every simulation is kept as it ends, under a number that depends on the study alone. The same command with the
same output.dir goes on where an earlier one stopped, whatever stopped it: it walks the same path, and
simulates what is missing.
"""

import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster_sim.anatomy import anatomies_of
from cluster_sim.comparison import RATE_AXIS
from cluster_sim.compose import Composer
from cluster_sim.config import Config
from cluster_sim.executors import Executor, check_reachable, open_executor
from cluster_sim.files import MANIFEST, SUMMARY, default_dir, open_directory, write_json, write_yaml
from cluster_sim.report.at_end import leave_page
from cluster_sim.report.console import announce_compilation, say, show, show_lines, width
from cluster_sim.report.progress import progress
from cluster_sim.report.study import study_view
from cluster_sim.run import warm_up
from cluster_sim.study.export import export
from cluster_sim.study.finalists import finalists
from cluster_sim.study.plan import Plan
from cluster_sim.study.proof import Proof
from cluster_sim.study.search import Problem, Search
from cluster_sim.study.summary import summary_of
from cluster_sim.study.verdict import Verdict
from cluster_sim.study.window import Ledger, Window
from cluster_sim.trials import open_trials

JOURNAL = "study.journal"
DONE, INFEASIBLE = 0, 1


def run_study(config: Config, overrides: Sequence[str]) -> int:
    """Run the study of `config`, which `overrides` compose, or what is missing of it; returns the exit code.

    Leaves manifest.yaml, study.journal, trials.parquet, summary.json, best.yaml, the schedules and the page
    in output.dir, and prints the verdict. The code is 1 where no arm meets the constraints.

    Raises:
        UserError: a trial is wrong, the directory holds something else, or the executor cannot start.
        KeyboardInterrupt: the user had enough; the simulations that have ended are kept.
    """
    if config.study is None:
        raise ValueError("this configuration holds no study")
    started_s = time.perf_counter()
    check_reachable(config.executor)
    plan = Plan(config, config.study, Composer(overrides))
    directory = default_dir(config.study.name) if config.output.dir is None else Path(config.output.dir)
    open_directory(directory, plan.about["identity"])
    with open_trials(directory) as writer:
        if not (directory / MANIFEST).exists():
            write_yaml(directory / MANIFEST, plan.about)
        ledger = Ledger(writer)
        summary, verdict = _found(plan, ledger, directory)
        rows = writer.finish()
        summary["wall_s"] = time.perf_counter() - started_s
        write_json(directory / SUMMARY, summary)
        lines = _exported(plan, verdict, ledger, directory)
    show(study_view(summary, width()))
    show_lines(lines)
    for warning, count in Counter(text for row in rows for text in row["warnings"]).items():
        say(f"warning: {warning} ({count} of {len(rows)} simulations)")
    say(f"results in {directory}; `optuna-dashboard {directory / JOURNAL}` shows the search")
    leave_page(config.output, directory)
    return INFEASIBLE if verdict.recommended is None else DONE


def _found(plan: Plan, ledger: Ledger, directory: Path) -> tuple[dict[str, Any], Verdict]:
    """Search, judge and vary: what summary.json holds, and the verdict."""
    study, kept = plan.study, len(ledger.writer.finished)
    simulations = study.trials * len(plan.arms.loads) * len(study.seeds)
    from_before = f"; {kept} simulations kept from before" if kept else ""
    say(f"{study.trials} trials of {len(plan.arms.loads)} loads x {len(study.seeds)} seeds{from_before}")
    problem = Problem(plan.task, plan.space, plan.name, plan.starts, plan.config.seed)
    search = Search(problem, directory / JOURNAL)
    announce_compilation("loop")
    warm_up(plan.config)
    try:
        with open_executor(plan.config.executor, simulations) as executor:
            verdict, varied = _proved(plan, search, ledger, executor)
    except KeyboardInterrupt:
        say(f"{len(ledger.writer.finished)} simulations are kept; go on with output.dir={directory}")
        raise
    cells = [cell for one in verdict.contenders for cell in plan.arms.cells(one.arm, study.fresh_seeds)]
    ledger.needed(cells)  # they have ended: each takes in its rows
    summary = {
        **summary_of(study, plan.task, verdict, cells),
        "search": _counts(plan, search),
        "sensitivity": varied,
        "anatomies": _anatomies(plan, verdict),
        "optimiser_wall_s": search.wall_s,
        **_of_machine(ledger),
    }
    return summary, verdict


def _anatomies(plan: Plan, verdict: Verdict) -> dict[str, Any]:
    """What steps are made of without speculation and with the recommended arm, under the first fresh seed."""
    recommended = [] if verdict.recommended is None else [verdict.recommended.arm]
    off = [one.arm for one in verdict.contenders if not one.arm.ranges]
    arms = {arm.name: arm for arm in (*off[:1], *recommended)}
    seeds = plan.study.fresh_seeds[:1]
    cells = [cell for arm in arms.values() for cell in plan.arms.cells(arm, seeds)]
    return anatomies_of([cell.trial() for cell in cells], RATE_AXIS)


def _proved(
    plan: Plan, search: Search, ledger: Ledger, executor: Executor
) -> tuple[Verdict, list[dict[str, Any]]]:
    """The verdict, and what becomes of it where one thing is changed."""
    with progress("study", "trials", sys.stderr) as report:
        Window(search, plan.arms, plan.task, ledger, report).run(executor)
    proof = Proof(plan.arms, plan.task, plan.baselines, ledger, executor)
    best = [told.candidate for told in finalists(plan.task, search, plan.name)]
    verdict = proof.judged(plan.with_simple_rivals(best))
    return verdict, list(proof.varied(verdict))


def _counts(plan: Plan, search: Search) -> dict[str, Any]:
    """How many trials there were, and what mattered; `history` is of those that ran to their end."""
    return {
        "trials": len(search.told) + search.num_stopped,
        "stopped_early": search.num_stopped,
        "arms_to_the_end": len({plan.name(told.candidate) for told in search.told}),
        "importance": search.importances(),
        "history": [
            {
                "arm": plan.name(told.candidate),
                "value": told.score.value if math.isfinite(told.score.value) else None,
                "against": told.score.values[1] if told.score.against else None,
                "is_feasible": told.score.is_feasible,
            }
            for told in search.told
        ],
    }


def _of_machine(ledger: Ledger) -> dict[str, Any]:
    """The values of trials.MACHINE_KEYS but for the whole time, which is not known yet."""
    machines = [one.machine for one in ledger.ended]
    return {
        "engine_wall_s": sum(machine["engine_wall_s"] for machine in machines),
        "peak_rss_bytes": max((machine["peak_rss_bytes"] for machine in machines), default=None),
    }


def _exported(plan: Plan, verdict: Verdict, ledger: Ledger, directory: Path) -> list[str]:
    """Write the files for servers; lines that say what they are for. None where no arm is feasible."""
    if verdict.recommended is None:
        return []
    arm = verdict.recommended.arm
    last = plan.arms.cells(arm, plan.study.fresh_seeds)[-1]
    ledger.needed([last])  # it has ended: it takes in its rows
    return export(last.trial().config, plan.arms.seats(arm.choices), directory, plan.config.output.drafter)
