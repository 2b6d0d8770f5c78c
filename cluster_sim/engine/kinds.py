"""The engine's words: every choice that a rule branches on, as one list per choice.

A member's name is the YAML word, the stored value and the branch. Members are cast to int in build.py: an
enum member as an argument would be another compiled signature.
"""

from enum import IntEnum


class Status(IntEnum):
    """What a kernel reports to run.py; everything but `done` names a request or an instance there."""

    done = 0
    stuck = 1  # a request at the head of the queue can never be admitted


class RequestStatus(IntEnum):
    """vLLM's RequestStatus; `unseen` until the engine picks the request up."""

    unseen = 0
    waiting = 1
    running = 2
    preempted = 3
    finished_stopped = 4  # stop token
    finished_length_capped = 5  # max_tokens or max_model_len
    finished_aborted = 6
    finished_error = 7  # its instance stopped, or none was up
    held = 8  # at the router: no instance that may serve it takes requests


class Outcome(IntEnum):
    """How a request ended for its client."""

    pending = 0
    completed = 1
    rejected = 2  # refused before the scheduler: it could never fit
    cancelled = 3
    timed_out = 4
    failed = 5  # its instance stopped, and it was not sent again; or no instance was there


class SchedulingPolicy(IntEnum):
    """vLLM's --scheduling-policy."""

    fcfs = 0
    priority = 1


class RouterPolicy(IntEnum):
    """How the router picks an instance."""

    round_robin = 0
    least_requests = 1
    random = 2
    weighted = 3
    vllm_dp = 4
    power_of_two = 5
    least_kv = 6
    session_hash = 7
    prefix_aware = 8
    class_aware = 9


class Part(IntEnum):
    """Which part of the cluster a world simulates."""

    whole = 0
    router = 1  # its instances are in other worlds
    instances = 2  # some of them; its router is in another world


class Action(IntEnum):
    """What the engine core of an instance does next."""

    schedule = 0
    update = 1


class LuckKind(IntEnum):
    """Where acceptance comes from: a profile and the request's own stream, or what was recorded."""

    profile = 0
    recorded = 1  # one number for each verification: a replay
    walked = 2  # one number for each output token: a trace of accepted lengths


class Purpose(IntEnum):
    """What a random number is for; streams of different purposes are independent."""

    acceptance = 1
    arrivals = 2
    prompt_tokens = 3
    output_tokens = 4
    ease = 5
    router = 6
    bursts = 20
    workload_class = 21
    length_row = 22
    prefix_group = 23
    turns = 24
    turn_gap = 25
    think_time = 26


class Command(IntEnum):
    """What by_hand.py can be told to do."""

    accept = 0
    abort = 1
    schedule = 2
    update = 3
