"""Measured runs: what of their flags reaches the simulation, and the runs that are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from example_measured import (
    HEADER,
    REQUESTS,
    Row,
    refused,
    sound_rows,
    write_engine,
    write_measured,
    write_sound_run,
)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cluster_sim.errors import UserError
from cluster_sim.measured_run import ENGINE, MEASURED, WORKLOAD, config_of, read_measured
from cluster_sim.validate import validate

SCHEDULED, FIRST, LAST = 2, 3, 4  # columns of a row
README = "README.md, Measured runs, has the format."


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A measured run without error, to change."""
    return write_sound_run(tmp_path / "run")


@pytest.fixture
def rows() -> list[Row]:
    """The rows of its measured.csv, to change."""
    return sound_rows()


# ---- what runs ----


def test_flags_become_the_configuration(run: Path) -> None:
    cache = {"num_gpu_blocks": 2588, "block_size": 32, "enable_prefix_caching": False, "num_cpu_blocks": None}
    write_engine(run, max_num_seqs=7, max_model_len=4096, kv_cache=cache | {"gpu_memory_utilization": 0.8})
    config = config_of(run, None, [])
    assert (config.model.name, config.hardware.name, config.speculation.method.name) == (
        *("llama-3.1-8b", "h100"),
        "none",
    )
    engine = config.engine
    assert (engine.max_num_seqs, engine.max_num_batched_tokens, engine.max_model_len) == (7, 2048, 4096)
    assert (engine.num_gpu_blocks, engine.block_size) == (2588, 32)
    assert (engine.gpu_memory_utilization, engine.enable_prefix_caching) == (0.8, False)
    assert (config.workload.trace, config.cluster.bundle) == (str(run / WORKLOAD), None)


def test_two_ranks_with_expert_parallelism_are_configured(run: Path) -> None:
    names = {"model": "Qwen/Qwen3-30B-A3B-Instruct-2507", "hardware": "RTXPRO6000"}
    write_engine(run, data_parallel_size=2, enable_expert_parallel=True, **names)
    cluster = config_of(run, None, []).cluster
    assert (cluster.tensor_parallel_size, cluster.data_parallel_size) == (1, 2)
    assert cluster.enable_expert_parallel


@pytest.mark.parametrize(("version", "utilization"), [("0.9.1", 0.9), ("0.19.0", 0.9), ("0.33.0", 0.92)])
def test_memory_that_was_not_recorded_is_shared_as_that_vllm_did(
    run: Path, version: str, utilization: float
) -> None:
    """../shared/hardware/README.md: 0.92 since 0.33, 0.90 up to 0.19."""
    write_engine(run, vllm_version=version)
    assert config_of(run, None, []).engine.gpu_memory_utilization == utilization


def test_without_a_version_memory_must_be_said(run: Path) -> None:
    write_engine(run, vllm_version=...)
    assert refused(run) == (
        f"vllm_version must be a version such as 0.19.0, but got null ({run / ENGINE}). {README}"
    )
    assert config_of(run, None, ["engine.gpu_memory_utilization=0.85"]).engine.gpu_memory_utilization == 0.85
    write_engine(run, vllm_version=..., kv_cache={"gpu_memory_utilization": 0.8})
    assert config_of(run, None, []).engine.gpu_memory_utilization == 0.8


def test_set_reaches_the_run(run: Path) -> None:
    """With one seat requests wait for one another: the engine of the run had eight."""
    one_seat = validate(run, None, ["engine.max_num_seqs=1"]).as_dict()["metrics"]
    assert one_seat["ttft_s"]["p99"]["error_percent"] > 100.0
    assert one_seat["output_throughput_tok_s"]["error_percent"] < -10.0


def test_a_group_that_set_chooses_takes_the_place_of_the_runs(run: Path) -> None:
    """So a model that no option is named after can be validated, too."""
    write_engine(run, model="mine", hardware="L4")
    config = config_of(run, None, ["model=qwen3-8b", "hardware=a100", "speculation=eagle3"])
    assert (config.model.name, config.hardware.name) == ("qwen3-8b", "a100")
    assert config.speculation.method.name == "eagle3"


def test_the_bundle_may_be_anywhere(run: Path) -> None:
    assert config_of(run, "a bundle, [mine]", []).cluster.bundle == "a bundle, [mine]"


@pytest.mark.parametrize("name", ["my run, 2", "it's", "a=b", "{x}", "[1]", "50%", "a\\", "ü"])
def test_a_directory_may_have_any_name(tmp_path: Path, name: str) -> None:
    run = tmp_path / name
    run.mkdir()
    write_engine(run)
    assert config_of(run, None, []).workload.trace == str(run / WORKLOAD)


def test_rows_are_in_order_of_arrival_from_zero(run: Path, rows: list[Row]) -> None:
    write_measured(run, rows[::-1])
    measured = read_measured(run / MEASURED)
    assert measured.arrival_s.tolist() == [row[1] for row in rows]
    assert measured.prompt_tokens.tolist() == [prompt for _, prompt, _ in REQUESTS]


# ---- what is refused ----


@pytest.mark.parametrize("name", [ENGINE, WORKLOAD, MEASURED])
def test_a_missing_file_is_named(run: Path, name: str) -> None:
    (run / name).unlink()
    assert str(run / name) in refused(run)


