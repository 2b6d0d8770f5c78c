"""What a study leaves for servers: vLLM's --speculative-config, TensorRT-LLM's schedule, a file to run again.

An arm without speculation has no schedule: then there is no such file, and one of an earlier run is removed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cluster_sim.config import Config, Method
from cluster_sim.errors import UserError
from cluster_sim.files import write_json, write_yaml
from cluster_sim.manifest import plain
from cluster_sim.speculation.schedule import dense_lookup
from cluster_sim.speculation.trtllm import to_trtllm
from cluster_sim.speculation.vllm_config import to_vllm_config
from cluster_sim.speculation.vllm_options import METHODS

SCHEDULE, TRTLLM, BEST = "schedule.json", "schedule_trtllm.json", "best.yaml"
NEEDS_CHECKPOINT = (Method.eagle, Method.eagle3, Method.parallel)
METRICS = "curl -s localhost:8000/metrics | grep -E 'spec_decode_num_(drafts|draft_tokens)_total'"


def export(config: Config, max_num_seqs: int, directory: Path, drafter: str | None) -> list[str]:
    """Write the files for `config`, a simulation of the recommended arm; lines that say what they are for.

    `drafter` is the checkpoint that drafts, where the configuration does not name it.
    """
    write_yaml(directory / BEST, _as_file(config))
    run = f"python -m cluster_sim --config {directory / BEST}"
    lines = [f"to simulate it again, under the last load: {run}"]
    for name in (SCHEDULE, TRTLLM):
        (directory / name).unlink(missing_ok=True)
    if config.speculation.method is Method.none:
        return [*lines, "for vLLM: leave --speculative-config out"]
    return [*lines, *_vllm(config, directory, drafter), *_trtllm(config, max_num_seqs, directory)]


def needs_checkpoint(written: Mapping[str, Any]) -> bool:
    """Whether `written`, vLLM's --speculative-config, lacks the drafter's checkpoint."""
    return "model" not in written and METHODS[written["method"]] in NEEDS_CHECKPOINT


def _as_file(config: Config) -> dict[str, Any]:
    """What --config reads: all keys but where it runs and where results go."""
    tree: dict[str, Any] = plain(replace(config, sweep=None, study=None))
    return {key: value for key, value in tree.items() if key not in ("output", "executor", "sweep", "study")}


def _vllm(config: Config, directory: Path, drafter: str | None) -> Iterator[str]:
    try:
        written = to_vllm_config(config)
    except UserError as error:
        yield f"no {SCHEDULE}: {error}"
        return
    if drafter is not None:
        written["model"] = drafter
    write_json(directory / SCHEDULE, written)
    yield f'for vLLM 0.33: vllm serve MODEL --speculative-config "$(cat {directory / SCHEDULE})"'
    if needs_checkpoint(written):
        yield (
            f'{SCHEDULE} still needs the drafter\'s checkpoint, "model", which vLLM does not guess: the same '
            f"command with output.dir={directory} output.drafter=ORGANISATION/CHECKPOINT writes it, at once"
        )
    yield (
        f"is it active? {METRICS}: between two readings draft tokens / drafts is the K of the batch sizes of "
        "that time; steps with K=0 do not count"
    )


def _trtllm(config: Config, max_num_seqs: int, directory: Path) -> Iterator[str]:
    speculation = config.speculation
    longest = int(speculation.num_speculative_tokens or 0)
    ranges = speculation.num_speculative_tokens_per_batch_size or [[1, max_num_seqs, longest]]
    try:
        mapping = to_trtllm(dense_lookup(ranges, max_num_seqs, longest))
    except UserError as error:
        yield f"no {TRTLLM}: {error.rule}, but it has {error.got}"
        return
    write_json(directory / TRTLLM, {"max_draft_len": longest, "draft_len_schedule": mapping})
    yield f"for TensorRT-LLM's speculative_config: {directory / TRTLLM}"
