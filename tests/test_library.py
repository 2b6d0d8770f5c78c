"""Where bundles are found: in bundles/, at a path, or built once for a model on a GPU and kept."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from example_bundle import BUNDLE, CONFIG, written

import cluster_sim
from cluster_sim.bundle import format as bundle_format
from cluster_sim.bundle import library, roofline
from cluster_sim.bundle.architecture import Parallel
from cluster_sim.errors import UserError
from cluster_sim.paths import bundles_dir

ALONE = Parallel()
OTHER = replace(CONFIG.hardware, hbm_gb_per_s=1000.0)  # not the shipped bundle's


@pytest.fixture
def kept(tmp_path, monkeypatch) -> Path:
    """Where bundles are kept: nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "cluster_sim" / "bundles"


@pytest.fixture
def builds(monkeypatch) -> list[str]:
    """Names of the bundles that are built."""
    found = []

    def build(model, hardware, parallel, verify_attention):  # noqa: ARG001  as roofline.build
        found.append(roofline.bundle_name(model, hardware, parallel))
        return replace(BUNDLE, hardware=bundle_format.facts_of(hardware))

    monkeypatch.setattr(library.roofline, "build", build)
    return found


# ---- by name or path ----


def test_a_bundle_is_found_by_name_with_and_without_its_size():
    shipped = bundles_dir() / "llama-3.1-8b-h100-tp1"
    assert library.directory_of("llama-3.1-8b-h100-tp1", 1) == shipped
    assert library.directory_of("llama-3.1-8b-h100", 1) == shipped


def test_a_bundle_is_found_by_path_with_and_without_its_size(tmp_path):
    directory = written(tmp_path / "mine-tp2")
    assert library.directory_of(str(directory), 1) == directory
    assert library.directory_of(str(tmp_path / "mine"), 2) == directory


@pytest.mark.parametrize("name", ["no-such", "", "x" * 300, "llama-3.1-8b-h100-tp7"])
def test_a_missing_bundle_lists_those_that_exist(name):
    with pytest.raises(UserError) as caught:
        library.directory_of(name, 1)
    assert f"but got {name} (cluster.bundle). Bundles: " in str(caught.value)
    assert "llama-3.1-8b-h100-tp1" in str(caught.value)


def test_a_size_that_is_not_there_is_not_another_one():
    with pytest.raises(UserError, match=r"but got llama-3\.1-8b-h100 "):
        library.directory_of("llama-3.1-8b-h100", 2)


def test_a_bundle_is_read_once(tmp_path):
    assert library.read(written(tmp_path)) is library.read(tmp_path)


# ---- built on first use ----


def test_the_shipped_bundle_serves_the_shipped_facts(kept, builds):
    directory = library.directory_for(CONFIG.model, CONFIG.hardware, ALONE)
    assert directory == bundles_dir() / "llama-3.1-8b-h100-tp1"
    assert builds == []
    assert not kept.exists()


def test_other_facts_are_built_once_and_kept(kept, builds):
    first = library.directory_for(CONFIG.model, OTHER, ALONE)
    assert library.directory_for(CONFIG.model, OTHER, ALONE) == first
    assert builds == ["llama-3.1-8b-h100-tp1"]
    assert [path.name for path in kept.iterdir()] == [first.name]  # and nothing unfinished
    assert first.name.startswith("llama-3.1-8b-h100-tp1-")
    assert bundle_format.read(first).hardware["hbm_gb_per_s"] == 1000.0


@pytest.mark.usefixtures("kept")
def test_what_is_kept_is_the_roofline_of_the_facts():
    directory = library.directory_for(CONFIG.model, OTHER, ALONE)
    made = roofline.build(CONFIG.model, OTHER, ALONE)
    assert (bundle_format.read(directory).tables["dense"].time_s == made.tables["dense"].time_s).all()


