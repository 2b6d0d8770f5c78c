"""Times from SGLang: responses that say when they came, and scrapes; lengths from histograms."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_bench import write_bench
from exporting import requests_of, simulated, summary_of
from hypothesis import given
from hypothesis import strategies as st
from scraping import series
from test_calibrate import PROFILE, SHIPPED, TRUE_GPU, TRUE_RATES, calibrated, holds

from cluster_sim import cli
from cluster_sim.bundle import format as bundle_format
from cluster_sim.calibrate.growth import Growth, Histogram
from cluster_sim.calibrate.length_buckets import lengths_of
from cluster_sim.calibrate.page import SGLANG, Page
from cluster_sim.calibrate.parts import scaled
from cluster_sim.errors import UserError

LENGTHS = (
    "workload.prompt_tokens={distribution: lognormal, mean: 400, cv: 0.8, max: 3000}",
    "workload.output_tokens={distribution: lognormal, mean: 120, cv: 0.7, min: 2, max: 600}",
)
RATES = (5, 15, 25)
NOTE = "SGLang's server is simulated with vLLM's scheduler: what theirs do differently goes into the fit"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Loads on a server whose GPU is slower than the shipped bundle says; results of this tool."""
    directory = tmp_path_factory.mktemp("server") / "bundle"
    bundle = scaled(bundle_format.read(SHIPPED), {"gpu": TRUE_GPU}, "true", "made for a test")
    bundle_format.write(bundle, directory)
    server = (f"cluster.bundle={directory}", PROFILE, *LENGTHS)
    return [
        simulated(tmp_path_factory.mktemp("load"), *server, f"workload.request_rate={rate}", f"seed={rate}")
        for rate in RATES
    ]


def response(row: Mapping[str, Any]) -> dict[str, Any]:
    """What SGLang says of a request, its drafts rounded to whole ones."""
    return {
        "prompt_tokens": row["prompt_tokens"],
        "completion_tokens": row["emitted_tokens"],
        "cached_tokens": row["cached_tokens"],
        "request_received_ts": 1.7643e9 + row["arrival_s"],
        "e2e_latency": row["e2el_s"],
        **spoken(row),
    }


def spoken(row: Mapping[str, Any]) -> dict[str, Any]:
    """Verifications of three drafts each that accepted so many in all."""
    events, accepted = row["drafted_tokens"] // 3, row["accepted_tokens"]
    whole, rest = divmod(min(accepted, 3 * events), 3)
    histogram = [events - whole - (rest > 0), 0, 0, whole]
    histogram[rest] += rest > 0
    return {"spec_verify_ct": events, "spec_correct_drafts_histogram": histogram}


def page(directory: Path) -> str:
    """/metrics of SGLang after the load, by its own definitions."""
    rows = requests_of(directory)
    gaps_s = sum(row["e2el_s"] - row["ttft_s"] for row in rows)
    tokens = sum(row["emitted_tokens"] for row in rows)
    counters = {
        "prompt_tokens_total": sum(row["prompt_tokens"] for row in rows),
        "generation_tokens_total": tokens,
        "cached_tokens_total": sum(row["cached_tokens"] for row in rows),
        "estimated_flops_per_gpu_total": 1.5e17,
    }
    lines = [f'sglang:{name}{{model_name="m"}} {float(value)}' for name, value in counters.items()]
    lines += [f'sglang:{name}{{model_name="m"}} 0.0' for name in ("num_running_reqs", "num_queue_reqs")]
    histograms = {
        "time_to_first_token_seconds": (len(rows), sum(row["ttft_s"] for row in rows)),
        "e2e_request_latency_seconds": (len(rows), sum(row["e2el_s"] for row in rows)),
        "inter_token_latency_seconds": (tokens - len(rows), gaps_s),
    }
    for name, (count, total) in histograms.items():
        lines += [
            f'sglang:{name}_bucket{{le="+Inf",model_name="m"}} {float(count)}',
            f'sglang:{name}_count{{model_name="m"}} {float(count)}',
            f'sglang:{name}_sum{{model_name="m"}} {total}',
        ]
    return "\n".join(lines) + "\n"


# ---- round trips ----


