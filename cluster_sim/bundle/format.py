"""The bundle format: a directory of bundle.yaml and one parquet file per table.

    bundle.yaml        schema version, model, hardware, parameters, drafters, a source per table
    dense              tokens                        GEMMs, norms, .. and one attention call a layer
    head               rows                          lm_head and sampler
    prefill_attention  chunk_tokens, history_tokens  what a prefill adds to those calls, all layers
    decode_attention   query_tokens, chunk_tokens (the longest prefill beside), requests, kv_tokens (mean)
    decode_skew        requests                      share of the way from mean to longest KV; may be missing
    all_reduce         tokens                        all of a step; with tensor parallelism
    moe                tokens, experts               routed experts, all layers; with experts
    draft_first        drafter, tokens               a drafter's pass over the step's tokens
    draft_next         drafter, requests             each further pass
    draft_head         drafter, rows                 the drafter's lm_head and choice

Tables are parquet files of these key columns and time_s (grids.py; decode_skew: share). `moe` is timed for
tokens that each go to as many experts as the model says, and `experts` of those on the GPU active. Times are
those of one GPU, of kernels in one CUDA graph at exactly that size; padding and launch gaps come from
`parameters` (step_tables.py). Every number has a source and a licence. The same bundle is written as the same
bytes.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import yaml

from cluster_sim.bundle.grids import TIME, Table, read_grid, write_grid
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
from cluster_sim.config import HardwareConfig, ModelConfig
from cluster_sim.errors import UserError
from cluster_sim.manifest import plain

SCHEMA_VERSION = 2
KINDS = ("roofline", "measured")
TARGET_TABLES = {
    "dense": ("tokens",),
    "head": ("rows",),
    "prefill_attention": ("chunk_tokens", "history_tokens"),
    "decode_attention": ("query_tokens", "chunk_tokens", "requests", "kv_tokens"),
}
DECODE_SKEW, ALL_REDUCE, MOE = "decode_skew", "all_reduce", "moe"
SOMETIMES_TABLES = {
    DECODE_SKEW: ("requests",),
    ALL_REDUCE: ("tokens",),
    MOE: ("tokens", "experts"),
}
DRAFT_TABLES = {
    "draft_first": ("drafter", "tokens"),
    "draft_next": ("drafter", "requests"),
    "draft_head": ("drafter", "rows"),
}
Keys = dict[str, tuple[str, ...]]
VALUE_COLUMNS = {DECODE_SKEW: "share"}  # of the others: time_s
PARAMETERS = {
    "host_s",
    "max_cudagraph_capture_tokens",
    "piecewise_layer_gap_s",
    "piecewise_layer_launch_s",
    "eager_layer_launch_s",
    "eager_overhead_s",
    "verify_attention",
}
MOE_PARAMETERS = {"expert_routing_exponent"}  # with experts
LINK = ("expert_link_latency_s", "expert_link_gb_per_s")  # between ranks that exchange tokens
DRAFTER_PARAMETERS = {
    "num_hidden_layers",
    "prefill_attention_share",
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


def required_tables(model: Section, tensor_parallel_size: int, drafters: Collection[str]) -> Keys:
    """The tables that a bundle of such a model must hold, each with its key columns."""
    wanted = dict(TARGET_TABLES)
    if tensor_parallel_size > 1:
        wanted[ALL_REDUCE] = SOMETIMES_TABLES[ALL_REDUCE]
    if model.get("num_experts", 0):
        wanted[MOE] = SOMETIMES_TABLES[MOE]
    return wanted | (DRAFT_TABLES if drafters else {})


def value_column(table: str) -> str:
    """The column of a table that holds its values."""
    return VALUE_COLUMNS.get(table, TIME)


def facts_of(config: ModelConfig | HardwareConfig) -> Section:
    """A model's or a GPU's facts as a bundle holds them: those of its configuration, in plain values."""
    facts = {key: value for key, value in plain(config).items() if not key.startswith(("default_", "price_"))}
    return facts | {"licence": facts.get("licence", "facts")}


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
    model = _read_model(content, file)
    needed = PARAMETERS | (MOE_PARAMETERS if model.get("num_experts", 0) else set())
    _need(parameters, needed, "parameters", file)
    only(parameters, PARAMETERS | MOE_PARAMETERS | set(LINK), "parameters", file)
    wanted = required_tables(model, tensor_parallel_size, drafters)
    return Bundle(
        name=name,
        kind=kind,
        engine=engine,
        dtype=dtype,
        tensor_parallel_size=tensor_parallel_size,
        model=model,
        hardware=_read_facts(content, "hardware", file),
        parameters=parameters,
        drafters=drafters,
        tables=_read_tables(section(content, "tables", file), drafters, wanted, file),
    )


def check_matches(
    bundle: Bundle, model: ModelConfig, hardware: HardwareConfig, tensor_parallel_size: int
) -> None:
    """Refuse a bundle of another model, GPU or tensor parallel size than the configuration's.

    Raises:
        UserError: names the first fact that differs.
    """
    if bundle.hardware["name"] != hardware.name:
        rule = f"a bundle must be of the simulated hardware: {hardware.name}"
        remedy = f"Choose hardware={bundle.hardware['name']}, or another bundle."
        raise UserError(rule, bundle.hardware["name"], f"cluster.bundle {bundle.name}", remedy)
    left_out = ("source", "licence")
    wanted: Section = {key: value for key, value in facts_of(model).items() if key not in left_out}
    wanted["tensor_parallel_size"] = tensor_parallel_size
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
        write_grid(table, directory / f"{name}.parquet", value_column(name))


def write_whole(bundle: Bundle, directory: Path) -> None:
    """Write `bundle` whole or not at all, in the place of what is there; it can be read when it is there.

    Raises:
        OSError: it cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=directory.parent) as unfinished:
        whole = Path(unfinished) / "bundle"
        write(bundle, whole)
        read(whole)
        if directory.exists():
            shutil.rmtree(directory)
        whole.rename(directory)


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
    """The model's facts, of which step_tables.py and expert_tables.py count layers and experts."""
    facts = _read_facts(content, "model", file)
    counted = ["num_hidden_layers"]
    if facts.get("num_experts", 0):
        counted += ["num_experts", "num_experts_per_tok", "hidden_size"]
    for name in counted:
        value = number(facts, name, "model", file)
        if value < 1 or value != int(value):
            refuse(f"model needs a {name} that is a whole number >= 1", facts[name], file)
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


def _read_tables(content: Section, drafters: Collection[str], wanted: Keys, file: Path) -> dict[str, Table]:
    _need(content, set(wanted), "tables", file)
    allowed = {**wanted, **({DECODE_SKEW: SOMETIMES_TABLES[DECODE_SKEW]} if DECODE_SKEW in content else {})}
    only(content, set(allowed), "tables", file)
    tables = {}
    for name, keys in allowed.items():
        about = section(content, name, file)
        only(about, {"source", "licence"}, f"tables.{name}", file)
        source, licence = (text(about, key, f"tables.{name}", file) for key in ("source", "licence"))
        parquet = file.with_name(f"{name}.parquet")
        axes, values = read_grid(parquet, keys, value_column(name))
        if "drafter" in axes and list(axes["drafter"]) != sorted(drafters):
            got = ", ".join(axes["drafter"])
            refuse(f"column drafter must hold {', '.join(sorted(drafters))}", got, parquet)
        tables[name] = Table(axes, values, source, licence)
    return tables
