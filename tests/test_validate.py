"""`validate`: a measured run beside its simulation, the contract of its JSON, and what the command says."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_measured import (
    Row,
    sound_rows,
    write_measured,
    write_sound_run,
    write_workload,
)

from cluster_sim import cli
from cluster_sim.report.terminal import to_text
from cluster_sim.report.validation import validation_view
from cluster_sim.validate import STATISTICS, validate

LATENCIES = ("ttft_s", "tpot_s", "e2el_s")
FIRST, LAST, OUTPUT = 3, 4, 6  # columns of a row


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A measured run without error, to change."""
    return write_sound_run(tmp_path / "run")


@pytest.fixture
def rows() -> list[Row]:
    """The rows of its measured.csv, to change."""
    return sound_rows()


def compared(directory: Path, *overrides: str) -> dict[str, Any]:
    return validate(directory, None, overrides).as_dict()


# ---- the comparison ----


def test_a_run_that_the_simulator_made_has_no_error(run: Path) -> None:
    found = compared(run)
    for name in LATENCIES:
        for of in STATISTICS:
            cell = found["metrics"][name][of]
            assert (cell["error_percent"], cell["simulated"]) == (0.0, cell["measured"])
        assert found["mape_percent"][name] == 0.0
    assert found["metrics"]["output_throughput_tok_s"]["error_percent"] == 0.0


