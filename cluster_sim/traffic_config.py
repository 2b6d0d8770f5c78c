"""The part of workload's keys that say how requests are drawn and which of a trace's are taken.

`None` always has a meaning of its own, given in the comment. Bounds: check_traffic.py and bounds.py.
"""

from dataclasses import dataclass, field
from typing import Any

from cluster_sim.choices import Arrivals


@dataclass
class LimitsConfig:
    """What a request of one class must meet, instead of the limits of all."""

    ttft_s: float | None = None  # None: not part of the SLO
    tpot_s: float | None = None
    e2el_s: float | None = None


@dataclass
class ClassConfig:
    """One kind of requests; of a trace's class only the SLO can be said."""

    share: float | None = None  # of the requests; None only with a trace
    prompt_tokens: Any = None  # None: workload.prompt_tokens
    output_tokens: Any = None  # None: workload.output_tokens
    priority: int = 0  # lower first
    slo: LimitsConfig | None = None  # None: the limits of all


@dataclass
class SharedPrefixConfig:
    """System prompts: tokens before the drawn prompt that many requests have in common."""

    tokens: int | None = None  # of each system prompt; None: there are none
    groups: int = 1  # different system prompts, all as likely
    share: float = 1.0  # of the requests that have one


@dataclass
class TurnsConfig:
    """Conversations: a turn's prompt holds all turns before it, and their answers."""

    mean: float | None = None  # turns of a conversation, geometric; None: requests stand alone
    gap_s: float | None = None  # mean time from one turn's arrival to the next one's, exponential
    after_answer: bool = False  # gap_s counts from the end of a turn's answer; without it no turn follows


@dataclass
class TrafficConfig:
    """Keys of config.WorkloadConfig; each process of arrivals has its own."""

    trace_start_s: float | None = None  # of the file's time, from its first request; None: from there on
    trace_end_s: float | None = None  # None: to its last request
    arrivals: Arrivals = Arrivals.poisson
    burstiness: float | None = None  # gamma: vLLM's shape of the gaps; 1: as poisson, below: burstier
    ends_on_time: bool = False  # gamma: vLLM's rescaling, the last arrival exactly at requests / request_rate
    start_rate: float | None = None  # ramp: requests/s at the start
    end_rate: float | None = None  # ramp: at the end, duration_s or the time in which `requests` are expected
    amplitude: float | None = None  # diurnal: of the swing, as a share of request_rate
    period_s: float | None = None  # diurnal: from one high to the next
    calm_rate: float | None = None  # bursts: requests/s outside bursts
    burst_rate: float | None = None  # bursts: requests/s in one
    calm_s: float | None = None  # bursts: mean time between two
    burst_s: float | None = None  # bursts: mean length of one
    max_concurrency: int | None = None  # most requests under way, others wait at the client; None: no limit
    think_time_s: float | None = None  # closed_loop: mean time from an end to the next request, exponential
    classes: dict[str, ClassConfig] | None = None  # None: all requests are alike, or as the trace says
    shared_prefix: SharedPrefixConfig = field(default_factory=SharedPrefixConfig)
    turns: TurnsConfig = field(default_factory=TurnsConfig)
    timeout_s: float | None = None  # a client without its whole answer then gives up; None: it waits
