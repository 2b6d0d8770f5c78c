"""A directory of profiled tables: which sizes it holds, and what its meta.yaml says of them.

The profiler runs a model of one layer and of one GPU's share. meta.yaml holds that share as hf_overrides, of
the last size that was profiled.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from cluster_sim.bundle.architecture import Parallel, kv_heads
from cluster_sim.bundle.sections import read_yaml, text
from cluster_sim.config import ModelConfig, Quantization
from cluster_sim.errors import UserError

META = "meta.yaml"
VARIANTS = {Quantization.none: "bf16", Quantization.fp8: "fp8", Quantization.mxfp4: "mxfp4"}


@dataclass(frozen=True)
class Profile:
    """The tables of one tensor parallel size, and what was profiled, in the profiler's words."""

    directory: Path  # tpN
    tensor_parallel_size: int
    model: str
    hardware: str
    gpu: str
    vllm_version: str
    meta: Mapping[str, Any]

    @property
    def meta_file(self) -> Path:
        """Where `meta` was read."""
        return self.directory.parent / META


def profiles(path: Path) -> list[Profile]:
    """The profiles at `path`: a directory of meta.yaml and tpN/, or one of its tpN/.

    Raises:
        UserError: neither, or damaged.
    """
    at = path.resolve()
    if not (at / META).is_file() and _size(at) and (at.parent / META).is_file():
        return [_profile(at)]
    if not (at / META).is_file():
        below = sorted(str(file.parent) for file in path.rglob(META))
        rule = f"a directory of profiled tables must hold {META}, beside directories tp1, tp2, .."
        remedy = f"Name one of {', '.join(below)}." if below else "Name the directory that does."
        raise UserError(rule, "none", str(path), remedy)
    sizes = sorted((_size(found), found) for found in at.iterdir() if found.is_dir() and _size(found))
    if not sizes:
        raise UserError(
            "profiled tables must lie in directories tp1, tp2, ..", "none", str(path), "Profile again."
        )
    return [_profile(found) for _, found in sizes]


def check_is_of(profile: Profile, model: ModelConfig) -> None:
    """Refuse a profile that meta.yaml says to be of another model than the configuration's.

    Raises:
        UserError: names the first fact that differs.
    """
    wanted = VARIANTS[model.quantization]
    if profile.meta.get("variant", wanted) != wanted:
        rule = f"variant must be {wanted}, the type of the weights of {model.name} and of their KV"
        _refuse(profile, rule, profile.meta["variant"])
    sizes = profile.meta.get("tp_degrees", [profile.tensor_parallel_size])
    if not isinstance(sizes, list) or not all(type(size) is int and size > 0 for size in sizes):
        _refuse(profile, "tp_degrees must hold whole numbers >= 1", sizes)
    if profile.tensor_parallel_size not in sizes:
        _refuse(profile, f"tp_degrees must hold that of {profile.directory.name}", sizes)
    profiled = _overrides(profile)
    shares = [_share(model, size) for size in sizes]
    nearest = max(shares, key=lambda share: sum(profiled.get(key) == value for key, value in share.items()))
    for key, value in nearest.items():
        if profiled.get(key, value) != value:
            rule = f"hf_overrides must be those of {model.name}: {key} {value}"
            _refuse(profile, rule, profiled[key])


def _size(directory: Path) -> int:
    """The tensor parallel size that a directory is named after; 0: none."""
    digits = directory.name.removeprefix("tp")
    is_size = directory.name.startswith("tp") and digits.isascii() and digits.isdigit()
    return int(digits) if is_size else 0


def _profile(directory: Path) -> Profile:
    file = directory.parent / META
    meta = read_yaml(file)
    model, hardware, gpu, version = (
        text(meta, key, "a profile", file) for key in ("model", "hardware", "gpu", "vllm_version")
    )
    return Profile(directory, _size(directory), model, hardware, gpu, version, meta)


def _overrides(profile: Profile) -> Mapping[str, Any]:
    """The shape of the profiled layer, as far as it is told."""
    engine = profile.meta.get("engine_effective", {})
    profiled = engine.get("hf_overrides", {}) if isinstance(engine, dict) else engine
    if not isinstance(profiled, dict):
        _refuse(profile, "engine_effective must hold hf_overrides, a mapping of names", repr(profiled))
    return profiled


def _share(model: ModelConfig, size: int) -> dict[str, int]:
    """What one of `size` GPUs holds of a model, by the names in hf_overrides."""
    return {
        "intermediate_size": model.intermediate_size // size,
        "num_attention_heads": model.num_attention_heads // size,
        "num_key_value_heads": kv_heads(model, Parallel(size)),
        "vocab_size": model.vocab_size // size,
    }


def _refuse(profile: Profile, rule: str, got: object) -> NoReturn:
    raise UserError(rule, got, str(profile.meta_file), "Name the profiled model with --model.")
