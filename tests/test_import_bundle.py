"""import-bundle of profiled tables: which model and sizes they are of, and what is written."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from example_profile import LLAMA, QWEN3_MOE, imported, refused, write_profile

from cluster_sim.bundle import format as bundle_format
from cluster_sim.bundle import importing
from cluster_sim.bundle.importers.profile import profiles
from cluster_sim.bundle.importing import Options, import_bundle
from cluster_sim.config import Quantization
from cluster_sim.errors import UserError

# ---- whole imports ----


@pytest.fixture
def bundles(tmp_path, monkeypatch) -> Path:
    """An empty bundles/ that imports are written to."""
    directory = tmp_path / "bundles"
    directory.mkdir()
    monkeypatch.setattr(importing, "bundles_dir", lambda: directory)
    return directory


def test_the_same_tables_give_the_same_bytes(tmp_path, bundles):
    write_profile(tmp_path / "profile", parts=("skew", "queries"))
    first = import_bundle(tmp_path / "profile", Options())
    before = {file.name: file.read_bytes() for file in (bundles / first.name).iterdir()}
    assert import_bundle(tmp_path / "profile" / "tp1", Options()) == first
    assert {file.name: file.read_bytes() for file in (bundles / first.name).iterdir()} == before
    assert bundle_format.digest(bundles / first.name)[:16] in first.lines[-1]


def test_all_sizes_are_imported_under_one_name(tmp_path, bundles):
    done = import_bundle(write_profile(tmp_path / "profile", sizes=(1, 2)), Options())
    assert done.name == "llama-3.1-8b-rtx4090-measured"
    assert sorted(path.name for path in bundles.iterdir()) == [f"{done.name}-tp1", f"{done.name}-tp2"]
    assert import_bundle(tmp_path / "profile", Options(tensor_parallel_size=2)).name == f"{done.name}-tp2"


def test_a_size_without_experts_is_left_out_and_said(tmp_path, bundles):
    """The profiler times experts at tp1 only."""
    write_profile(tmp_path / "profile", QWEN3_MOE, sizes=(1, 2))
    done = import_bundle(tmp_path / "profile", Options())
    assert done.lines[0] == "tp2 left out: it has no moe.csv"
    assert done.name == "qwen3-30b-a3b-rtx4090-measured-tp1"
    with pytest.raises(UserError, match=r"a table must be there, but got no such file \(.*tp2/moe.csv\)"):
        import_bundle(tmp_path / "profile", Options(tensor_parallel_size=2))
    assert [path.name for path in bundles.iterdir()] == [done.name]


def test_a_profiled_module_of_a_model_without_one_is_left_out_and_said(tmp_path, bundles):
    done = import_bundle(write_profile(tmp_path, parts=("mtp",)), Options())
    assert "tp1/mtp.csv left out: llama-3.1-8b has no MTP module" in done.lines
    assert bundle_format.read(bundles / done.name).drafters == {}


def test_a_size_that_was_not_profiled_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"but got 8 \(import-bundle --tensor-parallel-size\). Sizes: 1, 2."):
        import_bundle(write_profile(tmp_path, sizes=(1, 2)), Options(tensor_parallel_size=8))


# ---- which model, which sizes ----


def described(directory: Path, **changes: object) -> Path:
    """meta.yaml with changes; None removes a key."""
    file = directory / "meta.yaml"
    content = {**yaml.safe_load(file.read_text()), **changes}
    file.write_text(yaml.safe_dump({key: value for key, value in content.items() if value is not None}))
    return directory


@pytest.mark.parametrize("key", ["model", "hardware", "gpu", "vllm_version"])
def test_a_description_must_say_what_was_profiled(tmp_path, key):
    line = refused(described(write_profile(tmp_path), **{key: None}))
    assert f"a profile needs a {key} in words, but got nothing" in line
    assert "meta.yaml" in line


def test_tables_of_another_model_are_refused(tmp_path):
    line = refused(write_profile(tmp_path), QWEN3_MOE)
    assert "hf_overrides must be those of qwen3-30b-a3b: intermediate_size 6144, but got 14336" in line
    assert line.endswith("Name the profiled model with --model.")


def test_the_profiled_share_is_that_of_one_of_the_sizes(tmp_path):
    """hf_overrides hold the share of the size that was profiled last."""
    write_profile(tmp_path, sizes=(1, 2))
    assert yaml.safe_load((tmp_path / "meta.yaml").read_text())["engine_effective"]["hf_overrides"] == {
        **{"intermediate_size": 7168, "num_attention_heads": 16},
        **{"num_key_value_heads": 4, "vocab_size": 64128},
    }
    imported(tmp_path)
    described(tmp_path, tp_degrees=[1])
    assert "num_attention_heads 32, but got 16" in refused(tmp_path) or "intermediate_size 14336" in refused(
        tmp_path
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"variant": "fp8"}, "variant must be bf16, the type of the weights of llama-3.1-8b"),
        ({"variant": "bf16-kvfp8"}, "but got bf16-kvfp8"),
        ({"tp_degrees": [2]}, "tp_degrees must hold that of tp1, but got [2]"),
        ({"tp_degrees": "all"}, "tp_degrees must hold whole numbers >= 1, but got all"),
        ({"tp_degrees": []}, "tp_degrees must hold that of tp1, but got []"),
        ({"engine_effective": [1]}, "must hold hf_overrides, a mapping of names"),
        ({"engine_effective": {"hf_overrides": 4}}, "must hold hf_overrides, a mapping of names, but got 4"),
    ],
)
def test_what_is_wrong_in_a_description_is_named(tmp_path, changes, said):
    line = refused(described(write_profile(tmp_path), **changes))
    assert said in line
    assert "meta.yaml" in line


def test_a_variant_is_that_of_the_models_weights(tmp_path):
    described(write_profile(tmp_path), variant="fp8")
    bundle = imported(tmp_path, replace(LLAMA, quantization=Quantization.fp8))
    assert bundle.model["quantization"] == "fp8"
    assert "variant must be bf16" in refused(tmp_path)


def test_an_older_description_without_shapes_is_taken(tmp_path):
    whole = imported(write_profile(tmp_path))
    older = imported(described(tmp_path, engine_effective=None, variant=None, tp_degrees=None))
    assert older.tables.keys() == whole.tables.keys()
    for name, table in whole.tables.items():
        assert older.tables[name].time_s.tolist() == table.time_s.tolist()


def test_a_directory_above_profiles_lists_them(tmp_path):
    write_profile(tmp_path / "a" / "bf16")
    with pytest.raises(
        UserError, match=rf"must hold meta.yaml.*but got none.*Name one of {tmp_path}/a/bf16\."
    ):
        profiles(tmp_path)


def test_a_description_without_tables_is_refused(tmp_path):
    write_profile(tmp_path)
    (tmp_path / "tp1").rename(tmp_path / "tp1_old")
    (tmp_path / "tp0").mkdir()
    with pytest.raises(UserError, match="profiled tables must lie in directories tp1, tp2"):
        profiles(tmp_path)


# ---- the tables beside the repository ----


@pytest.mark.shared
def test_shared_profiles_are_imported(shared, bundles):
    """All of ../shared/perf-tables; Qwen3-30B-A3B has experts at tp1 only."""
    for meta in sorted((shared / "perf-tables").rglob("meta.yaml")):
        import_bundle(meta.parent, Options())
    assert sorted(path.name for path in bundles.iterdir()) == [
        "llama-3.1-8b-rtx4090-measured-tp1",
        "llama-3.1-8b-rtx_pro_6000-measured-tp1",
        "llama-3.1-8b-rtx_pro_6000-measured-tp2",
        "qwen3-30b-a3b-rtx_pro_6000-measured-tp1",
        "qwen3-32b-rtx_pro_6000-measured-tp1",
        "qwen3-32b-rtx_pro_6000-measured-tp2",
    ]
