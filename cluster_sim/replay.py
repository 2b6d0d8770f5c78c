"""`replay-vllm`: drive the engine with recorded scheduler runs of vLLM, and compare every call.

A recording (format: ../shared/vllm-traces/README.md) holds requests, acceptance draws, aborts, and what
vLLM's scheduler did at each call. The engine core acts in its own order; here it gets arrivals and aborts by
step number instead of by time, and what it did is read back from its tables after each action.
"""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_sim.engine import by_hand, engine_core, request_queue
from cluster_sim.engine.kinds import Action, Command, RequestStatus
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import Entry, World
from cluster_sim.errors import UserError
from cluster_sim.recording import read_rules
from cluster_sim.world import new_world

Json = dict[str, Any]
FINISH_REASONS = {RequestStatus.finished_stopped: "stop", RequestStatus.finished_length_capped: "length"}
LIVE = (RequestStatus.waiting, RequestStatus.running, RequestStatus.preempted)
REQUIRED = ("config", "requests", "aborts", "event_order", "steps")


@dataclass(frozen=True)
class Difference:
    """The first place where the engine and a recording part."""

    step: int
    field: str
    recorded: object
    simulated: object

    def __str__(self) -> str:
        return f"step {self.step}, {self.field}: recorded {self.recorded}, simulated {self.simulated}"


