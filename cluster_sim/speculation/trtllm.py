"""TensorRT-LLM's draft schedules <-> vLLM's.

draft_len_schedule maps the largest batch size of a range to its draft length: {4: 4, 8: 2, 32: 1} drafts 4
tokens for 1 to 4 requests, 2 for 5 to 8, 1 for 9 to 32, and none above. TensorRT-LLM takes the first key at
or above the batch size, else 0 (get_draft_len_for_batch_size in tensorrt_llm/_torch/speculative/interface.py;
../shared/spec-decode-facts.md section E, row 33); its first releases took keys as lower bounds. vLLM carries
the last K forward instead, so that the 0 is written out for it.

The rules are those of DecodingBaseConfig (tensorrt_llm/llmapi/llm_args.py): keys of 1 or more, lengths of 0
or more, and max_draft_len, here num_speculative_tokens, at the smallest key and nowhere exceeded. Lengths may
rise again behind it.
"""

from collections.abc import Mapping
from dataclasses import replace

from cluster_sim.config import Method, SpeculationConfig
from cluster_sim.errors import UserError
from cluster_sim.schema import shown
from cluster_sim.speculation.schedule import Longs, describe, whole_number

KEY = "speculation.draft_len_schedule"
EXAMPLE = "{4: 4, 8: 2, 32: 1}"


def from_trtllm(mapping: object, max_num_seqs: int) -> list[list[int]]:
    """The [[first, last, K], ...] of vLLM for a draft_len_schedule, with its zero tail up to `max_num_seqs`.

    Raises:
        UserError: a rule of TensorRT-LLM is broken.
    """
    ordered = _parsed(mapping)
    lasts = [last for last, _ in ordered]
    firsts = [1, *(last + 1 for last in lasts[:-1])]
    ranges = [[first, last, drafts] for first, (last, drafts) in zip(firsts, ordered, strict=True)]
    if lasts[-1] < max_num_seqs:
        ranges.append([lasts[-1] + 1, max_num_seqs, 0])
    return ranges


def to_trtllm(dense: Longs) -> dict[int, int]:
    """The shortest draft_len_schedule for draft lengths at batch sizes 1, 2, .. (entry 0 is not part of it).

    Raises:
        UserError: TensorRT-LLM cannot hold it: batch size 1 must have the most drafts, and some.
    """
    mapping = {last: drafts for _, last, drafts in describe(dense)}
    if mapping[max(mapping)] == 0 and len(mapping) > 1:
        del mapping[max(mapping)]
    _parsed(mapping)
    return mapping


def with_vllm_schedule(speculation: SpeculationConfig, max_num_seqs: int) -> SpeculationConfig:
    """`speculation` with a draft_len_schedule turned into vLLM's key, and its first K as the draft length.

    Raises:
        UserError: both schedules are given, speculation is off, or a rule of TensorRT-LLM is broken.
    """
    mapping = speculation.draft_len_schedule
    if mapping is None:
        return speculation
    if speculation.method is Method.none:
        remedy = "Write speculation=none without it, or choose a method: speculation=eagle3."
        raise UserError("draft_len_schedule has no effect with method none", shown(mapping), KEY, remedy)
    if speculation.num_speculative_tokens_per_batch_size is not None:
        rule = "a schedule is given once"
        got = "draft_len_schedule and num_speculative_tokens_per_batch_size"
        raise UserError(rule, got, KEY, "Leave one of them out.")
    ranges = from_trtllm(mapping, max_num_seqs)
    longest = ranges[0][2]
    if speculation.num_speculative_tokens not in (None, longest):
        rule = f"num_speculative_tokens must be the draft length of the smallest batches ({longest})"
        where = "speculation.num_speculative_tokens"
        raise UserError(
            rule, speculation.num_speculative_tokens, where, f"Leave it out, or set it to {longest}."
        )
    return replace(
        speculation,
        num_speculative_tokens=longest,
        num_speculative_tokens_per_batch_size=ranges,
        draft_len_schedule=None,
    )


def _parsed(mapping: object) -> list[tuple[int, int]]:
    """(largest batch size, draft length), ascending."""
    if not isinstance(mapping, Mapping) or not mapping:
        rule = "draft_len_schedule must map batch sizes to draft lengths"
        raise UserError(rule, shown(mapping), KEY, f"Give it as TensorRT-LLM has it, for example {EXAMPLE}.")
    pairs = []
    for key, value in mapping.items():
        last, drafts = whole_number(key), whole_number(value)
        got = f"{key}: {value}"
        if last is None or last < 1:
            remedy = f"Count requests from 1, for example {EXAMPLE}."
            raise UserError("a batch size must be a whole number of 1 or more", got, KEY, remedy)
        if drafts is None or drafts < 0:
            remedy = "Use 0 to draft nothing."
            raise UserError("a draft length must be a whole number of 0 or more", got, KEY, remedy)
        pairs.append((last, drafts))
    ordered = sorted(pairs)
    if len({last for last, _ in ordered}) < len(ordered):
        raise UserError("batch sizes must differ", dict(mapping), KEY, "Keep one of them.")
    smallest, longest = ordered[0]
    if longest == 0:
        remedy = "Choose speculation=none, or let the smallest batches draft."
        raise UserError("the smallest batches must draft", f"{smallest}: 0", KEY, remedy)
    for last, drafts in ordered:
        if drafts > longest:
            rule = f"no draft length may exceed that of the smallest batches ({longest})"
            raise UserError(
                rule, f"{last}: {drafts}", KEY, "Use vLLM's num_speculative_tokens_per_batch_size."
            )
    return ordered
