"""The bundle format: a directory of bundle.yaml and one parquet file per table.

    bundle.yaml        schema version, model, hardware, parameters, drafters, a source per table
    dense              tokens                        GEMMs, norms, .. and one attention call a layer
    head               rows                          lm_head and sampler
    prefill_attention  chunk_tokens, history_tokens  what a prefill adds to those calls, all layers
    decode_attention   query_tokens, chunk_tokens (the longest prefill beside), requests, kv_tokens (mean)
    draft_first        drafter, tokens               a drafter's pass over the step's tokens
    draft_next         drafter, requests             each further pass
    draft_head         drafter, rows                 the drafter's lm_head and choice

Tables are parquet files of these key columns and time_s (grids.py). Times are those of kernels in one CUDA
graph at exactly that size; padding and launch gaps come from `parameters` (step_tables.py). Every number
has a source and a licence. The same bundle is written as the same bytes.
"""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from cluster_sim.bundle.grids import Table, read_grid, write_grid
from cluster_sim.bundle.sections import (
    Parameter,
    Section,
    number,
    only,
    read_parameters,
    read_yaml,
    refuse,
    section,
    shown,
    text,
)
from cluster_sim.config import ModelConfig
from cluster_sim.errors import UserError
from cluster_sim.paths import bundles_dir

SCHEMA_VERSION = 1
KINDS = ("roofline", "measured")
TARGET_TABLES = {
    "dense": ("tokens",),
    "head": ("rows",),
    "prefill_attention": ("chunk_tokens", "history_tokens"),
    "decode_attention": ("query_tokens", "chunk_tokens", "requests", "kv_tokens"),
}
DRAFT_TABLES = {
    "draft_first": ("drafter", "tokens"),
    "draft_next": ("drafter", "requests"),
    "draft_head": ("drafter", "rows"),
}
PARAMETERS = {
    "host_s",
    "max_cudagraph_capture_tokens",
    "piecewise_layer_gap_s",
    "piecewise_layer_launch_s",
    "eager_layer_launch_s",
    "eager_overhead_s",
    "verify_attention",
}
DRAFTER_PARAMETERS = {
    "num_hidden_layers",
    "prepare_s",
    "pass_launch_s",
    "attention_s_per_kv_token",
    "weights_bytes",
    "kv_bytes_per_token",
}
TEXTS = ("name", "kind", "engine", "dtype")


@dataclass(frozen=True)
class Bundle:
    """Step times of one model on one GPU type at one tensor parallel size.

    `model` and `hardware` hold facts by name, those of the configuration's groups.
    """

    name: str
    kind: str
    engine: str
    dtype: str
    tensor_parallel_size: int
    model: Section
    hardware: Section
    parameters: dict[str, Parameter]
    drafters: dict[str, dict[str, Parameter]]
    tables: dict[str, Table]


def find(name_or_path: str) -> Bundle:
    """A shipped bundle by its name, or any by its path.

    Raises:
        UserError: there is none (lists the shipped ones), or it is damaged.
    """
    return read(directory_of(name_or_path))


def directory_of(name_or_path: str) -> Path:
    """The directory of a shipped bundle, or of the one at a path.

    Raises:
        UserError: there is none; lists the shipped ones.
    """
    for directory in (bundles_dir() / name_or_path, Path(name_or_path)):
        if (directory / "bundle.yaml").is_file():
            return directory
    existing = ", ".join(sorted(file.parent.name for file in bundles_dir().glob("*/bundle.yaml")))
    rule = "a bundle must be a shipped one or a directory with a bundle.yaml"
    raise UserError(rule, name_or_path, "cluster.bundle", f"Bundles: {existing or 'none'}.")


def read(directory: Path) -> Bundle:
    """Read and check a bundle.

    Raises:
        UserError: anything missing, unknown, damaged or without a source; names file and column or key.
    """
    file = directory / "bundle.yaml"
    content = read_yaml(file)
    version = content.get("schema_version")
    if version != SCHEMA_VERSION:
        refuse(f"schema_version must be {SCHEMA_VERSION}", version, file)
    sections = {"model", "hardware", "parameters", "drafters", "tables"}
    only(content, {"schema_version", "tensor_parallel_size", *TEXTS, *sections}, "a bundle", file)
    name, kind, engine, dtype = (text(content, key, "a bundle", file) for key in TEXTS)
    if kind not in KINDS:
        refuse(f"kind must be {' or '.join(KINDS)}", kind, file)
    tensor_parallel_size = content.get("tensor_parallel_size")
    if type(tensor_parallel_size) is not int or tensor_parallel_size < 1:
        refuse("tensor_parallel_size must be a whole number >= 1", tensor_parallel_size, file)
    drafters = _read_drafters(section(content, "drafters", file), file)
    parameters = read_parameters(section(content, "parameters", file), "parameters", file)
    _need(parameters, PARAMETERS, "parameters", file)
    return Bundle(
        name=name,
        kind=kind,
        engine=engine,
        dtype=dtype,
        tensor_parallel_size=tensor_parallel_size,
        model=_read_model(content, file),
        hardware=_read_facts(content, "hardware", file),
        parameters=parameters,
        drafters=drafters,
        tables=_read_tables(section(content, "tables", file), sorted(drafters), file),
    )


