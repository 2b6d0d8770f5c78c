"""What must hold of a study's objectives and of what they are summed up over."""

from typing import NoReturn

from cluster_sim.config import Config, Objective, OverLoads, StudyConfig
from cluster_sim.errors import UserError
from cluster_sim.slo import is_bounded

TIMES = (Objective.tpot, Objective.tpot_p99, Objective.ttft_p99)  # which need no SLO


def check_objective(config: Config, study: StudyConfig) -> None:
    """Raise for the first thing that contradicts itself, or would do nothing.

    Raises:
        UserError: worded with the rule, the value, its key and what to do.
    """
    if not is_bounded(config) and (_asks_for_slo(study) or study.attainment is not None):
        _refuse("goodput and attainment need an SLO", "none", "objective", "Set slo.ttft_s or slo.tpot_s.")
    _check_gpus(study)
    _check_capacity(study)
    if study.against is study.objective:
        remedy = "Name another one, or leave study.against out."
        _refuse("a front is of two objectives", f"{study.objective.name} twice", "against", remedy)
    if study.over_classes is not None:
        _check_classes(config, study, study.over_classes)


def _asks_for_slo(study: StudyConfig) -> bool:
    return any(each not in (*TIMES, None) for each in (study.objective, study.against))


def _check_gpus(study: StudyConfig) -> None:
    objectives = (study.objective, study.against)
    if study.objective is Objective.gpus and study.over_loads is not None and study.against is None:
        rule = "the objective gpus has one value for all loads"
        _refuse(rule, study.over_loads.name, "over_loads", "Leave over_loads out.")
    if Objective.gpus in objectives and not _has_several_clusters(study):
        rule = "the fewest GPUs are found among several clusters"
        remedy = "Add 'study.choices.cluster.instances=[1,2,3,4]'."
        _refuse(rule, "one cluster", "choices", remedy)


def _has_several_clusters(study: StudyConfig) -> bool:
    return any(key.split(".")[0] == "cluster" and len(values) > 1 for key, values in study.choices.items())


def _check_capacity(study: StudyConfig) -> None:
    """The rule of a bisection is the SLO alone."""
    if Objective.capacity not in (study.objective, study.against):
        if study.search is not None:
            rule = "study.search is of the objective capacity"
            _refuse(rule, study.objective.name, "search", "Leave study.search out, or set study.objective.")
        return
    if study.search is None:
        rule, remedy = "the capacity is searched by bisection", "Start from +study=slo_load."
        _refuse(rule, "no search", "search", remedy)
    for name, words in (
        ("attainment", "slo.attainment"),
        ("ttft_p99_s", "slo.ttft_s and slo.attainment=0.99"),
        ("tpot_p99_s", "slo.tpot_s and slo.attainment=0.99"),
    ):
        limit = getattr(study, name)
        if limit is not None:
            _refuse(
                "the capacity is the highest load that meets the SLO", f"{limit:g}", name, f"Set {words}."
            )


def _check_classes(config: Config, study: StudyConfig, over: OverLoads) -> None:
    if config.workload.trace is None and len(config.workload.classes or {}) < 2:  # noqa: PLR2004  several
        rule = "classes are summed up where there are several"
        remedy = "Set workload.classes, or leave it out."
        _refuse(rule, "one", "over_classes", remedy)
    if study.objective is Objective.capacity:
        rule = "the capacity is that of all requests together"
        _refuse(rule, over.name, "over_classes", "Leave study.over_classes out.")
    if study.objective is Objective.gpus and over is OverLoads.mean:
        rule = "of GPUs there is no mean over classes"
        _refuse(rule, over.name, "over_classes", "Write worst: every class meets the constraints.")


def _refuse(rule: str, got: str, name: str, remedy: str) -> NoReturn:
    raise UserError(rule, got, f"study.{name}", remedy)
