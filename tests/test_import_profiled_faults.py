"""Damaged profiled tables: each is read, or refused in one line that names file, line and column."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from example_profile import QWEN3_MOE, WITH_MTP, imported, refused, write_profile
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_sim.bundle import format as bundle_format
from cluster_sim.config import ModelConfig
from cluster_sim.errors import UserError

Edit = Callable[[str], str]


# ---- refusals ----


def edited(directory: Path, name: str, edit: Edit) -> Path:
    """A profile with an edited table."""
    file = directory / "tp1" / name
    file.write_text(edit(file.read_text()))
    return directory


def with_line(line: str) -> Edit:
    """A line more, at the end."""
    return lambda text: f"{text}{line}\n"


def without(*words: str) -> Edit:
    """No line that starts with one of these, or has one of these between commas."""
    return lambda text: "".join(
        line
        for line in text.splitlines(keepends=True)
        if not line.startswith(words) and not any(f",{word}" in line for word in words)
    )


def instead(words: str, others: str, times: int = -1) -> Edit:
    """Other words."""
    return lambda text: text.replace(words, others, times)


def only(text: str) -> Edit:
    """Nothing but this."""
    return lambda _: text


HEAD = {  # per_sequence.csv has 7 lines
    "ragged": (with_line("sampler,5,1,2"), "a row must have 3 values, but got 4", "line 8"),
    "nan": (with_line("sampler,5,nan"), "column time_us must hold numbers from 0 to", "line 8"),
    "infinite": (with_line("sampler,5,inf"), "but got 'inf'", "line 8"),
    "negative": (with_line("sampler,5,-1"), "but got '-1'", "line 8"),
    "words": (with_line("sampler,5,fast"), "but got 'fast'", "line 8"),
    "underscore": (with_line("sampler,1_0,1"), "but got '1_0'", "line 8"),
    "fraction": (with_line("sampler,1.5,1"), "column sequences must hold whole numbers", "line 8"),
    "huge": (
        with_line("sampler,1e7,1"),
        "column sequences must hold whole numbers from 0 to 1048576",
        "line 8",
    ),
    "open quote": (
        with_line('"sampler,5,1'),
        "a table must be CSV, but got unexpected end of data",
        "line 9",
    ),
    "again": (with_line("sampler,4,1"), "but got layer sampler, sequences 4 twice", "line 8"),
    "nobody": (with_line("sampler,0,1\nlm_head,0,1"), "two or more different counts >= 1, but got [0, 1]"),
    "uneven": (with_line("sampler,5,1"), "layer lm_head must be profiled at the sequences of the others"),
    "another": (instead("sampler", "norm"), "layers must be lm_head, sampler, but got none called sampler"),
}
DENSE = {
    "empty": (only(""), "start with the names of its columns, but got an empty line", "line 1"),
    "header": (only("layer,tokens,time_us\n"), "a table must have rows, but got none", "line 2"),
    "truncated": (only("layer,tokens,time_us\nembedding,1"), "must have 3 values, but got 2", "line 2"),
    "blank line": (instead("\n", "\n\n", 1), "a row must have 3 values, but got 0", "line 2"),
    "no column": (instead("time_us", "time"), "columns must include layer, tokens, time_us", "line 1"),
    "column twice": (
        instead("layer,", "tokens,", 1),
        "a column must be there once, but got 'tokens'",
        "line 1",
    ),
    "missing": (without("o_proj"), "layers of llama-3.1-8b must be act_fn", "but got none called o_proj"),
    "unknown": (with_line("x,1,1\nx,2,1\nx,16,1\nx,256,1"), "must be act_fn", "but got one called x"),
}
ATTENTION = {
    "no prefills": (without("16,", "64,", "256,"), "prefills without decodes must be profiled, but got none"),
    "no decodes": (
        without("0,1,", "0,2,", "0,4,", "0,8,"),
        "decodes without a prefill's history must be profiled, but got none",
    ),
    "all beside": (
        without("0,0,1", "0,0,2", "0,0,4", "0,0,8"),
        "without a prefill, but got prefill_chunk 16",
    ),
    "no base": (with_line("8,0,1,16,1\n8,0,1,64,2"), "prefill_chunk 8 must be profiled without decodes"),
    "one history": (
        with_line("8,0,0,0,1"),
        "prefill_chunk 8 must be profiled at kv_prefill 0 and 512 or more",
    ),
    "one KV": (with_line("0,0,3,16,1"), "n_decode 3 must be profiled at two or more kv_decode, but got [16]"),
    "one count": (
        with_line("8,0,3,16,1\n8,0,3,64,2\n8,0,0,0,1\n8,512,0,0,2"),
        "decodes beside prefill_chunk 8 must be profiled at two or more n_decode, but got [3]",
    ),
}
DAMAGE = [
    pytest.param(f"{table}.csv", edit, said, id=f"{table}: {name}")
    for table, cases in (("per_sequence", HEAD), ("dense", DENSE), ("attention", ATTENTION))
    for name, (edit, *said) in cases.items()
]


@pytest.mark.parametrize(("table", "edit", "said"), DAMAGE)
def test_what_is_wrong_in_a_table_is_named(tmp_path, table, edit, said):
    line = refused(edited(write_profile(tmp_path), table, edit))
    assert table in line
    for words in said:
        assert words in line


def test_a_file_of_bytes_is_refused(tmp_path):
    (write_profile(tmp_path) / "tp1" / "attention.csv").write_bytes(b"PAR1\xff\xfe\x00")
    assert "a table must be a readable text file" in refused(tmp_path)


def test_a_missing_file_is_refused(tmp_path):
    (write_profile(tmp_path) / "tp1" / "attention.csv").unlink()
    assert "a table must be there, but got no such file" in refused(tmp_path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1,8,2", "got ep 1, tokens 1, activated_experts 8 twice"),
        ("64,129,2", "must hold 1 to 128, the experts of qwen3-30b-a3b, but got 8 to 129"),
        ("64,0,2", "but got 0 to 128"),
        ("0,8,2", "two or more different counts >= 1, but got [0, 1]"),
    ],
)
def test_what_is_wrong_with_experts_is_named(tmp_path, line, said):
    assert said in refused(edited(write_profile(tmp_path, QWEN3_MOE), "moe.csv", with_line(line)), QWEN3_MOE)


def test_experts_of_smaller_models_are_left_out(tmp_path):
    whole = imported(write_profile(tmp_path, QWEN3_MOE), QWEN3_MOE).tables["moe"]
    file = tmp_path / "tp1" / "moe.csv"
    header, *rows = file.read_text().splitlines()
    file.write_text("\n".join([f"ep,{header}", *(f"{ep},{row}" for ep in (1, 2) for row in rows)]))
    assert np.array_equal(imported(tmp_path, QWEN3_MOE).tables["moe"].time_s, whole.time_s)
    file.write_text("\n".join([f"ep,{header}", *(f"2,{row}" for row in rows)]))
    assert "experts must be profiled whole, on one GPU, but got no row with ep 1" in refused(
        tmp_path, QWEN3_MOE
    )


@pytest.mark.parametrize("label", ["n<=x", "64", "n<64", "n<=9999999"])
def test_a_label_of_no_number_of_decodes_is_refused(tmp_path, label):
    edited(write_profile(tmp_path, parts=("skew",)), "skew_fit.csv", with_line(f"0,{label},0.1,4"))
    line = refused(tmp_path)
    assert f"column n_label must hold labels such as n<=64 and n>256, but got '{label}'" in line
    assert "skew_fit.csv line 9" in line


def test_a_fit_of_mixed_steps_only_is_refused(tmp_path):
    edited(
        write_profile(tmp_path, parts=("skew",)), "skew_fit.csv", lambda text: text.replace("\n0,", "\n16,")
    )
    assert "decodes must be profiled without a prefill" in refused(tmp_path)


def test_layers_of_no_module_are_refused(tmp_path):
    edited(write_profile(tmp_path, parts=("mtp",)), "mtp.csv", lambda text: text.replace("mtp_fc", "fc"))
    assert "called mtp_.., but got fc" in refused(tmp_path, WITH_MTP)


# ---- damage anywhere ----

FILES = (
    *("meta.yaml", "tp1/dense.csv", "tp1/per_sequence.csv", "tp1/attention.csv", "tp1/skew_fit.csv"),
    *("tp1/mtp.csv", "tp1/moe.csv"),
)
MODELS = {"dense": WITH_MTP, "moe": replace(QWEN3_MOE, num_nextn_predict_layers=1)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("whole")
    for name, model in MODELS.items():
        write_profile(top / name, model, parts=("skew", "mtp", "queries"))
    return top


def check_bundle_or_line(directory: Path, model: ModelConfig, scratch: Path) -> None:
    """A profile is read into a bundle that the format takes, or refused in a line that names a file of it."""
    said = ""
    try:
        bundle_format.write(imported(directory, model), scratch)
        bundle_format.read(scratch)
    except UserError as error:
        said = str(error)
    assert "\n" not in said
    assert said == "" or str(directory) in said


DAMAGES = st.tuples(
    st.floats(0, 1),  # where
    st.binary(max_size=8) | st.text('0123456789.,-e"_n<>=:[]{}\n', max_size=8).map(str.encode),
    st.booleans(),  # nothing after it
)


@settings(max_examples=200)
@given(kind=st.sampled_from(sorted(MODELS)), name=st.sampled_from(FILES), damage=DAMAGES)
def test_a_damaged_profile_is_read_or_refused_in_one_line(whole, tmp_path_factory, kind, name, damage):
    directory, scratch = (tmp_path_factory.getbasetemp() / at for at in ("damaged", "scratch"))
    for old in (directory, scratch):
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(whole / kind, directory)
    if not (directory / name).exists():
        return
    place, written_over, is_cut = damage
    content = (directory / name).read_bytes()
    start = int(place * len(content))
    rest = b"" if is_cut else content[start + len(written_over) :]
    (directory / name).write_bytes(content[:start] + written_over + rest)
    check_bundle_or_line(directory, MODELS[kind], scratch)
