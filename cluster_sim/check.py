"""What types cannot say of the configuration: bounds, contradictions, and settings that would do nothing.

Rules of vLLM are those of its 0.33.0 release (../shared/vllm-scheduler.md section 11).
"""

from typing import Any, NoReturn

from cluster_sim.bounds import BOUNDS
from cluster_sim.check_acceptance import check_acceptance
from cluster_sim.check_cluster import check_cluster
from cluster_sim.check_executor import check_executor
from cluster_sim.check_faults import check_faults
from cluster_sim.check_model import check_hardware, check_model
from cluster_sim.check_router import check_router
from cluster_sim.check_speculation import check_speculation
from cluster_sim.check_study import check_no_study, check_study
from cluster_sim.check_sweep import check_sweep
from cluster_sim.check_traffic import check_traffic, needs_lengths, needs_rate
from cluster_sim.config import (
    Config,
    Method,
)
from cluster_sim.engine_defaults import resolve_engine
from cluster_sim.errors import UserError
from cluster_sim.schema import shown
from cluster_sim.speculation.vllm_config import check_kept


def check(config: Config) -> None:
    """Raise for the first thing in `config` that is out of bounds, contradicts itself or has no effect.

    Raises:
        UserError: worded with the rule, the value, its key and what to do.
    """
    _check_bounds(config)
    check_model(config.model, config.cluster.tensor_parallel_size)
    check_hardware(config.hardware)
    check_cluster(config.cluster, config.model)
    _check_engine(config)
    check_speculation(config)
    check_acceptance(config.speculation)
    check_kept(config)
    _check_workload(config)
    check_traffic(config.workload, config.engine.scheduling_policy)
    check_router(config)
    check_executor(config)
    check_faults(config)
    if config.sweep is not None:
        check_sweep(config.sweep)
    if config.study is not None:
        check_study(config, config.study)
    else:
        check_no_study(config)


def _check_bounds(config: Config) -> None:
    for key, bound in BOUNDS.items():
        value = _value(config, key)
        broken = None if value is None else bound.broken(value)
        if broken is not None:
            must_be, instead = broken
            _refuse(f"{bound.quantity} must be {must_be}", value, key, f"Set {key} to {instead}.")


def _check_engine(config: Config) -> None:
    engine = resolve_engine(config.engine, config.model, config.hardware)
    longest = config.model.max_position_embeddings
    _at_most(
        engine.max_model_len, longest, "max_model_len", f"the model's max_position_embeddings ({longest})"
    )
    seqs, tokens = engine.max_num_seqs, engine.max_num_batched_tokens
    _at_most(seqs, tokens, "max_num_seqs", f"max_num_batched_tokens ({tokens})")
    _at_most(
        engine.max_num_scheduled_tokens,
        tokens,
        "max_num_scheduled_tokens",
        f"max_num_batched_tokens ({tokens})",
    )
    _at_most(engine.max_num_active_seqs, seqs, "max_num_active_seqs", f"max_num_seqs ({seqs})")
    if not engine.enable_chunked_prefill:
        where = f"max_num_batched_tokens ({tokens}) without chunked prefill"
        _at_most(engine.max_model_len, tokens, "max_model_len", where)
    verified = 1 + (config.speculation.num_speculative_tokens or 0)
    budget = engine.max_num_scheduled_tokens
    if budget is not None and verified > budget:
        rule = f"a step must have room for one verification, 1 + num_speculative_tokens = {verified} tokens"
        _refuse(rule, budget, "engine.max_num_scheduled_tokens", f"Set it to {verified} or more.")
    if engine.long_prefill_token_threshold_adaptive and engine.long_prefill_token_threshold == 0:
        rule, key = "the adaptive threshold starts from one", "engine.long_prefill_token_threshold"
        _refuse(rule, "0", key, f"Set {key} above 0, or leave {key}_adaptive out.")
    looks_ahead = config.speculation.method is not Method.none and engine.enable_prefix_caching
    for flag in ("disable_lookahead_block_hashes", "disable_eagle_block_drop"):
        if getattr(engine, flag) and not looks_ahead:
            rule = "this flag has an effect only with speculation and prefix caching"
            _refuse(rule, True, f"engine.{flag}", f"Leave engine.{flag} out.")


def _check_workload(config: Config) -> None:
    workload = config.workload
    if workload.warmup + workload.cooldown >= 1:
        rule = "warmup and cooldown must leave requests to measure: below 1 together"
        got = f"{workload.warmup:g} and {workload.cooldown:g}"
        _refuse(rule, got, "workload.warmup", "Lower one of them.")
    if workload.trace is not None:
        for key in ("prompt_tokens", "output_tokens"):
            if getattr(workload, key) is not None:
                got = getattr(workload, key)
                _refuse(
                    "a trace brings its own lengths",
                    got,
                    f"workload.{key}",
                    f"Leave workload.{key} or the trace out.",
                )
        return
    lengths = [key for key in ("prompt_tokens", "output_tokens") if needs_lengths(workload, key)]
    for key in ("request_rate", *lengths) if needs_rate(workload) else lengths:
        if getattr(workload, key) is None:
            _refuse(
                "traffic without a trace needs this value",
                None,
                f"workload.{key}",
                "Set it, or give workload.trace.",
            )
    if workload.requests is None and workload.duration_s is None:
        rule = "the number of requests must be bounded by workload.requests or workload.duration_s"
        _refuse(rule, "null for both", "workload.requests", "Set one of them.")
    limit = resolve_engine(config.engine, config.model, config.hardware).max_model_len
    prompt = workload.prompt_tokens
    if isinstance(prompt, int) and limit is not None and prompt >= limit:
        rule = (
            f"a prompt must be shorter than engine.max_model_len ({limit}), to leave room for an output token"
        )
        _refuse(
            rule,
            prompt,
            "workload.prompt_tokens",
            f"Set it to {limit - 1} or less, or raise engine.max_model_len.",
        )


def _at_most(value: int | None, limit: int | None, key: str, limit_words: str) -> None:
    if value is not None and limit is not None and value > limit:
        remedy = f"Lower engine.{key}, or raise the other where that is possible."
        _refuse(f"{key} must be at most {limit_words}", value, f"engine.{key}", remedy)


def _value(config: Config, key: str) -> Any:
    """The value at a dotted key; None where a part on the way is absent."""
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name) if value is not None else None
    return value


def _refuse(rule: str, got: object, where: str, remedy: str) -> NoReturn:
    raise UserError(rule, got if isinstance(got, str) else shown(got), where, remedy)
