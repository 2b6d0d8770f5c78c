"""Damaged files for calibrate: read, or refused in one line; never anything else."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from example_bench import scrape_text
from hypothesis import given, settings
from hypothesis import strategies as st
from test_calibrate_counts import AFTER, BEFORE, RESULT
from test_calibrate_sglang import RESPONSE

from cluster_sim import cli
from cluster_sim.calibrate import bench, bench_times, draft_counters, server_times, sglang, sglang_times
from cluster_sim.calibrate.acceptance import row_of
from cluster_sim.calibrate.counts import Counts
from cluster_sim.calibrate.entries import read_entries
from cluster_sim.calibrate.growth import growths
from cluster_sim.errors import UserError

EXAMPLES = settings(max_examples=150)
SHIPPED = Path(__file__).parent.parent / "reports" / "examples"
EXAMPLE_SCRAPES = SHIPPED / "metrics-start.prom", SHIPPED / "metrics-08.prom"  # before, after
NUMBERS = [
    "1e999",
    "-1",
    "NaN",
    "1" + "0" * 400,
    "9" * 5000,
    "1e15",
    "0.5",
    "null",
    "true",
    '"80"',
    "[]",
    "{}",
]
JUNK = st.one_of(
    st.sampled_from(
        [b"\xff\xfe", b"\x00", b"\r", b'"', b"{", b"]", b",", b"\n", b"[" * 3000, b"\xe2\x80\xa8"]
    ),
    st.binary(min_size=1, max_size=8),
)


@st.composite
def damaged(draw: st.DrawFn, sound: bytes) -> bytes:
    """`sound` cut short, with bytes removed, replaced or put in, with another number, or nothing of it."""
    kind = draw(st.sampled_from(["cut", "remove", "insert", "repeat", "number", "binary"]))
    at = draw(st.integers(0, len(sound) - 1))
    until = draw(st.integers(at, min(len(sound), at + 40)))
    match kind:
        case "cut":
            return sound[:at]
        case "remove":
            return sound[:at] + sound[until:]
        case "insert":
            return sound[:at] + draw(JUNK) + sound[until:]
        case "repeat":
            return sound[:until] + sound[at:]
        case "number":
            digits = [place for place in range(len(sound)) if sound[place : place + 1].isdigit()]
            place = draw(st.sampled_from(digits))
            return sound[:place] + draw(st.sampled_from(NUMBERS)).encode() + sound[place + 1 :]
        case _:
            return draw(st.binary(max_size=200))


def done_or_refused(do: Callable[[], None]) -> None:
    """Nothing comes of it but one line that says what is wrong."""
    refusal = "a line"
    try:
        do()
    except UserError as error:
        refusal = str(error)
    assert len(refusal.splitlines()) == 1
    assert len(refusal) < 700


def read_or_refused(read: Callable[[], Sequence[Counts]]) -> None:
    """Counts that a profile can be made of, or one line that says what is wrong."""

    def make() -> None:
        for counts in read():
            row = row_of([counts], [len(counts.accepted_at)])
            assert all(0 <= one.low <= one.value <= one.high <= 1 for one in row.marginals)

    done_or_refused(make)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "file"


@EXAMPLES
@given(data=st.data())
def test_a_damaged_result_is_read_or_refused_in_one_line(file: Path, data: st.DataObject) -> None:
    lines = data.draw(
        st.sampled_from([json.dumps(RESULT), json.dumps([RESULT] * 2), f"{json.dumps(RESULT)}\n" * 2])
    )
    file.write_bytes(data.draw(damaged(lines.encode())))

    def read() -> list[Counts]:
        entries = [entry for entry in read_entries(file) if bench.is_run(entry) and bench.has_drafts(entry)]
        for entry in entries:
            run = bench_times.timed(entry)
            assert 0 < run.means_s["tpot"] < 1e7
        return [bench.counts_of(entry) for entry in entries]

    read_or_refused(read)


@EXAMPLES
@given(data=st.data())
def test_a_damaged_response_is_read_or_refused_in_one_line(file: Path, data: st.DataObject) -> None:
    file.write_bytes(data.draw(damaged(f"{json.dumps({'meta_info': RESPONSE})}\n".encode() * 2)))
    read_or_refused(
        lambda: sglang.counts_of(
            [each for each in read_entries(file) if sglang.is_response(each)] or read_entries(file), 5
        )
    )


@EXAMPLES
@given(data=st.data(), is_after=st.booleans())
def test_a_damaged_scrape_is_read_or_refused_in_one_line(
    file: Path, data: st.DataObject, is_after: bool
) -> None:
    sound = file.with_name("sound")
    sound.write_text(scrape_text([BEFORE if is_after else AFTER]), "utf-8")
    file.write_bytes(data.draw(damaged(scrape_text([AFTER if is_after else BEFORE]).encode())))
    files = (sound, file) if is_after else (file, sound)
    read_or_refused(lambda: list(map(draft_counters.counts_of, growths(files))))


@EXAMPLES
@given(data=st.data(), is_after=st.booleans())
def test_a_damaged_scrape_tells_times_or_is_refused_in_one_line(
    file: Path, data: st.DataObject, is_after: bool
) -> None:
    """Scrapes with their histograms, as shipped."""
    sound = EXAMPLE_SCRAPES[not is_after]
    file.write_bytes(data.draw(damaged(EXAMPLE_SCRAPES[is_after].read_bytes())))
    files = (sound, file) if is_after else (file, sound)

    def time() -> None:
        (growth,) = growths(files)
        traffic = server_times.timed(growth, 22.0, 1, 5).traffic
        assert traffic.as_workload([], file.with_name("scratch"))["workload.request_rate"]

    done_or_refused(time)


@EXAMPLES
@given(data=st.data())
def test_damaged_times_of_responses_are_read_or_refused_in_one_line(file: Path, data: st.DataObject) -> None:
    times = {
        "request_received_ts": 1764300000.5,
        "e2e_latency": 1.25,
        "prompt_tokens": 12,
        "cached_tokens": 4,
    }
    file.write_bytes(data.draw(damaged(f"{json.dumps({'meta_info': RESPONSE | times})}\n".encode() * 2)))

    def time() -> None:
        entries = read_entries(file)
        if sglang_times.have_times(entries):
            assert sglang_times.timed(entries, 5).means_s["e2el"] > 0

    done_or_refused(time)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "a measurement must hold at least one run, but got an empty file ({0}). Choose another."),
        (
            b"\x80\x02}q\x00",
            "a measurement must be UTF-8 text, but got the byte 0x80 ({0}, line 1). Save the file as UTF-8.",
        ),
        (
            b'{"num_prompts": 4, "num_prompts": 5}',
            'a measurement must be JSON, but got the name "num_prompts" twice in one object ({0}). '
            "Correct the file, or measure again.",
        ),
        (
            b'{"num_prompts": NaN}',
            "a measurement must be JSON, but got NaN, which is no number ({0}). "
            "Correct the file, or measure again.",
        ),
        (
            b'{"num_prompts": ' + b"9" * 5000 + b"}",
            "a measurement must be JSON, but got Exceeds the limit (4300 digits) for integer string "
            "conversion: value has 5000 digits ({0}). Correct the file, or measure again.",
        ),
        (
            b"[" * 100_000,
            "a measurement must be JSON, but got brackets in brackets without end ({0}). "
            "Correct the file, or measure again.",
        ),
        (
            b'{"num_prompts": 4}\n{"num_pro',
            "a measurement must be JSON, but got Unterminated string starting at: line 1 column 2 (char "
            "1) ({0}, line 2). Correct the file, or measure again.",
        ),
        (
            b"# HELP vllm:num_requests_running Number of requests in model execution batches.\n",
            "a measurement must be JSON, but got Expecting value: line 1 column 1 (char 0) ({0}). "
            "Scrapes of /metrics go in pairs: --metrics-before FILE --metrics-after FILE.",
        ),
        (
            b"[1, 2]",
            "measurements must be JSON objects: one, a list of them, or one a line, but got 1 ({0}, entry "
            "1). Correct the file, or measure again.",
        ),
        (
            b'{"benchmarks": []}',
            "a measurement is a result of `vllm bench serve` or a response of SGLang with meta_info, but got "
            'an object of "benchmarks" ({0}). Give such a file, or scrapes with --metrics-before.',
        ),
    ],
)
def test_a_file_of_another_kind_is_refused_with_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, error: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert cli.main(["calibrate", str(path)]) == 2
    assert capsys.readouterr().err == f"cluster_sim: error: {error.replace('{0}', str(path))}\n"


def test_a_file_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, found in ((tmp_path / "nowhere", "no such file"), (tmp_path, "a directory")):
        assert cli.main(["calibrate", str(path)]) == 2
        assert capsys.readouterr().err == (
            f"cluster_sim: error: a measurement must be a file that can be read, but got {found} ({path}). "
            "Set calibrate FILE to one.\n"
        )
