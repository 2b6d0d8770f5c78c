"""Tables of instances that differ: filled up, they give what they give alone."""

from dataclasses import replace

import numpy as np
import pytest
from example_bundle import BUNDLE, CONFIG, NONE, engine

from cluster_sim.assembly import lengths_of, rows_of, step_time_of
from cluster_sim.engine import step_time
from cluster_sim.engine.after_schedule import Batch
from cluster_sim.engine.rules import Drafting, StepTime
from cluster_sim.engine.state import Step, World
from cluster_sim.instances import ranges_of, said_by, words_of
from cluster_sim.step_tables import StepArrays, step_arrays
from cluster_sim.world import empty_table

FINE = step_arrays(BUNDLE, engine(), replace(CONFIG.speculation, num_speculative_tokens=5))
SMALL = step_arrays(BUNDLE, engine(max_num_seqs=16, max_num_scheduled_tokens=512), NONE)
SHORT = step_arrays(BUNDLE, engine(), replace(CONFIG.speculation, num_speculative_tokens=2))
RANDOM = np.random.default_rng(7)
MEASURED = replace(
    SHORT,
    prefill_chunk_tokens=np.array([4.0, 100.0, 4000.0]),
    prefill_history_tokens=np.array([0.0, 64.0, 512.0, 9000.0, 32768.0]),
    prefill_attention_s=RANDOM.random((3, 5)),
    decode_chunk_tokens=np.array([0.0, 64.0, 512.0]),
    decode_requests=np.array([1.0, 8.0, 32.0, 200.0]),
    decode_kv_tokens=np.array([16.0, 300.0, 5000.0]),
    decode_attention_s=RANDOM.random((len(SHORT.decode_attention_s), 3, 4, 3)),
    decode_skew=RANDOM.random(len(SHORT.decode_skew)),
)
SHIFTED = replace(FINE, prefill_history_tokens=FINE.prefill_history_tokens + 64.0)


def random_batches(arrays: StepArrays, count: int, seed: int = 1) -> list[Batch]:
    """Steps within the limits of a kind, on, between and beyond the points of its axes."""
    rng = np.random.default_rng(seed)
    tokens, requests, drafts = (
        len(arrays.draft_first_s) - 1,
        len(arrays.decode_skew) - 1,
        len(arrays.draft_kv_s) - 1,
    )
    found = []
    for _ in range(count):
        chunk, decodes = int(rng.integers(0, tokens // 2)), int(rng.integers(1, requests))
        query = 1 + int(rng.integers(0, drafts + 1))
        kv_tokens = int(rng.choice([1, 16, 500, 4096, 300_000]))
        history = float(rng.choice([0, 0, 7, 1000, 200_000]))
        found.append(
            Batch(
                tokens=min(tokens, chunk + decodes * query),
                requests=decodes,
                rows=decodes * query,
                prefill_tokens=chunk,
                prefill_work=chunk * (history + 0.5 * int(rng.integers(0, chunk + 1))),
                longest_chunk_tokens=chunk,
                decodes=decodes,
                decode_kv_tokens=decodes * kv_tokens,
                longest_kv_tokens=2 * kv_tokens,
                query_tokens=query,
            )
        )
    return found


def seconds(times: StepTime, instance: int, drafts: int, batch: Batch) -> tuple[float, ...]:
    """All parts of a step of an instance that drafts `drafts` tokens."""
    drafting = empty_table(Drafting, 1, num_speculative_tokens=drafts)[0]
    step = empty_table(Step, 1)[0]
    step.draft_length = drafts
    step_time.time_requests(times, drafting, step, instance, batch)
    bundle, last = times.bundle_of[instance], times.dense_s.shape[1] - 1
    graph = batch.query_tokens if batch.query_tokens < last else 0
    dense_s = times.dense_s[bundle, [graph, last, 0], batch.tokens]
    return (*dense_s.tolist(), step.attention_s, step.head_s, step.draft_s)


@pytest.mark.parametrize("own", [FINE, SMALL, MEASURED, SHIFTED])
def test_a_step_takes_the_same_to_the_last_bit_beside_instances_of_other_kinds(own: StepArrays) -> None:
    others, drafts = [FINE, MEASURED, SMALL, SHIFTED], len(own.draft_kv_s) - 1
    alone, among = (step_time_of(arrays, np.arange(len(arrays))) for arrays in ([own], [*others, own]))
    for batch in random_batches(own, 60):
        expected = seconds(alone, 0, drafts, batch)
        assert not np.isnan(expected).any()
        assert seconds(among, len(others), drafts, batch) == expected


@pytest.mark.parametrize(("uniform", "graph"), [(0, 0), (1, 1), (2, 0), (4, 0), (6, 0), (9, 0)])
def test_a_length_without_a_graph_is_a_mixed_batch_beside_instances_that_have_one(
    uniform: int, graph: int
) -> None:
    """Without speculation only 1 has a graph; beside K=5 the table has rows up to 6."""
    marked = replace(SMALL, dense_s=np.arange(len(SMALL.dense_s))[:, np.newaxis] + np.zeros(513))
    times = step_time_of([marked, FINE], np.array([0, 1]))
    world = _World(empty_table(Step, 2, 1, num_tokens=8, uniform_tokens=uniform))
    assert step_time.target_s(world, _Rules(times), 0, 1, 0) == graph
    assert np.array_equal(times.dense_s[0, -1, :513], marked.dense_s[-1])


class _World:
    """What target_s reads of a World."""

    def __init__(self, steps: World) -> None:
        self.steps = steps


class _Rules:
    """What it reads of Rules."""

    def __init__(self, times: object) -> None:
        self.step_time = times


def test_what_is_behind_the_end_of_a_table_would_be_seen() -> None:
    times = step_time_of([SMALL, FINE], np.array([0, 1]))
    assert np.isnan(times.dense_s[0, :, 513:]).all()
    assert np.isnan(times.head_s[0, 17:]).all()
    assert not np.isnan(times.dense_s[1]).any()


def test_each_engine_core_has_the_row_of_its_kind() -> None:
    kind_of = np.array([1, 1, 0])
    tables = [empty_table(Drafting, 1, num_speculative_tokens=drafts) for drafts in (3, 5)]
    assert rows_of(tables, kind_of)["num_speculative_tokens"].tolist() == [5, 5, 3]
    lengths = lengths_of([np.array([3, 2]), np.array([5, 5, 4, 4])], kind_of)
    assert lengths.tolist() == [[5, 5, 4, 4], [5, 5, 4, 4], [3, 2, 2, 2]]
    assert step_time_of([SMALL, FINE], kind_of).bundle_of.tolist() == [1, 1, 0]


def test_instances_are_named_by_ranges() -> None:
    assert ranges_of([0, 2, 3, 4, 9]) == "0,2-4,9"
    assert [words_of([3]), words_of([0, 1])] == ["instance 3", "instances 0-1"]


def test_what_all_kinds_say_is_said_once_and_the_rest_with_who_says_it() -> None:
    lines = [("instance 0", ["for all", "for some", "own"]), ("instance 1", ["for all", "for some"])]
    assert said_by([*lines, ("instance 2", ["for all"])]) == (
        "for all",
        "instance 0 and instance 1: for some",
        "instance 0: own",
    )
    assert said_by(lines[:1]) == ("for all", "for some", "own")
