"""A CSV of whole steps becomes a bundle: what is fitted, what it says, and what its data cannot hold."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from example_bundle import BUNDLE
from example_steps import HEADER, ORIGIN, Step, anywhere, fitted, gpu_s, grid, refused, text, write_csv

from cluster_sim.bundle import format as bundle_format
from cluster_sim.bundle import roofline
from cluster_sim.bundle.architecture import Parallel
from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.bundle.importers.whole_steps import read_steps, residual_table
from cluster_sim.compose import compose
from cluster_sim.expert_tables import Ranks, experts_s

CAPTURED = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
Rule = Callable[[Step], float]


def written(path: Path, steps: list[Step], step_ms: Rule) -> Path:
    """A CSV of `steps` that take what a rule says, exactly."""
    lines = [",".join(map(str, (*step, f"{step_ms(step):.9g}"))) for step in steps]
    path.write_text("\n".join([HEADER, *lines]))
    return path


@pytest.fixture(scope="module")
def grid_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The grid as the roofline bundle of Llama-3.1-8B on H100 times it, with 2 % noise."""
    return write_csv(tmp_path_factory.mktemp("steps") / "grid.csv", grid(), BUNDLE)


# ---- what is fitted ----


@pytest.mark.parametrize("steps", [grid(), anywhere(60, seed=5), anywhere(1000, seed=7)], ids=len)
def test_steps_of_a_known_bundle_come_back(tmp_path, steps):
    """300 other steps over the measured range, against 2 % noise: deterministic, so no false alarms."""
    found = fitted(write_csv(tmp_path / "steps.csv", steps, BUNDLE)).bundle
    others = anywhere(300, seed=99)
    errors = np.abs(np.array(gpu_s(found, others)) / np.array(gpu_s(BUNDLE, others)) - 1)
    assert np.median(errors) < 0.01
    assert np.quantile(errors, 0.9) < 0.025
    assert errors.max() < 0.05


def test_residuals_are_those_of_the_tables_that_the_engine_gets(tmp_path):
    steps = anywhere(80, seed=3)
    found = fitted(write_csv(tmp_path / "steps.csv", steps, BUNDLE))
    by_engine = np.array(gpu_s(found.bundle, steps))
    assert [row.fitted_s for row in found.residuals] == pytest.approx(
        by_engine, rel=1e-3
    )  # chunks between points


def test_the_linear_form_comes_back_exactly(tmp_path):
    """SpecDecode-Bench's fit, ../shared/spec-decode-facts.md C1, in ms; tokens at captured sizes."""

    def step_ms(step: Step) -> float:
        tokens, context = step.batch * step.query_tokens + step.prefill_tokens, step.batch * step.kv_tokens
        work = step.prefill_tokens * (step.prefill_history_tokens + 0.5 * step.prefill_tokens)
        return 5.886 + 2.101e-2 * tokens + 3.926e-5 * context + 1e-6 * work

    decodes = [Step(batch, 1, kv, 0, 0) for batch in CAPTURED for kv in (200, 2000)]
    prefills = [Step(0, 0, 0, chunk, history) for chunk in (512, 1024, 2048) for history in (0, 1024)]
    tables = fitted(written(tmp_path / "steps.csv", decodes + prefills, step_ms)).bundle.tables
    dense, decode = tables["dense"], tables["decode_attention"]
    tokens = np.array(dense.axes["tokens"])
    assert dense.time_s + tables["head"].time_s[0] == pytest.approx(5.886e-3 + 2.101e-5 * tokens, rel=1e-4)
    context = decode.axes["requests"][-1] * decode.axes["kv_tokens"][-1]
    assert decode.time_s[0, 0, -1, -1] == pytest.approx(3.926e-8 * context, rel=1e-4)


def test_more_queries_read_a_context_no_faster(grid_csv):
    """Verify attention of the roofline: 1 + 0.12 (q - 1) reads."""
    decode = fitted(grid_csv).bundle.tables["decode_attention"]
    assert decode.axes["query_tokens"].tolist() == [1, 4]
    one, four = decode.time_s[:, 0, -1, -1]
    assert four / one == pytest.approx(1 + 3 * BUNDLE.parameters["verify_attention"].value, rel=0.05)


