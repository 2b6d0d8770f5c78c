"""A small profile directory of known formulas, so that what is imported has closed forms.

All times are microseconds of one layer. tokens t, sequences s, chunk c, history h, decodes n, KV k, query q.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from cluster_sim.bundle.format import Bundle
from cluster_sim.bundle.importers.profile import profiles
from cluster_sim.bundle.importers.profiled_tables import read_profile
from cluster_sim.bundle.servers import Server
from cluster_sim.compose import compose
from cluster_sim.config import HardwareConfig, ModelConfig
from cluster_sim.errors import UserError

DENSE = {
    **{"embedding": 1, "final_layernorm": 2, "layernorm": 3, "qkv_proj": 5, "rotary_emb": 7, "o_proj": 11},
    **{"gate_up_proj": 13, "act_fn": 17, "down_proj": 19},
}
MLP = ("gate_up_proj", "act_fn", "down_proj")
QK_NORM = 23
TOKENS, SEQUENCES, MTP_SEQUENCES = (1, 2, 16, 256), (1, 4, 64), (1, 32)
CHUNKS, HISTORIES = (16, 64, 256), (0, 16, 128, 512, 2048)
DECODES, KV = (1, 2, 4, 8), (16, 64, 256, 1024)
MOE_TOKENS, ACTIVE = (1, 2, 16, 64), (8, 32, 128)
SKEW = {"n<=2": 0.9, "n<=64": 0.08, "n<=128": 0.03, "n<=256": -0.01, "n>256": 0.5}


def model_of(name: str) -> ModelConfig:
    """A model of conf/model."""
    return compose([f"model={name}", "speculation=none"]).model


def hardware_of(name: str) -> HardwareConfig:
    """A GPU of conf/hardware."""
    return compose([f"hardware={name}", "speculation=none"]).hardware


LLAMA, QWEN3_MOE = model_of("llama-3.1-8b"), model_of("qwen3-30b-a3b")
WITH_MTP = replace(LLAMA, num_nextn_predict_layers=1)
RTX4090, H100 = hardware_of("rtx4090"), hardware_of("h100")


def tokens_us(tokens: float) -> float:
    """A layer of dense.csv, per unit of its weight in DENSE."""
    return 10.0 + 0.5 * tokens


def head_us(sequences: float) -> float:
    """lm_head and sampler together."""
    return 120.0 + 3.0 * sequences


def prefill_us(chunk: float, history: float) -> float:
    """Alone; per query token linear in the chunk, so that any chunk is exact."""
    return chunk * (0.01 + 1e-5 * (history + chunk / 2))


def decodes_us(decodes: float, kv_tokens: float, chunk: float, query: int = 1) -> float:
    """What decodes add beside a chunk; linear in decodes and in KV, so that missing corners are exact."""
    return decodes * (0.1 + 0.001 * kv_tokens) * (1 + chunk / 1024) * (1 + 0.1 * (query - 1))


def experts_us(tokens: float, active: float) -> float:
    """Routed experts."""
    return 3.0 * active + 0.25 * tokens


def mtp_us(sequences: float) -> float:
    """Around the module's decoder layer."""
    return 80.0 + 0.5 * sequences