def test_responses_that_say_when_they_came_tell_the_scale(served: list[Path], tmp_path: Path) -> None:
    """Each file is a load; its requests are simulated as they came."""
    files = [
        write_bench(tmp_path / f"{number}.jsonl", [{"meta_info": response(row)} for row in requests_of(each)])
        for number, each in enumerate(served)
    ]
    found = calibrated([*files], tmp_path / "out")
    gpu = found["timing"]["values"]["gpu"]
    assert holds(gpu, TRUE_GPU)
    assert gpu["value"] == pytest.approx(TRUE_GPU, rel=0.03)
    assert found["timing"]["metrics"] == ["e2el"]
    assert NOTE in found["notes"]


def test_scrapes_tell_the_scale_and_responses_the_profile(served: list[Path], tmp_path: Path) -> None:
    scrapes = series([page(each) for each in served], tmp_path)
    rows = [{"meta_info": spoken(row)} for each in served for row in requests_of(each)]
    responses = write_bench(tmp_path / "responses.jsonl", rows)
    seconds = ",".join(str(summary_of(each)["simulated_s"]) for each in served)
    after = [word for file in scrapes[1:] for word in ("--metrics-after", file)]
    words = [responses, "--metrics-before", scrapes[0], *after, "--metrics-seconds", seconds]
    found = calibrated(words, tmp_path / "out")
    gpu = found["timing"]["values"]["gpu"]
    assert holds(gpu, TRUE_GPU)
    assert found["timing"]["metrics"] == ["itl_per_token"]
    (row,) = found["acceptance"]
    assert row["acceptance_length"]["value"] == pytest.approx(1 + sum(TRUE_RATES), rel=0.03)
    assert found["notes"] == [
        "times are not fitted to responses without request_received_ts (SGLang's --enable-metrics)",
        "a scrape does not say how requests arrive: poisson is assumed, and that lengths of prompts and "
        "outputs do not depend on each other",
        NOTE,
        "SGLang counts drafts as if all were of the longest: its server must not adapt their length",
    ]


def test_a_server_without_a_drafter_needs_no_counts(served: list[Path], tmp_path: Path) -> None:
    """Responses of a target alone, here of one that is as fast as another with drafts: no truth to find."""
    keys = ("prompt_tokens", "completion_tokens", "request_received_ts", "e2e_latency")
    files = [
        write_bench(
            tmp_path / f"{number}.jsonl",
            [{"meta_info": {key: response(row)[key] for key in keys}} for row in requests_of(each)],
        )
        for number, each in enumerate(served[:2])
    ]
    found = calibrated([*files, "speculation=none"], tmp_path / "out")
    assert found["acceptance"] == []
    assert list(found["timing"]["values"]) == ["gpu"]


def test_a_scrape_without_counts_of_drafts_makes_no_profile(
    served: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = series([page(served[0])], tmp_path)
    assert cli.main(["calibrate", "--metrics-before", str(first), "--metrics-after", str(second)]) == 2
    assert capsys.readouterr().err == (
        "cluster_sim: error: a profile needs counts of drafts: spec_decode_* of vLLM's result, two scrapes, "
        "or meta_info, but got none in any file (calibrate). Add such a file, or write speculation=none to "
        "fit the target alone.\n"
    )


# ---- lengths of a histogram ----


def histogram(bounds: Sequence[float], counts: Sequence[int], total: float) -> Histogram:
    return Histogram((*bounds, math.inf), (*counts, 0), total, sum(counts))


NOWHERE = Page(Path("scrape"), SGLANG, {}, None)
SCRAPES = Growth(NOWHERE, NOWHERE)


@given(lengths=st.lists(st.integers(1, 9000), min_size=1, max_size=300))
def test_lengths_have_the_buckets_and_the_mean_of_those_that_were_counted(lengths: list[int]) -> None:
    bounds = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0]
    edges = np.array([0.0, *bounds])
    counts = np.histogram(lengths, edges + 0.5)[0]
    found = lengths_of(histogram(bounds, counts.tolist(), float(sum(lengths))), "prompt_tokens", SCRAPES)
    assert np.array_equal(np.histogram(found, edges + 0.5)[0], counts)
    assert np.mean(found) == pytest.approx(np.mean(lengths), abs=max(0.5, 0.01 * float(np.mean(lengths))))


def test_a_mean_outside_its_buckets_is_refused() -> None:
    with pytest.raises(UserError) as raised:
        lengths_of(histogram([100.0, 200.0], [0, 10], 5000.0), "prompt_tokens", SCRAPES)
    assert str(raised.value) == (
        "the mean of prompt_tokens, 500, lies within its buckets, but got 200 at the nearest (scrape, "
        "scrape). Take both scrapes from one run of one server."
    )