def test_the_json_is_the_contract_and_no_more(run: Path, tmp_path: Path) -> None:
    """../shared/DESIGN.md section 15."""
    file = tmp_path / "errors.json"
    assert cli.main(["validate", str(run), "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    cell = {"measured", "simulated", "error_percent"}
    assert found.keys() == {"metrics", "mape_percent"}
    assert found["metrics"].keys() == {*LATENCIES, "output_throughput_tok_s"}
    assert found["metrics"]["output_throughput_tok_s"].keys() == cell
    assert found["mape_percent"].keys() == set(LATENCIES)
    for name in LATENCIES:
        assert found["metrics"][name].keys() == {"mean", "p50", "p90", "p95", "p99"}
        assert all(found["metrics"][name][of].keys() == cell for of in STATISTICS)


def test_measured_statistics_are_those_of_the_file(run: Path, rows: list[Row]) -> None:
    """TTFT, TPOT and E2E from arrival_s, which is when the engine picked the request up."""
    table = np.array(rows)
    arrival_s, first_s, last_s, tokens = (table[:, column] for column in (1, FIRST, LAST, OUTPUT))
    latencies = first_s - arrival_s, (last_s - first_s) / (tokens - 1), last_s - arrival_s
    metrics = compared(run)["metrics"]
    for name, values in zip(LATENCIES, latencies, strict=True):
        assert metrics[name]["mean"]["measured"] == pytest.approx(values.mean(), rel=1e-12)
        assert metrics[name]["p90"]["measured"] == pytest.approx(np.percentile(values, 90), rel=1e-12)
    throughput = tokens.sum() / (last_s.max() - arrival_s.min())
    assert metrics["output_throughput_tok_s"]["measured"] == pytest.approx(throughput, rel=1e-12)


def test_a_request_that_took_twice_as_long_shows_as_just_that(run: Path, rows: list[Row]) -> None:
    """Simulated is half of measured: 50 % of one request, so 50 % / n in the mean over requests."""
    e2el_s = np.array([row[LAST] - row[1] for row in rows])
    changed = int(np.argmin(e2el_s))
    rows[changed][LAST] += float(e2el_s[changed])
    write_measured(run, rows)
    found = compared(run)
    assert found["mape_percent"]["ttft_s"] == 0.0
    assert found["mape_percent"]["e2el_s"] == pytest.approx(50.0 / len(rows))
    mean = e2el_s.sum() / (e2el_s.sum() + e2el_s[changed]) - 1.0
    assert found["metrics"]["e2el_s"]["mean"]["error_percent"] == pytest.approx(100.0 * mean)
    assert found["metrics"]["ttft_s"]["mean"]["error_percent"] == 0.0


def test_a_later_end_lowers_the_measured_throughput(run: Path, rows: list[Row]) -> None:
    last = max(rows, key=lambda row: row[LAST])
    last[LAST] *= 1.25
    write_measured(run, rows)
    throughput = compared(run)["metrics"]["output_throughput_tok_s"]
    assert throughput["error_percent"] == pytest.approx(25.0)


def test_a_request_of_one_token_has_no_tpot(run: Path, rows: list[Row]) -> None:
    """Nothing follows its first token; it counts in TTFT and E2E."""
    write_workload(run, [(row[1], int(row[5]), 1 if row is rows[-1] else int(row[6])) for row in rows])
    rows[-1][LAST], rows[-1][OUTPUT] = rows[-1][FIRST], 1
    write_measured(run, rows)
    found = compared(run)
    assert found["mape_percent"]["ttft_s"] == 0.0
    assert found["mape_percent"]["e2el_s"] < 1.0


def test_the_order_of_rows_does_not_matter(run: Path, rows: list[Row]) -> None:
    """A file may list requests as they were sent: the engine picks them up in another order."""
    write_measured(run, rows[::-1])
    write_workload(run, [(row[1], int(row[5]), int(row[6])) for row in rows[::-1]])
    assert compared(run)["mape_percent"] == dict.fromkeys(LATENCIES, 0.0)


def test_the_clock_of_the_measurement_may_start_anywhere(run: Path, rows: list[Row]) -> None:
    write_measured(run, [[row[0], *(time_s + 32.0 for time_s in row[1:5]), *row[5:]] for row in rows])
    assert compared(run)["mape_percent"] == pytest.approx(dict.fromkeys(LATENCIES, 0.0), abs=1e-8)


# ---- the command ----


def test_the_command_prints_the_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["validate", str(run), "--set", "engine.max_num_seqs=8", "--set", "seed=3"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "llama-3.1-8b, 1 instance of h100, no speculation; 12 requests"
    assert any(line.startswith("bundle llama-3.1-8b-h100-tp1, ") for line in lines)
    assert sum(line.split() == ["error", *["+0.00%"] * 5, "0.00%"] for line in lines) == 3
    assert any(line.startswith("output throughput: measured ") and line.endswith("+0.00%") for line in lines)


def test_the_table_fits_80_columns(run: Path) -> None:
    text = to_text(validation_view(validate(run, None, [])), width=80, colours=False)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


def test_a_json_that_cannot_be_written_says_so(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    target = tmp_path / "file" / "errors.json"
    assert cli.main(["validate", str(run), "--json", str(target)]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"cluster_sim: error: results must be written, but got Not a directory ({target}). Make room or get "
        "permission there, or choose another place with --json=PATH."
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "validate needs a DIR or --published, but got neither"),
        (["RUN", "more"], "unrecognized arguments: more"),
        (["RUN", "--bundel", "x"], "unrecognized arguments: --bundel x"),
        (["RUN", "--set"], "argument --set: expected one argument"),
        (["RUN", "--bundle", "mine"], "a bundle must be one of bundles/ or a directory with a bundle.yaml"),
        (["RUN", "--set", "engine.max_num_seqs=0"], "(engine.max_num_seqs)"),
        (["RUN", "--set", "engine.max_num_sqs=4"], "Did you mean engine.max_num_seqs?"),
        (["RUN", "--set", "engine.max_num_seqs"], "an override must read key=value"),
        (["RUN", "--set", "+sweep=spec_grid"], "one run is validated, not a sweep"),
    ],
)
def test_a_wrong_command_line_is_one_line(
    run: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(run) if word == "RUN" else word for word in arguments]
    assert cli.main(["validate", *given]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("cluster_sim: error: ")
    assert errors.count("\n") == 1
    assert said in errors
