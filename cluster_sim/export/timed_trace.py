"""The traffic of a simulation as vLLM's timed_trace, so that a real server can be sent the same.

A line per request: timestamp (s from the start of the run), input_length, output_length and hash_ids, one for
each 16 tokens of the prompt (vLLM's --timed-trace-chunk-hash-size). vLLM makes a prompt of its ids alone, the
same tokens from the same id, so every chunk has one: ids are shared exactly where prompts are known to be the
same from their start, else they are unique.

The manifest holds the settings and the seed, of which traffic is a function; it is made again from them, and
must be that of the stored requests. What timed_trace cannot say is left out: classes, priorities, sessions,
timeouts, and answers, so that a turn of a conversation finds the prompts before it in a cache, but not the
answers. A drawn system prompt that ends inside a chunk is shared up to the chunk's start.
"""

import json
from collections.abc import Iterator

import numpy as np

from cluster_sim.engine.tables import Longs
from cluster_sim.errors import UserError
from cluster_sim.export.source import requests_of, setting_of
from cluster_sim.report.stored import Stored
from cluster_sim.stored_workload import stored_workload
from cluster_sim.workload import Workload, build_workload

CHUNK_TOKENS = 16
WHOLE_CHUNK, ITS_FIRST_TOKEN = 0, 1 - CHUNK_TOKENS  # what of a chunk must be known, as a key's lookahead


def timed_trace(stored: Stored) -> str:
    """A JSON object per line, in order of arrival.

    Raises:
        UserError: the requests are not there, or their traffic cannot be made again.
    """
    row = stored.rows[0]
    tree, seed = stored.config.get("workload"), setting_of(stored, row, "seed")
    config = stored_workload(tree or {})
    # a block of a trace is known by one id to its end, so that the cut chunk at a prompt's end is known too
    known_by = WHOLE_CHUNK if config.trace is None else ITS_FIRST_TOKEN
    workload = build_workload(config, int(seed), CHUNK_TOKENS, known_by)
    _check(stored, workload, config.ignore_eos)
    return "".join(line + "\n" for line in _lines(workload))


def hash_ids(workload: Workload) -> tuple[Longs, Longs]:
    """Where each request's ids start, shape [request + 1], and the ids.

    `workload` has keys of blocks of CHUNK_TOKENS.
    """
    chunks = -(-workload.prompt_tokens // CHUNK_TOKENS)
    start = np.concatenate(([0], np.cumsum(chunks)))
    owner = np.repeat(np.arange(len(chunks)), chunks)
    chunk = np.arange(start[-1]) - start[owner]
    known = chunk < np.diff(workload.content_start)[owner]
    distinct, number = np.unique(
        workload.content_ids[workload.content_start[owner[known]] + chunk[known]], return_inverse=True
    )
    ids = np.empty(len(owner), np.int64)
    ids[known] = number
    ids[~known] = len(distinct) + np.arange(len(owner) - len(number))
    return start, ids


def _lines(workload: Workload) -> Iterator[str]:
    start, ids = hash_ids(workload)
    columns = (workload.arrival_s, workload.prompt_tokens, workload.output_tokens, start[:-1], start[1:])
    for arrival_s, prompt, output, first, end in zip(*(each.tolist() for each in columns), strict=True):
        request = {"timestamp": arrival_s, "input_length": prompt, "output_length": output}
        yield json.dumps({**request, "hash_ids": ids[first:end].tolist()})


def _check(stored: Stored, workload: Workload, ignore_eos: bool) -> None:
    """See that the run had these requests; only with `ignore_eos` are outputs known from max_tokens."""
    made = {"arrival_s": workload.arrival_s, "prompt_tokens": workload.prompt_tokens}
    if ignore_eos:
        made["max_tokens"] = workload.output_tokens
    table = requests_of(stored, list(made))
    if not all(np.array_equal(table[name].to_numpy(), values) for name, values in made.items()):
        rule = "the traffic of a run must be the same when it is made again"
        remedy = "Its trace has changed, or another version drew it: run it again."
        raise UserError(rule, "other requests", str(stored.directory), remedy)