def check_matches(bundle: Bundle, model: ModelConfig, tensor_parallel_size: int) -> None:
    """Refuse a bundle of another model or tensor parallel size than the configuration's.

    Raises:
        UserError: names the first fact that differs.
    """
    wanted: Section = {
        **{key: value for key, value in asdict(model).items() if key != "source"},
        "tensor_parallel_size": tensor_parallel_size,
    }
    facts = {**bundle.model, "tensor_parallel_size": bundle.tensor_parallel_size}
    for key, value in wanted.items():
        if key in facts and facts[key] != value:
            rule = f"a bundle must be of the simulated model: {key} {value}"
            raise UserError(
                rule, facts[key], f"cluster.bundle {bundle.name}", "Name another bundle or model."
            )


def write(bundle: Bundle, directory: Path) -> None:
    """Write `bundle` as a directory; the same bundle gives the same bytes."""
    directory.mkdir(parents=True, exist_ok=True)
    content = {
        "schema_version": SCHEMA_VERSION,
        **{key: getattr(bundle, key) for key in TEXTS},
        "tensor_parallel_size": bundle.tensor_parallel_size,
        "model": bundle.model,
        "hardware": bundle.hardware,
        "parameters": shown(bundle.parameters),
        "drafters": {name: shown(parameters) for name, parameters in bundle.drafters.items()},
        "tables": {
            name: {"source": table.source, "licence": table.licence} for name, table in bundle.tables.items()
        },
    }
    words = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
    (directory / "bundle.yaml").write_text(words, encoding="utf-8")
    for name, table in bundle.tables.items():
        write_grid(table, directory / f"{name}.parquet")


def digest(directory: Path) -> str:
    """sha256 of the bundle's files, hexadecimal: changes when any byte of them does."""
    total = hashlib.sha256()
    for file in sorted([directory / "bundle.yaml", *directory.glob("*.parquet")]):
        total.update(f"{file.name}\n{file.stat().st_size}\n".encode())
        total.update(file.read_bytes())
    return total.hexdigest()


def _read_facts(content: Section, name: str, file: Path) -> Section:
    """A section of facts, which says where they come from."""
    facts = section(content, name, file)
    for key in ("name", "source", "licence"):
        text(facts, key, name, file)
    return facts


def _read_model(content: Section, file: Path) -> Section:
    """The model's facts, of which step_tables.py counts the layers."""
    facts = _read_facts(content, "model", file)
    if number(facts, "num_hidden_layers", "model", file) < 1:
        refuse("model must have a layer", "num_hidden_layers 0", file)
    return facts


def _read_drafters(content: Section, file: Path) -> dict[str, dict[str, Parameter]]:
    drafters = {}
    for name in content:
        drafters[name] = read_parameters(section(content, name, file), f"drafters.{name}", file)
        _need(drafters[name], DRAFTER_PARAMETERS, f"drafters.{name}", file)
        only(drafters[name], DRAFTER_PARAMETERS, f"drafters.{name}", file)
    return drafters


def _need(content: Section, names: set[str], where: str, file: Path) -> None:
    missing = sorted(names - set(content))
    if missing:
        refuse(f"{where} must hold {', '.join(sorted(names))}", f"none called {missing[0]}", file)


def _read_tables(content: Section, drafters: list[str], file: Path) -> dict[str, Table]:
    wanted = TARGET_TABLES | (DRAFT_TABLES if drafters else {})
    _need(content, set(wanted), "tables", file)
    only(content, set(wanted), "tables", file)
    tables = {}
    for name, keys in wanted.items():
        about = section(content, name, file)
        only(about, {"source", "licence"}, f"tables.{name}", file)
        source, licence = (text(about, key, f"tables.{name}", file) for key in ("source", "licence"))
        parquet = file.with_name(f"{name}.parquet")
        axes, time_s = read_grid(parquet, keys)
        if "drafter" in axes and list(axes["drafter"]) != drafters:
            refuse(f"column drafter must hold {', '.join(drafters)}", ", ".join(axes["drafter"]), parquet)
        tables[name] = Table(axes, time_s, source, licence)
    return tables
