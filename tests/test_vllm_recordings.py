"""Recorded runs of vLLM's own scheduler replay call by call, and a recording that is wrong is found out.

tests/vllm_traces holds some of ../shared/vllm-traces (recorded with vLLM 0.33.0, Apache-2.0; its README.md
gives the format); of the largest, some columns of counters per request were left out.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster_sim.errors import UserError
from cluster_sim.replay import Difference, first_difference, recordings

OWN = Path(__file__).parent / "vllm_traces"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "vllm-traces"
Json = dict[str, Any]


@pytest.mark.parametrize("path", recordings([OWN]), ids=lambda path: path.stem)
def test_the_engine_does_what_vllm_did(path: Path) -> None:
    assert first_difference(path) is None


@pytest.mark.shared
@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("path", sorted(SHARED.glob("*.json")), ids=lambda path: path.stem)
def test_the_engine_does_what_vllm_did_in_every_recording(path: Path) -> None:
    assert first_difference(path) is None


@pytest.mark.shared
def test_all_recordings_are_here(shared: Path) -> None:
    listed = (shared / "vllm-traces" / "INDEX.tsv").read_text(encoding="utf-8").splitlines()[1:]
    names = {line.split("\t")[0] for line in listed}
    assert {path.stem for path in recordings([shared / "vllm-traces"])} == names
    assert {path.stem for path in recordings([OWN])} < names


# ---- the check can fail ----


def _one_more(counts: Json) -> None:
    name = next(iter(counts))
    counts[name] += 1


def _reverse(step: Json, field: str) -> None:
    step[field] = dict(reversed(step[field].items()))


MUTATIONS: dict[str, tuple[str, int, str, Callable[[Json], None]]] = {
    # what is altered: (recording, step, field reported, alteration of the step)
    "tokens": ("async_spec", 2, "scheduled", lambda step: _one_more(step["scheduled"])),
    "order": ("async_spec", 3, "scheduled", lambda step: _reverse(step, "scheduled")),
    "drafts": ("async_spec", 2, "spec", lambda step: _one_more(step["spec"])),
    "a request left out": ("chunked_mix", 1, "scheduled", lambda step: step["scheduled"].popitem()),
    "draft length": (
        "dsd_thresholds",
        4,
        "num_spec_tokens_to_schedule",
        lambda step: step.update(num_spec_tokens_to_schedule=9),
    ),
    "admitted": ("async_spec", 1, "new_reqs", lambda step: step["new_reqs"].clear()),
    "resumed": ("chunked_mix", 1, "resumed", lambda step: step["resumed"].append("r0")),
    "victims": ("chunked_mix", 0, "preempted", lambda step: step["preempted"].append("r0")),
    "hit": (
        "prefix_eviction_partial",
        0,
        "cached_tokens_at_admission",
        lambda step: _one_more(step["cached_tokens_at_admission"]),
    ),
    "skipped drafts": ("async_spec", 0, "skip_drafts", lambda step: step.update(skip_drafts=True)),
    "accepted": ("async_spec", 1, "accepted", lambda step: _one_more(step["accepted"])),
    "emitted": ("async_spec", 0, "emitted", lambda step: _one_more(step["emitted"])),
    "finished": ("async_spec", 3, "finished", lambda step: step["finished"].clear()),
    "discarded": ("async_spec", 4, "discarded_outputs", lambda step: step["discarded_outputs"].clear()),
    "free blocks": (
        "async_spec",
        2,
        "after_schedule.free_blocks",
        lambda step: step["after_schedule"].update(free_blocks=0),
    ),
    "running order": (
        "async_spec",
        2,
        "after_update.running",
        lambda step: step["after_update"]["running"].reverse(),
    ),
    "waiting": (
        "chunked_mix",
        0,
        "after_schedule.waiting",
        lambda step: step["after_schedule"]["waiting"].append("ghost"),
    ),
    "computed tokens": (
        "async_spec",
        2,
        "after_update.num_computed_tokens",
        lambda step: _one_more(step["after_update"]["num_computed_tokens"]),
    ),
    "known tokens": (
        "async_spec",
        2,
        "after_update.num_tokens",
        lambda step: _one_more(step["after_update"]["num_tokens"]),
    ),
    "blocks held": (
        "preempt_fcfs",
        3,
        "after_schedule.blocks",
        lambda step: _one_more(step["after_schedule"]["blocks"]),
    ),
    "placeholders": (
        "async_spec",
        1,
        "after_schedule.num_output_placeholders",
        lambda step: _one_more(step["after_schedule"]["num_output_placeholders"]),
    ),
}


@pytest.mark.parametrize("altered", MUTATIONS)
def test_an_altered_recording_is_found_out_at_its_step_and_field(altered: str, tmp_path: Path) -> None:
    name, number, field, alter = MUTATIONS[altered]
    recording = read(name)
    alter(recording["steps"][number])
    difference = first_difference(written(tmp_path, recording))
    assert difference is not None
    assert (difference.step, difference.field) == (recording["steps"][number]["step"], field)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_num_batched_tokens", 20),
        ("max_num_seqs", 1),
        ("num_gpu_blocks", 5),
        ("block_size", 8),
        ("num_speculative_tokens", 2),
        ("num_lookahead_tokens", 0),
        ("async_scheduling", False),
    ],
)
def test_another_configuration_does_something_else(key: str, value: object, tmp_path: Path) -> None:
    recording = read("async_spec")
    recording["config"][key] = value
    assert first_difference(written(tmp_path, recording)) is not None


def test_other_acceptance_does_something_else(tmp_path: Path) -> None:
    recording = read("async_spec")
    recording["requests"][0]["accept_draws"][0] -= 1
    difference = first_difference(written(tmp_path, recording))
    assert difference is not None
    assert (difference.step, difference.field) == (1, "accepted")


def test_a_call_that_vllm_made_and_the_engine_did_not_is_named(tmp_path: Path) -> None:
    recording = read("chunked_mix")
    last = recording["steps"][-1]
    recording["steps"].append(last | {"step": last["step"] + 1})
    assert first_difference(written(tmp_path, recording)) == Difference(
        last["step"] + 1, "schedule call", "made", "not made"
    )


def test_another_order_of_events_is_found_out(tmp_path: Path) -> None:
    recording = read("async_spec")
    events = recording["event_order"]
    events[1], events[2] = events[2], events[1]
    difference = first_difference(written(tmp_path, recording))
    assert difference is not None
    assert difference.field == "event_order"


def test_a_difference_reads_as_one_line() -> None:
    assert str(Difference(3, "spec", {"a": 2}, {})) == "step 3, spec: recorded {'a': 2}, simulated {}"


# ---- bad input ----


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("[]", "no config, requests, aborts, event_order, steps"),
        ('{"config": {}, "requests": [], "steps": []}', "no aborts, event_order"),
    ],
)
def test_a_file_that_is_no_recording_gets_one_line(text: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "recording.json"
    path.write_text(text, encoding="utf-8")
    assert_one_line(path, found)


def test_bytes_that_are_no_text_get_one_line(tmp_path: Path) -> None:
    path = tmp_path / "recording.json"
    path.write_bytes(b"\xff\xfe\x00")
    assert_one_line(path, "can't decode")


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda recording: recording["config"].pop("block_size"), "KeyError: 'block_size'"),
        (lambda recording: recording["config"].update(policy="lifo"), "KeyError: 'lifo'"),
        (lambda recording: recording["config"].update(watermark=None), "TypeError"),
        (lambda recording: recording.update(config=[]), "TypeError"),
        (lambda recording: recording.update(requests=[{}]), "KeyError: 'arrival_time'"),
        (lambda recording: recording["requests"][0].pop("prompt_len"), "KeyError: 'prompt_len'"),
        (lambda recording: recording["requests"][0].update(prompt_len="long"), "ValueError"),
        (lambda recording: recording.update(steps=[{}]), "KeyError: 'after_schedule'"),
        (lambda recording: recording.update(aborts=[{"step": 0, "id": "ghost"}]), "ValueError: 'ghost'"),
    ],
)
def test_a_recording_with_a_broken_part_gets_one_line(
    spoil: Callable[[Json], Any], found: str, tmp_path: Path
) -> None:
    recording = read("async_spec")
    spoil(recording)
    assert_one_line(written(tmp_path, recording), found)


def test_no_file_and_no_recordings_get_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a recording must exist"):
        recordings([tmp_path / "missing.json"])
    with pytest.raises(UserError, match="at least one recording must be given"):
        recordings([tmp_path])


def assert_one_line(path: Path, found: str) -> None:
    """The error names the rule, what was found, the file and the remedy."""
    with pytest.raises(UserError) as caught:
        first_difference(path)
    text = str(caught.value)
    assert text.startswith("a recording must be a JSON object of the vllm-traces format, but got ")
    assert found in text
    assert str(path) in text
    assert "\n" not in text


def read(name: str) -> Json:
    recording: Json = json.loads((OWN / f"{name}.json").read_text(encoding="utf-8"))
    return recording


def written(directory: Path, recording: Json) -> Path:
    path = directory / "recording.json"
    path.write_text(json.dumps(recording), encoding="utf-8")
    return path
