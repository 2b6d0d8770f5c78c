"""The choices of the configuration: one enum for each key that takes one of several words.

A member's name is the word in YAML and on the command line.
"""

from enum import Enum


class SchedulingPolicy(Enum):
    """vLLM's --scheduling-policy."""

    fcfs = "fcfs"
    priority = "priority"


class CudagraphMode(Enum):
    """vLLM's words; NONE is --enforce-eager."""

    FULL_AND_PIECEWISE = "FULL_AND_PIECEWISE"
    PIECEWISE = "PIECEWISE"
    NONE = "NONE"


class RouterPolicy(Enum):
    """How the router picks an instance."""

    round_robin = "round_robin"
    random = "random"
    weighted = "weighted"
    least_requests = "least_requests"
    vllm_dp = "vllm_dp"
    power_of_two = "power_of_two"
    least_kv = "least_kv"
    session_hash = "session_hash"
    prefix_aware = "prefix_aware"
    class_aware = "class_aware"


class FaultKind(Enum):
    """What happens to instances for a while."""

    stop = "stop"  # their requests fail, their caches are gone
    slow = "slow"  # their steps take longer
    drain = "drain"  # no new requests


class FailedRequests(Enum):
    """What the router does with the requests of an instance that stops."""

    retry = "retry"
    lose = "lose"


class Method(Enum):
    """Proposers of draft tokens."""

    none = "none"
    ngram = "ngram"
    suffix = "suffix"
    draft_model = "draft_model"
    eagle = "eagle"
    eagle3 = "eagle3"
    mtp = "mtp"
    medusa = "medusa"
    parallel = "parallel"


class AcceptancePolicy(Enum):
    """How many drafts of a verify step are accepted."""

    fixed = "fixed"
    decay = "decay"
    per_position = "per_position"
    per_length = "per_length"
    geometric = "geometric"
    binomial = "binomial"
    trace = "trace"
    custom = "custom"


class RatesAre(Enum):
    """What rates by position are: P(the first i all accepted), or P(the i-th accepted | those before it)."""

    marginal = "marginal"
    conditional = "conditional"


class DraftCost(Enum):
    """Where the drafter's time comes from; `zero` labels the result an upper bound."""

    bundle = "bundle"  # and where the bundle has none, a roofline of the drafter's architecture
    given = "given"  # draft_pass_s
    zero = "zero"


class Arrivals(Enum):
    """How the times of drawn requests come about."""

    poisson = "poisson"
    gamma = "gamma"  # vLLM's --burstiness
    constant = "constant"
    ramp = "ramp"  # a rate that changes steadily
    diurnal = "diurnal"  # a rate that swings
    bursts = "bursts"  # a rate that jumps between two values
    closed_loop = "closed_loop"  # max_concurrency clients that wait for their answers


class Quantization(Enum):
    """vLLM's --quantization, as far as it has costs: the bytes of a weight."""

    none = "none"  # dtype
    fp8 = "fp8"  # all matrices of the layers; activations too
    mxfp4 = "mxfp4"  # the experts' matrices; 32 weights of 4 bits share a scale of 8


class Objective(Enum):
    """What a study looks for; summary.json's values, each a mean over the seeds of one load."""

    slo_goodput = "slo_goodput"  # slo_goodput_rps: more is better
    token_goodput = "token_goodput"  # token_goodput_tok_s: more is better
    tpot = "tpot"  # mean of tpot_s: less is better
    capacity = "capacity"  # request rate up to which study.attainment is met: more is better
    gpus = "gpus"  # GPUs of the cluster: fewer are better


class OverLoads(Enum):
    """How a study's objective sums up several loads."""

    mean = "mean"  # in the objective's own unit: each load lasts equally long
    worst = "worst"  # goodputs as shares of what came, so that a small load counts as much as a large one


class ExecutorKind(Enum):
    """Where simulations run: in this process, or on Ray."""

    auto = "auto"
    serial = "serial"
    ray = "ray"