def write_profile(
    directory: Path, model: ModelConfig = LLAMA, sizes: Sequence[int] = (1,), parts: Collection[str] = ()
) -> Path:
    """A profile of `model` at tensor parallel `sizes`; it may have `parts` qk_norm, queries, skew, mtp."""
    name = "Qwen/Qwen3-30B-A3B-Instruct-2507" if model.num_experts else "meta-llama/Llama-3.1-8B"
    share = {"intermediate_size": model.intermediate_size, "num_attention_heads": model.num_attention_heads}
    share |= {"num_key_value_heads": model.num_key_value_heads, "vocab_size": model.vocab_size}
    meta = {
        **{"vllm_version": "0.19.0", "gpu": "NVIDIA Test", "hardware": "RTX4090", "model": name},
        **{"variant": "bf16", "tp_degrees": list(sizes)},
        "engine_effective": {"hf_overrides": {key: value // sizes[-1] for key, value in share.items()}},
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "meta.yaml").write_text(yaml.safe_dump(meta))
    for size in sizes:
        _write_size(directory / f"tp{size}", model, size, parts)
    return directory


def _write_size(at: Path, model: ModelConfig, size: int, parts: Collection[str]) -> None:
    at.mkdir(exist_ok=True)
    layers = DENSE | ({"qk_norm": QK_NORM} if "qk_norm" in parts else {})
    kept = {name: weight for name, weight in layers.items() if not model.num_experts or name not in MLP}
    dense = [(name, t, weight * tokens_us(t) / size) for name, weight in kept.items() for t in TOKENS]
    write(at / "dense.csv", "layer,tokens,time_us", dense)
    head = [("lm_head", s, head_us(s) - 20 - s) for s in SEQUENCES]
    head += [("sampler", s, 20.0 + s) for s in SEQUENCES]
    write(at / "per_sequence.csv", "layer,sequences,time_us", head)
    _write_attention(at / "attention.csv", (1, 4) if "queries" in parts else (1,))
    if model.num_experts and size == 1:  # as the profiler does
        experts = [(t, e, experts_us(t, e)) for t in MOE_TOKENS for e in ACTIVE if e <= 8 * t]
        write(at / "moe.csv", "tokens,activated_experts,time_us", experts)
    if "skew" in parts:
        others = [(0, "n<=64", 7.0, 1), (16, "n<=64", 9.0, 99)]  # fewer samples; beside a prefill
        skew = [*((0, label, alpha, 4) for label, alpha in SKEW.items()), *others]
        write(at / "skew_fit.csv", "pc,n_label,alpha,n_samples", skew)
    if "mtp" in parts:
        module = [("mtp_fc", s, mtp_us(s) - 5) for s in MTP_SEQUENCES]
        module += [("mtp_embed", s, 5.0) for s in MTP_SEQUENCES]
        write(at / "mtp.csv", "layer,sequences,time_us", module)


def _write_attention(file: Path, queries: tuple[int, ...]) -> None:
    """Short histories jump; corners are missing; a query of 4 was profiled without a prefill only."""
    alone = [
        (c, h, 0, 0, 1, prefill_us(c, h) * (10 if 0 < h < 512 else 1))
        for c in CHUNKS
        for h in HISTORIES
        if (c, h) != (256, 2048)
    ]
    beside = [
        (c, 0, n, k, q, (prefill_us(c, 0) if c else 0.0) + decodes_us(n, k, c, q))
        for c in (0, *CHUNKS)
        for n in DECODES
        for k in KV
        for q in queries
        if (q == 1 or c == 0) and (n, k) != (8, 1024) and (c, n) != (256, 8)
    ]
    after_history = [(64, 512, n, k, 1, 1e6) for n in DECODES for k in KV]
    header = "prefill_chunk,kv_prefill,n_decode,kv_decode,decode_q_len,time_us"
    rows = [*alone, *beside, *after_history]
    if queries == (1,):
        header, rows = header.replace("decode_q_len,", ""), [(*row[:4], row[5]) for row in rows]
    write(file, header, rows)


def write(file: Path, header: str, rows: Iterable[tuple[object, ...]]) -> None:
    """A CSV file, numbers to all digits."""
    file.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")


def imported(
    directory: Path,
    model: ModelConfig = LLAMA,
    hardware: HardwareConfig = RTX4090,
    server: Server | None = None,
    place: int = 0,
) -> Bundle:
    """The bundle of the size at `place` in a profile."""
    return read_profile(profiles(directory)[place], model, hardware, server)


def at_points(bundle: Bundle, name: str) -> tuple[np.ndarray, ...]:
    """The table's axes as a grid to evaluate formulas on, and its values."""
    table = bundle.tables[name]
    return (*np.meshgrid(*table.axes.values(), indexing="ij"), table.time_s)


def refused(directory: Path, model: ModelConfig = LLAMA) -> str:
    """The one line with which a profile is refused."""
    with pytest.raises(UserError) as caught:
        imported(directory, model)
    assert "\n" not in str(caught.value)
    return str(caught.value)
