"""The bundle format: what is written is read; damage is one line that names the file and what is wrong."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from example_bundle import BUNDLE, CONFIG, written
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_sim.bundle import format as bundle_format
from cluster_sim.bundle import roofline
from cluster_sim.bundle.architecture import Parallel
from cluster_sim.bundle.assumptions import assumptions
from cluster_sim.bundle.grids import Table
from cluster_sim.compose import compose
from cluster_sim.config import Method
from cluster_sim.errors import UserError
from cluster_sim.paths import bundles_dir


def refused(directory: Path) -> str:
    """The one line with which the bundle in `directory` is refused."""
    with pytest.raises(UserError) as caught:
        bundle_format.read(directory)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edited(directory: Path, **changes: object) -> str:
    """What is said of a bundle whose bundle.yaml has `changes` at its top; None removes a key."""
    content = {**yaml.safe_load((directory / "bundle.yaml").read_text()), **changes}
    kept = {key: value for key, value in content.items() if value is not None}
    (directory / "bundle.yaml").write_text(yaml.safe_dump(kept))
    return refused(directory)


def test_a_written_bundle_is_read_as_it_was(tmp_path):
    read = bundle_format.read(written(tmp_path))
    assert replace(read, tables={}) == replace(BUNDLE, tables={})
    assert list(read.tables) == list(BUNDLE.tables)
    for name, table in BUNDLE.tables.items():
        assert np.array_equal(read.tables[name].time_s, table.time_s)
        for key, axis in table.axes.items():
            assert np.array_equal(read.tables[name].axes[key], axis)


def test_the_same_bundle_is_written_as_the_same_bytes(tmp_path):
    first = written(tmp_path / "first")
    bundle_format.write(bundle_format.read(first), tmp_path / "second")
    for file in first.iterdir():
        assert (tmp_path / "second" / file.name).read_bytes() == file.read_bytes()
    assert bundle_format.digest(first) == bundle_format.digest(tmp_path / "second")


def test_the_digest_follows_every_file(tmp_path):
    before = bundle_format.digest(written(tmp_path))
    for file in sorted(tmp_path.iterdir()):
        whole = file.read_bytes()
        file.write_bytes(whole + b"\n")
        assert bundle_format.digest(tmp_path) != before
        file.write_bytes(whole)
    assert bundle_format.digest(tmp_path) == before


def test_the_shipped_bundle_is_what_the_roofline_makes_of_conf():
    """Regenerate: bundle_format.write(roofline.build(model, hardware, Parallel()), bundles_dir() / name)."""
    shipped = bundle_format.read(bundles_dir() / "llama-3.1-8b-h100-tp1")
    assert replace(shipped, tables={}) == replace(BUNDLE, tables={})
    for name, table in BUNDLE.tables.items():  # pow() may differ in its last digit between machines
        np.testing.assert_allclose(shipped.tables[name].time_s, table.time_s, rtol=1e-12)


def test_the_shipped_bundle_is_small():
    files = (bundles_dir() / "llama-3.1-8b-h100-tp1").iterdir()
    assert sum(file.stat().st_size for file in files) < 100_000


def test_a_bundle_of_another_model_is_refused():
    bundle_format.check_matches(BUNDLE, CONFIG.model, CONFIG.hardware, 1)
    with pytest.raises(UserError, match="num_hidden_layers 80, but got 32"):
        bundle_format.check_matches(BUNDLE, replace(CONFIG.model, num_hidden_layers=80), CONFIG.hardware, 1)
    with pytest.raises(UserError, match="tensor_parallel_size 2, but got 1"):
        bundle_format.check_matches(BUNDLE, CONFIG.model, CONFIG.hardware, 2)
    with pytest.raises(UserError, match=r"hardware: l40s, but got h100 .* Choose hardware=h100"):
        bundle_format.check_matches(BUNDLE, CONFIG.model, replace(CONFIG.hardware, name="l40s"), 1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema_version": 1}, "schema_version must be 2, but got 1"),
        ({"schema_version": None}, "schema_version must be 2, but got None"),
        ({"kind": "guess"}, "kind must be roofline or measured, but got guess"),
        ({"name": None}, "a bundle needs a name in words, but got nothing"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size must be a whole number >= 1, but got 0"),
        ({"colour": "red"}, "but got colour"),
        ({"tables": {}}, "but got none called decode_attention"),
        ({"model": {"name": "m", "source": "s"}}, "model needs a licence in words, but got nothing"),
        (
            {"model": {"name": "m", "source": "s", "licence": "l"}},
            "model needs a num_hidden_layers that is a number",
        ),
        ({"parameters": {}}, "but got none called eager_layer_launch_s"),
        ({"parameters": {"host_s": 1.0}}, "section host_s must be a mapping of names, but got 1.0"),
        (
            {"parameters": {"host_s": {"value": "1e-3", "meaning": "m", "source": "s", "licence": "l"}}},
            "parameters.host_s needs a value that is a number >= 0",
        ),
        (
            {"parameters": {"host_s": {"value": 1.0, "meaning": "m", "licence": "l"}}},
            "parameters.host_s needs a source in words, but got nothing",
        ),
    ],
)
def test_what_is_wrong_in_bundle_yaml_is_named(tmp_path, changes, said):
    line = edited(written(tmp_path), **changes)
    assert said in line
    assert "bundle.yaml" in line


def test_a_table_without_a_source_is_refused(tmp_path):
    tables = yaml.safe_load((written(tmp_path) / "bundle.yaml").read_text())["tables"]
    tables["head"]["source"] = " "
    assert "tables.head needs a source in words" in edited(tmp_path, tables=tables)


@pytest.fixture(scope="module")
def of_experts() -> bundle_format.Bundle:
    """Of a model with experts, on two GPUs, with uneven decodes: all tables that a bundle may have."""
    model = compose(["speculation=none", "model=qwen3-30b-a3b"]).model
    bundle = roofline.build(model, CONFIG.hardware, Parallel(2))
    skew = Table({"requests": np.array([1, 64, 256])}, np.array([0.0, 0.1, 0.03]), "s", "l")
    return replace(bundle, tables=bundle.tables | {"decode_skew": skew})


def test_tables_of_experts_all_reduces_and_uneven_decodes_are_read_as_they_were(tmp_path, of_experts):
    bundle_format.write(of_experts, tmp_path)
    read = bundle_format.read(tmp_path)
    for name in ("moe", "all_reduce", "decode_skew"):
        assert np.array_equal(read.tables[name].time_s, of_experts.tables[name].time_s)
    assert pq.read_schema(tmp_path / "decode_skew.parquet").names == ["requests", "share"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("moe", "but got none called moe"),
        ("all_reduce", "but got none called all_reduce"),
        ("decode_skew", ""),
    ],
)
def test_uneven_decodes_may_be_missing_and_no_other_table(tmp_path, of_experts, name, said):
    tables = {key: table for key, table in of_experts.tables.items() if key != name}
    bundle_format.write(replace(of_experts, tables=tables), tmp_path)
    if said:
        assert said in refused(tmp_path)
    else:
        assert name not in bundle_format.read(tmp_path).tables


@pytest.mark.parametrize("name", ["moe", "all_reduce"])
def test_a_table_that_the_model_has_no_use_for_is_refused(tmp_path, of_experts, name):
    bundle_format.write(replace(BUNDLE, tables=BUNDLE.tables | {name: of_experts.tables[name]}), tmp_path)
    assert refused(tmp_path).startswith("tables may hold only decode_attention, ")
    assert f"but got {name} (" in refused(tmp_path)


@pytest.mark.parametrize(
    ("fact", "value", "said"),
    [
        ("num_experts", "many", "needs a num_experts that is a number >= 0"),
        ("num_experts_per_tok", 0, "needs a num_experts_per_tok that is a whole number >= 1, but got 0"),
        ("num_hidden_layers", 2.5, "needs a num_hidden_layers that is a whole number >= 1, but got 2.5"),
    ],
)
def test_layers_and_experts_are_counted(tmp_path, of_experts, fact, value, said):
    bundle_format.write(replace(of_experts, model={**of_experts.model, fact: value}), tmp_path)
    assert said in refused(tmp_path)


def test_an_unknown_parameter_is_refused(tmp_path):
    host_s = BUNDLE.parameters["host_s"]
    bundle_format.write(replace(BUNDLE, parameters={**BUNDLE.parameters, "hosts_s": host_s}), tmp_path)
    assert refused(tmp_path).startswith("parameters may hold only eager_layer_launch_s, ")
    assert "but got hosts_s" in refused(tmp_path)


def test_an_unreadable_bundle_yaml_is_refused(tmp_path):
    (written(tmp_path) / "bundle.yaml").write_text("model: [")
    assert "a bundle's YAML must be readable" in refused(tmp_path)
    (tmp_path / "bundle.yaml").write_text("- 1")
    assert "must hold named sections, but got list" in refused(tmp_path)
    (tmp_path / "bundle.yaml").write_text("model: !!int ''")  # an error of the loader's own
    assert "a bundle's YAML must be readable" in refused(tmp_path)


def test_a_missing_table_is_refused(tmp_path):
    (written(tmp_path) / "head.parquet").unlink()
    assert "got no such file" in refused(tmp_path)
    assert "head.parquet" in refused(tmp_path)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"rows": [1, 2], "time": [1.0, 2.0]}, "columns must be rows, time_s, but got rows, time"),
        ({"rows": [1, 2], "time_s": [1.0, 2.0], "x": [1, 2]}, "but got rows, time_s, x"),
        ({"rows": [1.0, 2.0], "time_s": [1.0, 2.0]}, "column rows must be int64"),
        ({"rows": [1, 2], "time_s": [1.0, None]}, "column time_s must be double without gaps"),
        ({"rows": [1, 2], "time_s": [1.0, -2.0]}, "column time_s must hold seconds >= 0, but got -2.0"),
        (
            {"rows": [1, 2], "time_s": [1.0, float("nan")]},
            "column time_s must hold seconds >= 0, but got nan",
        ),
        ({"rows": [2, 1], "time_s": [1.0, 2.0]}, "but got others in column rows"),
        ({"rows": [1, 1], "time_s": [1.0, 2.0]}, "column rows must hold at least two different values"),
        ({"rows": [1, 2, 2], "time_s": [1.0, 2.0, 3.0]}, "but got 3 rows"),
        ({"rows": [-1, 2], "time_s": [1.0, 2.0]}, "column rows must hold no value below 0, but got -1"),
    ],
)
def test_what_is_wrong_in_a_table_is_named(tmp_path, columns, said):
    pq.write_table(pa.table(columns), written(tmp_path) / "head.parquet")
    assert said in refused(tmp_path)
    assert "head.parquet" in refused(tmp_path)


def test_drafters_of_tables_and_yaml_must_agree(tmp_path):
    drafters = yaml.safe_load((written(tmp_path) / "bundle.yaml").read_text())["drafters"]
    others = {name: drafters[name] for name in drafters if name != "eagle"}
    line = edited(tmp_path, drafters=others)
    assert f"column drafter must hold {', '.join(sorted(others))}, but got eagle, eagle3, " in line


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("whole"))


FILES = ("bundle.yaml", "dense.parquet", "decode_attention.parquet", "draft_next.parquet")
DAMAGE = st.tuples(st.floats(0, 1), st.binary(max_size=8), st.booleans())  # where, what, nothing after it


@settings(max_examples=150)
@given(name=st.sampled_from(FILES), damage=DAMAGE)
def test_a_damaged_file_is_read_or_refused_in_one_line(whole, tmp_path_factory, name, damage):
    directory = tmp_path_factory.getbasetemp() / "damaged"
    shutil.copytree(whole, directory, dirs_exist_ok=True)
    place, written_over, is_cut = damage
    content = (directory / name).read_bytes()
    start = int(place * len(content))
    rest = b"" if is_cut else content[start + len(written_over) :]
    (directory / name).write_bytes(content[:start] + written_over + rest)
    said = ""
    try:
        bundle_format.read(directory)
    except UserError as error:
        said = str(error)
    assert "\n" not in said
    assert said == "" or name in said


def test_the_shipped_assumptions_are_whole():
    assumed = assumptions()
    drafting = {method.name for method in Method} - {"none"}
    assert drafting <= set(assumed.drafters)
    assert (
        0 <= assumed.parameters["verify_attention"].value <= 0.5
    )  # nearer to one KV read than to one a query
