"""The keys and words of vLLM's --speculative-config, and of the flags it has dropped. Data only.

Source: vLLM 0.33.0, SpeculativeConfig (config/speculative.py): its fields, their defaults, and what they do
to a step's time, memory or schedule here.
"""

from collections.abc import Mapping

from cluster_sim.config import Method

# MTPModelTypes: 0.33 takes each and warns that the word is mtp.
_MTP = (
    "mtp",
    "deepseek_mtp",
    "dots3_note_mtp",
    "mimo_mtp",
    "mimo_v2_mtp",
    "glm4_moe_mtp",
    "glm4_moe_lite_mtp",
    "glm_ocr_mtp",
    "ernie_mtp",
    "nemotron_h_mtp",
    "exaone_moe_mtp",
    "exaone4_5_mtp",
    "qwen3_next_mtp",
    "qwen4_exp_mtp",
    "qwen3_5_mtp",
    "longcat_flash_mtp",
    "bailing_hybrid_v3_mtp",
    "minimax_m3_mtp",
    "bailing_hybrid_mtp",
    "kimi_k3_mtp",
    "pangu_ultra_moe_mtp",
    "step3p5_mtp",
    "step5_mtp",
    "hy_v3_mtp",
    "hy_v4_mtp",
    "gemma4_mtp",
    "inkling_mtp",
    "glm5_next_mtp",
)

# vLLM's word for a method -> ours
METHODS: Mapping[str, Method] = {
    "eagle": Method.eagle,
    "eagle3": Method.eagle3,
    "draft_model": Method.draft_model,
    "ngram": Method.ngram,
    "[ngram]": Method.ngram,
    "ngram_gpu": Method.ngram,
    "suffix": Method.suffix,
    "dflash": Method.parallel,
    "dspark": Method.parallel,
    **dict.fromkeys(_MTP, Method.mtp),
}

# Our word -> vLLM's, where they differ.
WORDS: Mapping[Method, str] = {Method.parallel: "dflash"}

# Words of vLLM that are no method here, or none of 0.33, and what to do.
OTHER_METHODS: Mapping[str, str] = {
    "extract_hidden_states": "It drafts nothing: choose speculation=none.",
    "custom_class": "Choose the method that drafts like it, with its acceptance: speculation=ngram, say.",
    "medusa": "vLLM 0.33 has no medusa: choose speculation=medusa without vllm_config.",
    "mlp_speculator": "vLLM 0.33 has no MLP speculator: use eagle3, or the method that it resembles.",
}

REJECTION_SAMPLE_METHODS = ("standard", "synthetic", "block", "fly")
DRAFT_SAMPLE_METHODS = ("greedy", "probabilistic")

# Keys that set something here.
READ = (
    "method",
    "model",
    "num_speculative_tokens",
    "num_speculative_tokens_per_batch_size",
    "rejection_sample_method",
    "draft_sample_method",
    "synthetic_acceptance_rates",
    "synthetic_acceptance_length",
    "disable_eagle_block_drop",
    "disable_lookahead_block_hashes",
)

# Flags that vLLM keeps here and this program under engine.
ENGINE_FLAGS = ("disable_eagle_block_drop", "disable_lookahead_block_hashes")

# Keys that change neither time, memory nor scheduling of a simulation -> vLLM's default.
WITHOUT_EFFECT: Mapping[str, object] = {
    "enforce_eager": None,
    "quantization": None,
    "moe_backend": None,
    "attention_backend": None,
    "kv_cache_dtype": None,
    "max_model_len": None,
    "revision": None,
    "code_revision": None,
    "index_share_for_mtp_iteration": None,
    "disable_padded_drafter_batch": False,
    "draft_lm_head_quantization": None,
    "use_local_argmax_reduction": False,
    "use_heterogeneous_vocab": False,
    "prompt_lookup_max": None,
    "prompt_lookup_min": None,
    "suffix_decoding_max_tree_depth": 24,
    "suffix_decoding_max_cached_requests": 10000,
    "suffix_decoding_max_spec_factor": 1.0,
    "suffix_decoding_min_token_prob": 0.1,
    "draft_load_config": None,
    "dspark_draft_topk": None,
    "xpress_topc": None,
    "fly_window_size": None,
    "fly_entropy_threshold": 0.3,
    "fly_entropy_top_k": 3,
}