def test_a_padded_step_counts_as_its_graph(tmp_path):
    """121 tokens run in the graph of 128 (spec-decode-facts.md C4): the engine pads, so the fit must too."""
    decodes = [Step(batch, 1, kv, 0, 0) for batch in (9, 33, 121, 250) for kv in (200, 2000)]
    prefills = [Step(0, 0, 0, chunk, history) for chunk in (1024, 2048) for history in (0, 1024)]
    found = fitted(write_csv(tmp_path / "steps.csv", decodes + prefills, BUNDLE, noise=0.0)).bundle
    assert found.tables["dense"].axes["tokens"].tolist()[:4] == [16, 40, 128, 256]
    assert gpu_s(found, decodes) == pytest.approx(gpu_s(BUNDLE, decodes), rel=0.01)


def test_experts_that_more_tokens_wake_are_told_from_what_tokens_cost(tmp_path):
    """Mixtral: 2 of 8 experts; steps rise steeply to 8 tokens, then flatten (spec-decode-facts.md C8)."""
    config = compose(["model=mixtral-8x7b", "hardware=h100", "speculation=none"])
    parallel, ranks = Parallel(4), Ranks(tensor_parallel_size=4)
    truth = roofline.build(config.model, config.hardware, parallel)
    csv = write_csv(tmp_path / "steps.csv", grid(), truth)
    found = read_steps(csv, config.model, config.hardware, parallel, ORIGIN).bundle
    few = np.array([1, 2, 4, 8])  # the launches, which all take, are in dense
    rise_s = np.diff(experts_s(truth, few, ranks))
    assert np.diff(experts_s(found, few, ranks)) == pytest.approx(rise_s, rel=0.1)
    others = anywhere(200, seed=99)
    errors = np.abs(np.array(gpu_s(found, others)) / np.array(gpu_s(truth, others)) - 1)
    assert np.quantile(errors, 0.9) < 0.03


def test_whole_synchronous_steps_are_taken_apart_from_the_host(tmp_path, grid_csv):
    """sync_step_ms = GPU + host_s: under synchronous scheduling the engine adds the same again."""
    host_ms = assumptions().parameters["host_s"].value * 1e3
    header, *lines = grid_csv.read_text().splitlines()
    rows = [line.rsplit(",", 1) for line in lines]
    slower = [f"{rest},{float(ms) + host_ms:.9g}" for rest, ms in rows]
    found = fitted(text(tmp_path / "sync.csv", header.replace("step_ms", "sync_step_ms"), *slower)).bundle
    dense, wanted = found.tables["dense"], fitted(grid_csv).bundle.tables["dense"]
    assert dense.time_s == pytest.approx(wanted.time_s, rel=1e-4)


# ---- what the bundle says ----


def test_the_bundle_can_be_written_and_read(tmp_path, grid_csv):
    found = fitted(grid_csv).bundle
    bundle_format.write(found, tmp_path)
    read = bundle_format.read(tmp_path)
    assert replace(read, tables={}) == replace(found, tables={})
    assert (read.kind, read.name, read.drafters) == ("measured", "llama-3.1-8b-h100-tp1", {})


def test_the_same_csv_gives_the_same_bytes_wherever_it_lies(tmp_path, grid_csv):
    copy = tmp_path / "copy.csv"
    copy.write_bytes(grid_csv.read_bytes().replace(b"\n", b"\r\n"))
    for name, csv in (("first", grid_csv), ("second", copy)):
        bundle_format.write(fitted(csv).bundle, tmp_path / name)
    assert bundle_format.digest(tmp_path / "first") == bundle_format.digest(tmp_path / "second")


def test_what_is_not_measured_says_so(grid_csv):
    parameters = fitted(grid_csv).bundle.parameters
    assert parameters["piecewise_layer_gap_s"].source.startswith("fitted to whole steps")
    assumed = {name for name, entry in parameters.items() if entry.source.startswith("not measured here: ")}
    assert assumed == parameters.keys() - {"piecewise_layer_gap_s"}


def test_what_steps_cannot_tell_apart_is_zero_and_says_so(tmp_path):
    """Prefills in every step: there are no launches without gaps to compare with."""
    steps = [
        Step(batch, 1, kv, chunk, history)
        for batch in (4, 64)
        for kv in (500, 5000)
        for chunk in (512, 2048)
        for history in (0, 4096)
    ]
    found = fitted(write_csv(tmp_path / "steps.csv", steps, BUNDLE)).bundle
    gap = found.parameters["piecewise_layer_gap_s"]
    assert gap.value == 0.0
    assert "cannot tell it apart" in gap.source