def recordings(paths: list[Path]) -> list[Path]:
    """The files that `paths` name: themselves, or every *.json of a directory, in order of name."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(path.glob("*.json"))
        elif path.is_file():
            files.append(path)
        else:
            raise UserError("a recording must exist", path, "replay-vllm PATH", "Give a file or a directory.")
    if not files:
        raise UserError(
            "at least one recording must be given",
            "none",
            "replay-vllm PATH",
            "Name a directory that holds *.json.",
        )
    return files


def first_difference(path: Path) -> Difference | None:
    """Replay one recording; where it first differs from the engine, or None."""
    recording = _read(path)
    try:
        rules = read_rules(recording)
        replay = Replay(recording, rules)
        simulated = replay.play()
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise _malformed(path, f"{type(error).__name__}: {error}") from error
    for recorded in recording["steps"]:
        step = simulated.get(recorded["step"])
        if step is None:
            return Difference(recorded["step"], "schedule call", "made", "not made")
        for field, there, here in _fields(recorded, step):
            if there != here:
                return Difference(recorded["step"], field, there, here)
    events = recording["event_order"]
    if isinstance(events, list) and events != replay.events:
        return Difference(len(recording["steps"]), "event_order", events, replay.events)
    return None


def _fields(recorded: Json, simulated: Json) -> Iterator[tuple[str, object, object]]:
    """What a recording holds of a step, as (field, recorded, simulated)."""
    for field, there in recorded.items():
        here = simulated[field]
        if field in ("after_schedule", "after_update"):
            for part, value in there.items():
                yield f"{field}.{part}", _unordered(part, value), _unordered(part, here[part])
        elif field == "scheduled":
            yield field, list(there.items()), list(here.items())
        else:
            yield field, there, here


def _unordered(part: str, value: Any) -> object:
    """The waiting queue as a set: a recorded heap's order has no meaning, a fcfs queue's shows later."""
    return sorted(value) if part == "waiting" else value


def _read(path: Path) -> Json:
    try:
        recording = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise _malformed(path, str(error)) from error
    missing = [key for key in REQUIRED if not isinstance(recording, dict) or key not in recording]
    if missing:
        raise _malformed(path, f"no {', '.join(missing)}")
    return dict(recording)


def _malformed(path: Path, found: str) -> UserError:
    return UserError(
        "a recording must be a JSON object of the vllm-traces format",
        found,
        str(path),
        "Record the run again.",
    )


class Replay:
    """One recording played on a fresh engine: one instance, one tick a step."""

    def __init__(self, recording: Json, rules: Rules) -> None:
        """Prepare the engine; arrivals and aborts are kept by step number."""
        self.recording, self.rules = recording, rules
        self.world: World = new_world(rules)
        submitted = sorted(recording["requests"], key=lambda request: request["arrival_time"])
        self.ids: list[str] = [request["id"] for request in submitted]
        self.arrivals = deque((request["arrival_step"], number) for number, request in enumerate(submitted))
        self.calls: dict[int, Json] = {}
        self.in_flight: deque[int] = deque()
        self.events: list[str] = []
        self.is_detailed = any("running" in step["after_schedule"] for step in recording["steps"][:1])

    def play(self) -> dict[int, Json]:
        """Run to the end of the recording; what happened, by step."""
        step = 0
        while len(self.calls) < len(self.recording["steps"]) or self.in_flight:
            if self.world.lanes[0].action == Action.update or (self.in_flight and not self._has_requests()):
                self._update()
                continue
            if not self._has_requests():
                if not self.arrivals:
                    break
                step = max(step, self.arrivals[0][0])
            while self.arrivals and self.arrivals[0][0] <= step:
                self._command(Command.accept, self.arrivals.popleft()[1])
            self._abort(step, "before_schedule")
            if self._has_requests():
                self._schedule(step)
                step += 1
        return self.calls

    def _command(self, what: Command, request: int = 0, now_s: float = 0.0) -> None:
        by_hand.command(self.world, self.rules, 0, int(what), request, now_s)

    def _has_requests(self) -> bool:
        return engine_core.has_requests(self.world, 0)

    def _is_live(self, request: int) -> bool:
        return self.world.progress[request].status in LIVE

    def _abort(self, step: int, when: str) -> None:
        for abort in self.recording["aborts"]:
            request = self.ids.index(abort["id"])
            if abort["step"] == step and abort["when"] == when and self._is_live(request):
                self._command(Command.abort, request)

    def _schedule(self, step: int) -> None:
        lane = self.world.lanes[0]
        slot = (lane.oldest_slot + lane.in_flight) % self.rules.batching[0].queue_depth
        self._command(Command.schedule, now_s=float(step))
        row = self.world.steps[0, slot]
        victims = [int(victim) for victim in self.world.preempted[0, slot, : row.num_preempted]]
        batch = self._batch(slot)
        admitted = batch[row.num_running :]
        self.in_flight.append(step)
        self.events.append(f"S{step}")
        self.calls[step] = {
            "step": step,
            "scheduled": {name: int(entry.tokens) for name, entry in batch},
            "spec": {name: int(entry.drafts) for name, entry in batch if entry.drafts},
            "num_spec_tokens_to_schedule": int(row.draft_length),
            "new_reqs": [name for name, entry in admitted if not self._was_preempted(entry)],
            "resumed": [name for name, entry in admitted if self._was_preempted(entry)],
            "preempted": [self.ids[victim] for victim in victims],
            "cached_tokens_at_admission": {
                name: int(self.world.progress[entry.request].hit_tokens) for name, entry in admitted
            },
            "padded_spec": [name for name, entry in batch if entry.is_padding],
            "skip_drafts": bool(row.skips_drafts),
            "after_schedule": self._snapshot(),
        }

    def _update(self) -> None:
        step = self.in_flight.popleft()
        self._abort(step, "during_step")
        self.events.append(f"U{step}")
        batch = self._batch(self.world.lanes[0].oldest_slot)
        alive = {name for name, entry in batch if self._is_live(entry.request)}
        self._command(Command.update, now_s=float(step + 1))
        self.calls[step] |= {
            "accepted": {name: int(entry.accepted) for name, entry in batch if entry.drafts},
            "emitted": {name: int(entry.delivered) for name, entry in batch if entry.delivered},
            "finished": {
                name: FINISH_REASONS[RequestStatus(self.world.progress[entry.request].status)]
                for name, entry in batch
                if name in alive and not self._is_live(entry.request)
            },
            "discarded_outputs": [name for name, _ in batch if name not in alive],
            "after_update": self._snapshot(),
        }

    def _batch(self, slot: int) -> list[tuple[str, Entry]]:
        entries = self.world.entries[0, slot]
        batch = [entries[number] for number in range(self.world.steps[0, slot].num_entries)]
        return [(self.ids[entry.request], entry) for entry in batch]

    def _was_preempted(self, entry: Entry) -> bool:
        return self.world.log[entry.request].preemptions > 0

    def _snapshot(self) -> Json:
        counts = {
            "free_blocks": int(self.world.kv.pools[0].num_free),
            "num_running": int(self.world.lanes[0].num_running),
            "num_waiting": int(self.world.queues[0].length),
        }
        if not self.is_detailed:
            return counts
        running = [int(request) for request in self.world.running[0, : counts["num_running"]]]
        waiting = list(self._waiting())
        live = {self.ids[request]: self.world.progress[request] for request in running + waiting}
        return counts | {
            "running": [self.ids[request] for request in running],
            "waiting": [self.ids[request] for request in waiting],
            "num_computed_tokens": {name: int(row.computed_tokens) for name, row in live.items()},
            "num_tokens": {name: int(row.known_tokens) for name, row in live.items()},
            "blocks": {name: int(row.blocks) for name, row in live.items()},
            "num_output_placeholders": {name: int(row.placeholder_tokens) for name, row in live.items()},
        }

    def _waiting(self) -> Iterator[int]:
        request = int(self.world.queues[0].head)
        while request >= 0:
            yield request
            request = int(request_queue.following(self.world.links, request))