# Keys that change the cost of a step in a way that is not modelled: refused, but for the value here.
NOT_MODELLED: Mapping[str, tuple[object, str]] = {
    "parallel_drafting": (False, "Leave it out; a block drafter such as DFlash is method dflash."),
    "enable_adaptive_verification": (False, "Leave it out, or give a schedule of draft lengths."),
}

_SCHEDULE = (
    "Give num_speculative_tokens_per_batch_size: [[1, 32, 3], [33, 512, 0]] drafts nothing above 32 requests."
)
_REJECTION = (
    "0.33 has rejection_sample_method standard, block, fly or synthetic; "
    "what is accepted is speculation.acceptance."
)
_TYPICAL = (
    "0.33 has no typical acceptance: its lossy rejection_sample_method is fly; "
    "give the acceptance that you measured as speculation.acceptance."
)
_SPREAD = "0.33 has draft_tensor_parallel_size; drafters are spread over GPUs as their target is."
_NO_FLAG = "0.33 decides it by itself: leave it out."

# Options of earlier releases, as flags of `vllm serve` or keys of --speculative-config, and of other engines
# -> what stands in their place. disable_by_batch_size: vllm#35060; typical acceptance: vllm#5348 and the
# removal of the V0 engine.
DROPPED: Mapping[str, str] = {
    "speculative_disable_by_batch_size": _SCHEDULE,
    "disable_by_batch_size": _SCHEDULE,
    "speculative_disable_mqa_scorer": _NO_FLAG,
    "disable_mqa_scorer": _NO_FLAG,
    "spec_decoding_acceptance_method": _REJECTION,
    "acceptance_method": _REJECTION,
    "draft_token_acceptance_method": _REJECTION,
    "typical_acceptance_sampler_posterior_threshold": _TYPICAL,
    "typical_acceptance_sampler_posterior_alpha": _TYPICAL,
    "posterior_threshold": _TYPICAL,
    "posterior_alpha": _TYPICAL,
    "disable_logprobs_during_spec_decoding": _NO_FLAG,
    "disable_logprobs": _NO_FLAG,
    "speculative_model": "0.33 has method draft_model: speculation=draft_model speculation.model=NAME.",
    "speculative_model_quantization": "0.33 has quantization in --speculative-config, without effect here.",
    "speculative_max_model_len": "Set engine.max_model_len, which holds for both models.",
    "speculative_draft_tensor_parallel_size": _SPREAD,
    "spec_draft_tp": _SPREAD,
    "tensor_parallel_size": _SPREAD,
    "ngram_prompt_lookup_max": "0.33 has prompt_lookup_max inside --speculative-config, with method ngram.",
    "ngram_prompt_lookup_min": "0.33 has prompt_lookup_min inside --speculative-config, with method ngram.",
    "speculative_token_tree": "0.33 verifies chains: give num_speculative_tokens, the depth of the tree.",
    "speculative_token_schedule": "It is proposed (vllm#48944): give num_speculative_tokens_per_batch_size.",
    "draft_len_schedule": "That is TensorRT-LLM's: give speculation.draft_len_schedule beside the method.",
    "synthetic_acceptance_rate": "0.33 has synthetic_acceptance_rates and synthetic_acceptance_length.",
}

# Values of earlier releases -> 0.33's.
DROPPED_VALUES: Mapping[tuple[str, str], str] = {
    (
        "rejection_sample_method",
        "strict",
    ): "Write rejection_sample_method standard, draft_sample_method greedy.",
    ("rejection_sample_method", "probabilistic"): (
        "Write rejection_sample_method standard, draft_sample_method probabilistic."
    ),
    ("rejection_sample_method", "rejection_sampler"): "Write rejection_sample_method standard.",
    ("rejection_sample_method", "typical_acceptance_sampler"): _TYPICAL,
}
