"""What the tests of whole steps share: steps as the engine times them, and CSVs of such steps."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from example_bundle import CONFIG, NONE, engine

from cluster_sim.bundle.architecture import Parallel
from cluster_sim.bundle.format import Bundle
from cluster_sim.bundle.importers.fitted_tables import Origin
from cluster_sim.bundle.importers.whole_steps import Fitted, read_steps
from cluster_sim.config import DraftCost, Method
from cluster_sim.engine.step_time import bilinear, locate
from cluster_sim.errors import UserError
from cluster_sim.step_tables import StepArrays, step_arrays

COLUMNS = ("batch", "query_tokens", "kv_tokens", "prefill_tokens", "prefill_history_tokens", "step_ms")
HEADER = ",".join(COLUMNS)
ORIGIN = Origin("steps of the tests, from a known bundle", "facts")
NOISE = 0.02  # standard deviation of the logarithm of a measured time


class Step(NamedTuple):
    """A row of the CSV without its time."""

    batch: int
    query_tokens: int
    kv_tokens: int
    prefill_tokens: int
    prefill_history_tokens: int


def grid() -> list[Step]:
    """What a careful user measures: decodes with 0 and 3 drafts by batch and context, prefills and both."""
    decodes = [
        Step(batch, query, kv, 0, 0)
        for query in (1, 4)
        for batch in (1, 2, 4, 8, 16, 32, 64, 128, 256)
        for kv in (256, 1024, 4096)
    ]
    prefills = [
        Step(batch, 1, 1024 * (batch > 0), chunk, history)
        for batch in (0, 16)
        for chunk in (64, 256, 1024, 2048, 4096)
        for history in (0, 4096)
    ]
    return decodes + prefills


def anywhere(steps: int, seed: int) -> list[Step]:
    """Steps drawn over the range of `grid`."""
    random, drawn = np.random.default_rng(seed), []
    for _ in range(steps):
        batch, kv, chunk = np.exp(random.uniform(np.log([1, 256, 64]), np.log([256, 4096, 4096]))).astype(int)
        has_prefill = random.random() < 0.3
        query = 1 if has_prefill else int(random.choice([1, 4]))
        history = int(random.integers(0, 4096)) if has_prefill else 0
        drawn.append(Step(int(batch), query, int(kv), int(chunk) * has_prefill, history))
    return drawn


def gpu_s(bundle: Bundle, steps: Iterable[Step]) -> list[float]:
    """GPU time of each step, looked up in the tables that the engine gets."""
    arrays: dict[int, StepArrays] = {}
    times = []
    for step in steps:
        query = max(1, step.query_tokens)  # a step without decodes has none
        if query not in arrays:
            arrays[query] = _arrays(bundle, query)
        times.append(_gpu_s(arrays[query], step))
    return times


def _arrays(bundle: Bundle, query_tokens: int) -> StepArrays:
    """Tables of an engine that verifies so many tokens; the drafter is not timed."""
    drafts = query_tokens - 1
    speculation = replace(
        CONFIG.speculation,
        method=Method.eagle3,
        num_speculative_tokens=drafts,
        draft_cost=DraftCost.zero,
    )
    return step_arrays(bundle, engine(), speculation if drafts else NONE)


def _gpu_s(arrays: StepArrays, step: Step) -> float:
    tokens = step.batch * step.query_tokens + step.prefill_tokens
    graph = 0 if step.prefill_tokens else step.query_tokens
    total = arrays.dense_s[graph, tokens] + arrays.head_s[step.batch * step.query_tokens]
    if step.prefill_tokens:
        chunk = locate(arrays.prefill_chunk_tokens, float(step.prefill_tokens))
        history = locate(arrays.prefill_history_tokens, float(step.prefill_history_tokens))
        total += bilinear(arrays.prefill_attention_s, chunk, history)
    if step.batch:
        requests = locate(arrays.decode_requests, float(step.batch))
        kv_tokens = locate(arrays.decode_kv_tokens, float(step.kv_tokens))
        total += bilinear(arrays.decode_attention_s[step.query_tokens, 0], requests, kv_tokens)
    return float(total)


def write_csv(path: Path, steps: list[Step], bundle: Bundle, noise: float = NOISE, seed: int = 1) -> Path:
    """A CSV of `steps`, each as `bundle` times it, times a lognormal factor."""
    factors = np.exp(noise * np.random.default_rng(seed).standard_normal(len(steps)))
    times_ms = 1e3 * np.array(gpu_s(bundle, steps)) * factors
    lines = [",".join(map(str, (*step, f"{ms:.6g}"))) for step, ms in zip(steps, times_ms, strict=True)]
    path.write_text("\n".join([",".join(COLUMNS), *lines]) + "\n")
    return path


def fitted(path: Path) -> Fitted:
    """The fit to the CSV at `path`, of the shipped configuration's model and GPU."""
    return read_steps(path, CONFIG.model, CONFIG.hardware, Parallel(), ORIGIN)


def text(path: Path, *lines: str) -> Path:
    """A file of these lines."""
    path.write_text("\n".join(lines))
    return path


def refused(path: Path) -> str:
    """The one line with which the CSV at `path` is refused."""
    with pytest.raises(UserError) as caught:
        fitted(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)