@pytest.mark.usefixtures("kept")
def test_every_fact_and_size_has_its_own(builds):
    model, other = replace(CONFIG.model, intermediate_size=8192), replace(OTHER, num_sms=100)
    asked = [(CONFIG.model, OTHER, ALONE), (model, OTHER, ALONE), (CONFIG.model, other, ALONE)]
    asked.append((CONFIG.model, OTHER, Parallel(2)))
    assert len({library.directory_for(*one) for one in asked}) == len(builds) == 4


@pytest.mark.usefixtures("kept", "builds")
def test_what_the_sources_say_is_part_of_the_name(monkeypatch):
    before = library.directory_for(CONFIG.model, OTHER, ALONE)
    monkeypatch.setattr(library, "SOURCES", library.SOURCES[:-1])
    assert library.directory_for(CONFIG.model, OTHER, ALONE) != before


def test_the_sources_are_all_that_a_roofline_is_made_by():
    """Every module that roofline.py imports, however indirectly, but for those that hold no physics."""
    package = Path(cluster_sim.__file__).parent
    without_physics = {"config.py", "errors.py", "manifest.py", "paths.py", "__init__.py", "engine/jit.py"}
    found, left = set(), [Path("bundle/roofline.py")]
    while left:
        module = left.pop()
        if str(module) in without_physics | found:
            continue
        found.add(str(module))
        for node in ast.walk(ast.parse((package / module).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cluster_sim"):
                inside = Path(*node.module.split(".")[1:])
                modules = [inside.with_suffix(".py")] if inside.name else []
                modules += [inside / f"{name.name}.py" for name in node.names]
                left += [path for path in modules if (package / path).is_file()]
    listed = {str((package / "bundle" / name).resolve().relative_to(package)) for name in library.SOURCES}
    assert listed == found


def test_a_bundle_of_another_verify_attention_is_not_the_shipped_one(kept):
    """Attention of a decode of 5 queries is 1 + 4 * 0.16 reads of its KV, instead of 1 + 4 * 0.12."""
    shipped = library.read(library.directory_for(CONFIG.model, CONFIG.hardware, ALONE))
    directory = library.directory_for(CONFIG.model, CONFIG.hardware, ALONE, 0.16)
    assert directory.parent == kept
    assert "-verify0.16-" in directory.name
    other = library.read(directory)
    assert other.parameters["verify_attention"].value == 0.16
    assert shipped.parameters["verify_attention"].value == 0.12
    time_s, shipped_s = (
        one.tables["decode_attention"].time_s for one in (other, shipped)
    )  # [query tokens, ..]
    assert np.array_equal(time_s[0], shipped_s[0])
    assert (time_s[1:] >= shipped_s[1:]).all()
    assert (time_s[4] > shipped_s[4]).any()


def test_a_bundle_that_another_process_kept_meanwhile_is_taken(kept, monkeypatch):
    meanwhile: list[Path] = []

    def build(*facts):
        if not meanwhile:
            meanwhile.append(Path())
            meanwhile[0] = library.directory_for(*facts)
        return BUNDLE

    monkeypatch.setattr(library.roofline, "build", build)
    assert library.directory_for(CONFIG.model, OTHER, ALONE) == meanwhile[0]
    assert list(kept.iterdir()) == meanwhile


@pytest.mark.usefixtures("builds")
def test_a_cache_that_cannot_be_written_is_worded(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError) as caught:
        library.directory_for(CONFIG.model, OTHER, ALONE)
    assert "a bundle that is built on first use must be kept, but got Not a directory" in str(caught.value)
    assert str(caught.value).endswith("Set XDG_CACHE_HOME to a writable directory.")


@pytest.mark.usefixtures("builds")
def test_an_unfinished_bundle_is_not_left_behind(kept, monkeypatch):
    def write(_bundle, directory):
        directory.mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(library.bundle_format, "write", write)
    with pytest.raises(UserError, match="but got No space left on device"):
        library.directory_for(CONFIG.model, OTHER, ALONE)
    assert list(kept.iterdir()) == []