def test_a_missing_directory_is_one_line(tmp_path: Path) -> None:
    assert refused(tmp_path / "none") == (
        "engine.json must hold the arguments of vLLM's engine as JSON, but got no such file "
        f"({tmp_path / 'none' / ENGINE}). {README}"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dtype": "fp8"}, 'dtype must be bfloat16, which is what has costs, but got "fp8"'),
        ({"kv_cache_dtype": "fp8"}, 'kv_cache_dtype must be auto, which is what has costs, but got "fp8"'),
        ({"pipeline_parallel_size": 2}, "but got 'pipeline_parallel_size'"),
        ({"kv_cache": {"swap_space": 4}}, "but got 'swap_space'"),
        ({"kv_cache": []}, "engine.json must be an object of flags, and kv_cache one or null"),
        ({"model": ...}, "model must be named, but got null"),
        ({"hardware": 4090}, "hardware must be named, but got 4090"),
        ({"model": "Qwen/Qwen3-32B-FP8"}, "Choose one with --set model=OPTION"),
        ({"hardware": "RTX4091"}, "Choose one with --set hardware=OPTION"),
        ({"max_num_seqs": "8,16"}, 'max_num_seqs must be a number, true, false or null, but got "8,16"'),
        ({"max_num_seqs": [8]}, "max_num_seqs must be a number, true, false or null, but got [8]"),
        ({"max_num_seqs": 0}, "engine.max_num_seqs"),
        ({"max_num_seqs": 8.5}, "engine.max_num_seqs"),
        ({"max_model_len": True}, "engine.max_model_len"),
        ({"kv_cache": {"block_size": "16"}}, "block_size must be a number, true, false or null"),
        ({"tensor_parallel_size": 3}, "tensor_parallel_size"),
    ],
)
def test_engine_arguments_without_costs_or_sense_are_refused(
    run: Path, changes: dict[str, Any], said: str
) -> None:
    write_engine(run, **changes)
    assert said in refused(run)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "3", '{"model": NaN', "[" * 100_000, '{"a":' * 9_999]
)
def test_an_engine_json_that_is_none_is_refused(run: Path, text: str) -> None:
    (run / ENGINE).write_text(text)
    assert refused(run).startswith("engine.json must ")


def _without_second(rows: list[Row]) -> list[Row]:
    return [*rows[:1], *rows[2:]]


def _longer(column: int) -> Callable[[list[Row]], list[Row]]:
    def change(rows: list[Row]) -> list[Row]:
        rows[3][column] += 1
        return rows

    return change


def _later(rows: list[Row]) -> list[Row]:
    for column in range(1, 5):
        rows[-1][column] += 0.5
    return rows


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_without_second, "there must be one row for each of 12 requests, but got 11"),
        (_longer(5), "prompt_tokens must be the workload's: 121 for request 3 by arrival, but got 122"),
        (_longer(6), "output_tokens must be the workload's: 23 for request 3 by arrival, but got 24"),
        (_later, "arrival_s must be the workload's: "),
    ],
)
def test_files_of_different_requests_are_refused(
    run: Path, rows: list[Row], change: Callable[[list[Row]], list[Row]], said: str
) -> None:
    write_measured(run, change(rows))
    assert refused(run).startswith(said)
    assert str(run / MEASURED) in refused(run)


def test_a_trace_at_another_rate_is_not_the_measured_one(run: Path) -> None:
    assert refused(run, "workload.request_rate=1").startswith("arrival_s must be the workload's: ")


def test_a_request_that_the_simulated_engine_rejects_is_refused(run: Path) -> None:
    """A longer prompt than the engine's: the run was not made with this engine."""
    said = "the simulated engine must serve every request, but got "
    assert refused(run, "engine.max_model_len=150").startswith(said)


@pytest.mark.parametrize(
    ("column", "value"), [(SCHEDULED, 0.0), (FIRST, 0.0), (LAST, 0.0), (SCHEDULED, 1e6), (FIRST, 1e6)]
)
def test_times_out_of_order_are_refused_with_their_line(
    run: Path, rows: list[Row], column: int, value: float
) -> None:
    rows[2][column] = value
    write_measured(run, rows)
    assert f"({run / MEASURED} line 4)" in refused(run)
    assert refused(run).startswith("arrival_s <= scheduled_s <= first_token_s <= last_token_s must hold")


def test_two_tokens_at_one_time_have_no_tpot_to_compare_with(run: Path, rows: list[Row]) -> None:
    rows[2][LAST] = rows[2][FIRST]
    write_measured(run, rows)
    assert refused(run).startswith("arrival_s <= scheduled_s <= first_token_s <= last_token_s must hold")


def test_a_run_of_single_tokens_has_no_tpot_at_all(run: Path, rows: list[Row]) -> None:
    write_measured(run, [[*row[:LAST], row[FIRST], row[5], 1] for row in rows])
    assert refused(run).startswith("a request must have two or more output_tokens")


@pytest.mark.parametrize(
    "text",
    ["", HEADER, HEADER.replace("last_token_s", "end_s"), f"{HEADER}\n1,2\n", f"{HEADER}\n{',nan' * 6}"],
)
def test_a_damaged_table_is_refused(run: Path, text: str) -> None:
    (run / MEASURED).write_text(text)
    assert str(run / MEASURED) in refused(run)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([ENGINE, WORKLOAD, MEASURED]),
    at=st.floats(0.0, 1.0),
    length=st.integers(0, 40),
    junk=st.one_of(
        st.binary(max_size=8), st.sampled_from([b"1e999", b"-1", b"9" * 400, b"null", b"\n", b",", b"[]"])
    ),
)
@example(name=ENGINE, at=0.0, length=10_000, junk=b"")
def test_damage_is_refused_or_harmless(run: Path, name: str, at: float, length: int, junk: bytes) -> None:
    """Whatever the bytes: a comparison of finite numbers, or one line."""
    file = run / name
    whole = file.read_bytes()
    start = int(at * len(whole))
    file.write_bytes(whole[:start] + junk + whole[start + length :])
    try:
        json.dumps(validate(run, None, []).as_dict(), allow_nan=False)
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017  either outcome is sound
    finally:
        file.write_bytes(whole)
