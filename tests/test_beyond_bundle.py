"""A run that goes beyond its bundle is told so, in numbers; and what its profiles were measured on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from example_bundle import BUNDLE

from cluster_sim.beyond_bundle import warnings_beyond
from cluster_sim.bundle import format as bundle_format
from cluster_sim.bundle.extent import Extent, extent_of
from cluster_sim.bundle.format import Bundle
from cluster_sim.compose import compose
from cluster_sim.run import simulate
from cluster_sim.summary import summarise

BURST = ("workload.requests=40", "workload.request_rate=1000", "workload.prompt_tokens=100")


def cut(name: str, axis: str, last: int) -> Bundle:
    """The bundle of the tests, whose table `name` ends at the first point of `axis` from `last` on."""
    table = BUNDLE.tables[name]
    points = table.axes[axis]
    kept = int(np.searchsorted(points, last)) + 1
    times_s = np.take(table.time_s, np.arange(kept), list(table.axes).index(axis))
    smaller = replace(table, axes={**table.axes, axis: points[:kept]}, time_s=times_s)
    return replace(BUNDLE, name="small", tables={**BUNDLE.tables, name: smaller})


def said(bundle: Bundle, directory: Path) -> list[str]:
    bundle_format.write(bundle, directory)
    return list(warnings_beyond(simulate(compose([*BURST, f"cluster.bundle={directory}"]))))


def test_the_extent_of_a_bundle_is_its_last_points() -> None:
    assert extent_of(cut("dense", "tokens", 64)) == Extent(4096, 64, 2**20)


def test_a_run_beyond_the_tokens_of_its_bundle_is_told_so(tmp_path: Path) -> None:
    (words,) = said(cut("dense", "tokens", 64), tmp_path)
    assert words.startswith(
        "the run went beyond bundle small, whose step times go on in a straight line there (mean tokens of a "
        "step "
    )
    assert words.endswith(", timed up to 64)")


def test_a_run_within_its_bundle_is_told_nothing(tmp_path: Path) -> None:
    assert said(BUNDLE, tmp_path) == []


def test_steps_and_contexts_are_compared_with_the_bundle_and_the_warning_is_stored() -> None:
    run = simulate(compose(BURST))
    (kind,) = run.kinds
    largest = int(np.flatnonzero(run.tally.batch_size_steps.sum(axis=0)).max())
    context = int((run.requests["prompt_tokens"] + run.log["emitted_tokens"]).max())
    assert largest > 10
    run = replace(run, kinds=(replace(kind, extent=Extent(10, 2**15, context - 1)),))
    words = (
        f"the run went beyond bundle {kind.bundle_name}, whose step times go on in a straight line there "
        f"(requests of the largest step {largest}, timed up to 10; tokens of the longest context {context}, "
        f"timed up to {context - 1})"
    )
    assert list(warnings_beyond(run)) == [words]
    assert summarise(run)["warnings"] == [words]
    exact = replace(kind, extent=Extent(largest, 2**15, context))
    assert list(warnings_beyond(replace(run, kinds=(exact,)))) == []


@pytest.mark.parametrize(
    ("overrides", "texts"),
    [
        ((), ["MT-Bench at temperature 0"]),
        (("speculation=none",), []),
        (("speculation.acceptance={policy: decay, rate: 0.5}",), []),
    ],
)
def test_the_summary_says_what_a_published_profile_was_measured_on(
    overrides: tuple[str, ...], texts: list[str]
) -> None:
    summary = summarise(simulate(compose(["workload.requests=20", *overrides])))
    assert summary["acceptance_texts"] == texts
