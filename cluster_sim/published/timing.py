"""Step times of a configuration, and of the same with a drafter that the engine captured whole.

A drafter's pass takes pass_launch_s at least and prepare_s before it, which are CPU times of vLLM's V1 model
runner: it launches the drafter layer by layer. The V2 model runner (vLLM 0.33.0, SpeculatorCudaGraphManager
in v1/worker/gpu/spec_decode/target_dependent_ar/cudagraph_utils.py) and SGLang's draft graphs replay the
first pass and all further ones, and prepare their inputs on the GPU: what is left is kernels.
"""

from dataclasses import replace

from cluster_sim.build import find_bundle, parallel_of, step_time_of
from cluster_sim.config import Config, Method
from cluster_sim.cudagraphs import capture_sizes
from cluster_sim.decode_time import Timing
from cluster_sim.draft_cost import draft_arrays
from cluster_sim.drafting import Setting, as_vllm_runs_it, draft_length, drafter_tables
from cluster_sim.engine.rules import StepTime

BY_THE_CPU = ("pass_launch_s", "prepare_s")


def timing_of(config: Config, *, in_graph: bool = False) -> Timing:
    """Step times of one instance; `in_graph`: nothing of the drafter waits for the CPU.

    Raises:
        UserError: the configuration or its bundle is wrong, or does not fit.
    """
    setting = as_vllm_runs_it(config)
    times, has_drafter = step_time_of(setting), setting.config.speculation.method is not Method.none
    if in_graph and has_drafter:
        times = _in_graph(setting, times)
    return Timing(
        times,
        has_drafter,
        setting.engine.async_scheduling,
        config.cluster.data_parallel_size if config.model.num_experts else 1,
        int(setting.engine.max_num_scheduled_tokens or 0),
    )


def _in_graph(setting: Setting, times: StepTime) -> StepTime:
    """`times` with the drafter's columns made again from its kernels alone."""
    config, engine = setting.config, setting.engine
    bundle, drafts = find_bundle(config), draft_length(config)
    tables = drafter_tables(setting, bundle, parallel_of(config))
    if tables is None:
        return times
    seats, budget = int(engine.max_num_seqs or 0), int(engine.max_num_batched_tokens or 0)
    largest = int(bundle.parameters["max_cudagraph_capture_tokens"].value)
    alone = replace(tables, parameters={**tables.parameters, **dict.fromkeys(BY_THE_CPU, 0.0)})
    counts = (times.draft_first_s.shape[1] - 1, times.draft_more_s.shape[2] - 1, drafts)
    arrays = draft_arrays(alone, config.speculation, counts, capture_sizes(seats, drafts, budget, largest))
    return times._replace(
        draft_first_s=arrays.first_s[None], draft_more_s=arrays.more_s[None], draft_kv_s=arrays.kv_s[None]
    )
