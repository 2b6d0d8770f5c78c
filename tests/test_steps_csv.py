"""The CSV of whole steps: what is wrong with it is one line that names file, line and column."""

from pathlib import Path

import numpy as np
import pytest
from example_bundle import BUNDLE
from example_steps import HEADER, fitted, grid, refused, text, write_csv
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_sim.errors import UserError

ROW = "8,1,1000,0,0,6.5"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CSV that is fitted."""
    return write_csv(tmp_path_factory.mktemp("steps") / "steps.csv", grid(), BUNDLE)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("", ""), "a CSV of steps must hold steps, but got an empty file"),
        ((HEADER,), "a CSV of steps must hold steps, but got only a header"),
        ((HEADER.replace("step_ms", "step"), ROW), "but got step ("),
        ((f"{HEADER},colour", f"{ROW},1"), "but got colour ("),
        ((f"{HEADER},", f"{ROW},"), "but got a column without a name"),
        ((f"{HEADER},batch", f"{ROW},1"), "a column must be there once, but got batch twice"),
        ((HEADER.replace("kv_tokens,", ""), "8,1,0,0,6.5"), "but got none called kv_tokens"),
        ((HEADER.replace(",step_ms", ""), "8,1,1000,0,0"), "one of step_ms and sync_step_ms must be there"),
        (
            (f"{HEADER},sync_step_ms", f"{ROW},7"),
            "one of step_ms and sync_step_ms must be there, but got both",
        ),
        ((f"{HEADER},draft_ms", f"{ROW},2"), "cannot be told apart into first and further passes"),
        (
            (HEADER, ROW, "8,1,1000,0,0"),
            "a line must have 6 columns, as the header has, but got 5: 8,1,1000,0,0",
        ),
        ((HEADER, "", ROW), "but got an empty line"),
        ((HEADER, "8,1,1000,0,0,"), "step_ms must be a number >= 0, but got nothing"),
        ((HEADER, "8,1,1000,0,0,nan"), "step_ms must be a number >= 0, but got nan"),
        ((HEADER, "8,1,1000,0,0,inf"), "step_ms must be a number >= 0, but got inf"),
        ((HEADER, "8,1,1000,0,0,-6.5"), "step_ms must be a number >= 0, but got -6.5"),
        ((HEADER, "8,1,1000,0,0,0"), "step_ms must be a time above 0, but got 0"),
        ((HEADER, "8,1,1000,0,0,1e9"), "step_ms must be at most 3,600,000, but got 1e9"),
        ((HEADER, "8,1,1000,0,0,'6,5'"), "a line must have 6 columns"),
        ((HEADER, "8,1,1e30,0,0,6.5"), "kv_tokens must be at most 16,777,216, but got 1e30"),
        ((HEADER, "99999999999,1,1000,0,0,6.5"), "batch must be at most 16,777,216"),
        ((HEADER, "9999999,9999999,9999999,0,0,6.5"), "a step has at most 16,777,216 tokens"),
        ((HEADER, "8.5,1,1000,0,0,6.5"), "batch must be a whole number >= 0, but got 8.5"),
        ((HEADER, "8,0,1000,0,0,6.5"), "query_tokens must be at least 1 where batch is above 0, but got 0"),
        (
            (HEADER, "8,4,3,0,0,6.5"),
            "kv_tokens must be at least query_tokens where batch is above 0, but got 3",
        ),
        ((HEADER, "0,1,1000,0,0,6.5"), "prefill_tokens must be above 0 where batch is 0, but got 0"),
        ((HEADER, "8,1,1000,0,0," + "9" * 9000), "step_ms must be a number >= 0, but got 999"),
    ],
)
def test_what_is_wrong_in_the_csv_is_named(tmp_path, lines, said):
    line = refused(text(tmp_path / "steps.csv", *lines))
    assert said in line
    assert len(line) < 500


def test_line_and_column_are_named(tmp_path):
    line = refused(text(tmp_path / "steps.csv", HEADER, ROW, ROW, "8,1,x,0,0,6.5"))
    assert "steps.csv, line 4, column kv_tokens)" in line


def test_a_host_that_takes_longer_than_the_step_is_refused(tmp_path, whole):
    lines = whole.read_text().replace("step_ms", "sync_step_ms").splitlines()
    line = refused(text(tmp_path / "sync.csv", *lines, "1,1,300,0,0,1.1"))
    assert "sync_step_ms must exceed the host's 1.207 ms" in line
    assert "line 76, column sync_step_ms" in line


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "steps.csv").write_bytes(HEADER.encode() + b"\n8,1,1\xff")
    assert "must be UTF-8 text, but got byte 0xff" in refused(tmp_path / "steps.csv")
    (tmp_path / "steps.csv").write_bytes(HEADER.encode() + b"\n8,1,1\0")
    assert "line 2" in refused(tmp_path / "steps.csv")
    assert "Is a directory" in refused(tmp_path)
    assert "No such file" in refused(tmp_path / "none.csv")


DAMAGE = st.tuples(st.floats(0, 1), st.binary(max_size=8), st.booleans())  # where, what, nothing after it


@settings(max_examples=200)
@given(damage=DAMAGE)
def test_a_damaged_csv_is_fitted_or_refused_in_one_line(whole, tmp_path_factory, damage):
    place, written_over, is_cut = damage
    content = whole.read_bytes()
    start = int(place * len(content))
    rest = b"" if is_cut else content[start + len(written_over) :]
    damaged = tmp_path_factory.getbasetemp() / "damaged.csv"
    damaged.write_bytes(content[:start] + written_over + rest)
    said = str(damaged)
    try:
        fitted(damaged)
    except UserError as error:
        said = str(error)
    assert "\n" not in said
    assert str(damaged) in said


@settings(max_examples=200)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 300),
            st.integers(0, 9),
            st.integers(0, 5000),
            st.integers(0, 9000),
            st.floats(1e-3, 1e4),
        ),
        max_size=40,
    )
)
def test_any_numbers_are_fitted_or_refused_in_one_line(tmp_path_factory, rows):
    csv = tmp_path_factory.getbasetemp() / "any.csv"
    lines = [f"{batch},{query},{kv},{chunk},0,{ms:.6g}" for batch, query, kv, chunk, ms in rows]
    text(csv, HEADER, *lines)
    try:
        said, tables = "", fitted(csv).bundle.tables
    except UserError as error:
        said, tables = str(error), {}
    assert "\n" not in said
    assert all(np.isfinite(table.time_s).all() for table in tables.values())