def test_prefill_attention_that_steps_do_not_tell_is_that_of_the_roofline(tmp_path):
    """Two chunk sizes without history: the square of the chunk is not told from what tokens cost."""
    decodes = [
        Step(batch, query, kv, 0, 0) for batch in (1, 8, 32, 128) for query in (1, 4) for kv in (512, 4096)
    ]
    prefills = [Step(0, 0, 0, chunk, 0) for chunk in (512, 2048)]
    found = fitted(write_csv(tmp_path / "steps.csv", decodes + prefills, BUNDLE))
    table, roof = (bundle.tables["prefill_attention"] for bundle in (found.bundle, BUNDLE))
    assert np.array_equal(table.time_s, roof.time_s)
    assert table.source == f"not measured here: {roof.source}"
    assert list(residual_table(found))[2].startswith("not measured here: prefill_attention, ")
    others = anywhere(200, seed=99)
    errors = np.abs(np.array(gpu_s(found.bundle, others)) / np.array(gpu_s(BUNDLE, others)) - 1)
    assert np.quantile(errors, 0.9) < 0.04
    assert [row.fitted_s for row in found.residuals] == pytest.approx(gpu_s(found.bundle, decodes + prefills))


def test_a_host_is_no_slower_than_its_fastest_step_without_a_full_graph(tmp_path):
    """Otherwise the engine would take longer for a step than was measured: 1 ms for 32 layers, say."""
    csv = written(
        tmp_path / "steps.csv",
        grid(),
        lambda step: 1.0 + 1e-3 * (step.batch * step.query_tokens + step.prefill_tokens)
        + 1e-6 * step.batch * step.kv_tokens
        + 1e-8 * step.prefill_tokens * (step.prefill_history_tokens + 0.5 * step.prefill_tokens),
    )  # fmt: skip
    launch = fitted(csv).bundle.parameters["piecewise_layer_launch_s"]
    assert launch.value == pytest.approx(1.064e-3 / 32, rel=0.01)
    assert launch.source.startswith("at most that of the fastest whole step")


def test_errors_are_shown_with_the_line_they_belong_to(grid_csv):
    found = fitted(grid_csv)
    lines = list(residual_table(found))
    assert lines[0].startswith("fit: error over 74 steps median ")
    assert lines[1].startswith("held out (10 folds, line by line): error over 74 steps median ")
    assert lines[2].startswith("not measured here: verify_attention, host_s, ")
    assert len(lines) == 5 + 20
    worst = max(found.residuals, key=lambda row: abs(row.error))
    assert lines[5].split()[:2] == [str(worst.line), f"{worst.measured_s * 1e3:.3f}"]
    held_out = [abs(row.held_out_error) for row in found.residuals]
    assert np.median(held_out) > np.median([abs(row.error) for row in found.residuals])
    assert np.median(held_out) < 0.03


# ---- data that cannot hold the numbers ----


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (
            lambda step: step.prefill_tokens == 0,
            "prefill_tokens must have at least two different values above 0",
        ),
        (lambda step: step.batch == 0, "batch must have at least two different values above 0, but got none"),
        (
            lambda step: step.batch in {0, 16},
            "batch must have at least two different values above 0, but got 16",
        ),
        (
            lambda step: step.query_tokens != 4 or step.kv_tokens == 256,
            "kv_tokens with query_tokens 4 must have at least two different values above 0, but got 256",
        ),
    ],
)
def test_a_column_that_does_not_vary_is_named(tmp_path, kept, said):
    csv = write_csv(tmp_path / "steps.csv", [step for step in grid() if kept(step)], BUNDLE)
    assert said in refused(csv)


def test_a_context_that_only_follows_the_batch_is_refused(tmp_path):
    """Then batch * kv_tokens is a straight line over tokens: its cost cannot be told from theirs."""
    decodes = [Step(batch, 1, 1000 + batch % 3, 0, 0) for batch in CAPTURED]
    prefills = [Step(0, 0, 0, chunk, history) for chunk in (512, 1024, 2048) for history in (0, 1024)]
    csv = write_csv(tmp_path / "steps.csv", [*decodes, *prefills], BUNDLE)
    line = refused(csv)
    assert "kv_tokens must vary apart from the other columns" in line
    assert "column kv_tokens" in line


def test_too_few_steps_are_refused(tmp_path):
    steps = [Step(1, 1, 100, 0, 0), Step(64, 1, 5000, 0, 0), Step(0, 0, 0, 512, 0), Step(0, 0, 0, 4096, 4096)]
    line = refused(write_csv(tmp_path / "steps.csv", steps * 3, BUNDLE))
    assert "4 numbers are fitted, which takes at least 5 different steps, but got 4" in line
