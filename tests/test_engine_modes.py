"""One meaning in three modes (compiled, with bounds checked, as plain Python), and one compiled signature."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest
from engine_worlds import Asked, Scenario, Server, columns_of, play
from faulty_worlds import drain, play_through, slow, stop
from waiting_worlds import Waiting

from cluster_sim.build import build
from cluster_sim.compose import compose
from cluster_sim.engine import by_hand, loop
from cluster_sim.engine.kinds import LuckKind, RouterPolicy
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World
from cluster_sim.recording import read_rules
from cluster_sim.replay import first_difference, recordings
from cluster_sim.world import new_world

TESTS = Path(__file__).parent
CROWD = tuple(
    Asked(
        arrival_s=number // 3 * 0.25,
        prompt_tokens=5 + 7 * number % 20,
        max_tokens=6 + 5 * number % 11,
        stop_at=9 if number % 5 == 0 else 0,
        priority=number % 3,
        abort_s=2.5 if number % 7 == 3 else 1e9,
        content=(0, 0, number % 2, number % 3) if number % 4 else (),
        proposals=(2, 0, 3) if number % 6 == 1 else (),
        is_rejected=number == 8,
    )
    for number in range(14)
)
TIGHT = Server(
    max_num_seqs=6,
    max_num_batched_tokens=24,
    max_model_len=34,
    block_size=4,
    num_gpu_blocks=13,
    lookahead_tokens=3,
    hash_lookahead_tokens=1,
    enable_prefix_caching=True,
    num_speculative_tokens=3,
    may_skip=True,
    host_s=0.125,
    draft_s=0.0625,
)
WORLDS = {
    "speculation and caching in little memory": Scenario(CROWD, (TIGHT,), (0.8, 0.5, 0.9)),
    "asynchronous, by priority, two instances": Scenario(
        CROWD,
        (replace(TIGHT, is_async=True, is_priority=True), replace(TIGHT, is_async=True, watermark_blocks=1)),
        (0.8, 0.5, 0.9),
        RouterPolicy.least_requests,
        0.5,
    ),
    "a schedule, a threshold and a cadence": Scenario(
        CROWD,
        (
            replace(
                TIGHT,
                schedule=(3, 3, 2, 1, 0, 0),
                long_prefill_token_threshold=6,
                prefill_schedule_interval=3,
                hash_lookahead_tokens=0,
                drops_last_hit_block=True,
                slots_per_request=1,
            ),
        ),
        (1.0, 0.5, 0.5),
    ),
    "two ranks in lockstep": Scenario(
        CROWD,
        (replace(TIGHT, is_async=True),) * 2,
        (0.8, 0.5, 0.9),
        signal_interval_s=0.5,
        ranks=2,
        in_lockstep=True,
    ),
    "no caching, no chunks, no speculation": Scenario(
        CROWD, (Server(max_num_seqs=3, max_num_batched_tokens=40, enable_chunked_prefill=False),)
    ),
    **{
        f"router {policy.name}": Scenario(CROWD, (TIGHT, TIGHT, TIGHT), (0.8, 0.5, 0.9), policy, 0.5)
        for policy in RouterPolicy
    },
}
WATCHED = WORLDS["asynchronous, by priority, two instances"]
THINK_S = (0.0, 0.25, 1.0, 0.0, 0.5, 0.0, 0.125) * 2
WAITING = {
    "a closed loop": Waiting(WATCHED, 3, THINK_S, (1,) * 14, 4.0),
    "turns after the answer": Waiting(WATCHED, 0, THINK_S, (2, 3, 1, 4, 4), 4.0, 20.0),
}


def all_rules() -> dict[str, Rules]:
    """The worlds, and two whose drafts are accepted by other rules: by ease, and along a trace of lengths."""
    found = {name: scenario.rules() for name, scenario in (WORLDS | WAITING).items()}
    plain = next(iter(found.values()))
    levels = np.repeat(plain.luck.conditional, 4, axis=1) * np.array([0.4, 0.8, 1.0, 1.1])[:, None, None]
    eased = plain.luck._replace(
        request_levels=2, run_levels=2, run_tokens=3, conditional=np.minimum(levels, 1.0)
    )
    fates = plain.luck.fates.copy()  # type: ignore[attr-defined]
    fates["num_draws"] = 4
    walked = plain.luck._replace(
        kind=int(LuckKind.walked), fates=fates, draws=np.array([0, 3, 1, 2], np.int32)
    )
    return found | {"easy and hard": plain._replace(luck=eased), "walked": plain._replace(luck=walked)}


def digests() -> dict[str, str]:
    """A digest of each world at its end, through faults as well; and what vLLM's recordings say."""
    found = {name: digest_of(play(rules)) for name, rules in all_rules().items()}
    faults = (stop([0], 0.75, 1.5), drain([1], 1.75, 2.5), slow([2], 2.0, 0.5))
    for policy in (RouterPolicy.least_requests, RouterPolicy.weighted):
        for loses in (False, True):
            world, _ = play_through(WORLDS[f"router {policy.name}"], *faults, loses=loses)
            found[f"faults, {policy.name}, {'lose' if loses else 'retry'}"] = digest_of(world)
    for path in recordings([TESTS / "vllm_traces"])[:12]:
        found[path.stem] = str(first_difference(path))
    return found


def digest_of(world: World) -> str:
    """Of every column."""
    parts = (column.encode() + values for column, values in columns_of(world))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def in_another_process(cache: Path, **switches: str) -> dict[str, str]:
    """The same digests, computed with numba's switches set and nothing compiled before."""
    code = "import json, test_engine_modes as modes; print(json.dumps(modes.digests()))"
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    environment = os.environ | switches | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": path}
    command = [sys.executable, "-W", "ignore:overflow encountered:RuntimeWarning", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("switch", ["NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"])
def test_every_mode_gives_the_same_bytes(switch: str, tmp_path: Path) -> None:
    assert in_another_process(tmp_path, **{switch: "1"}) == digests()


def test_the_worlds_compared_are_not_trivial() -> None:
    """They preempt, hit, speculate, give up, stop and reject, and have turns that are never sent (0)."""
    logs = [play(rules).log for rules in all_rules().values()]
    for column in ("preemptions", "cached_tokens", "accepted_tokens"):
        assert sum(log[column].sum() for log in logs) >= 5
    assert {int(outcome) for log in logs for outcome in log["outcome"]} == {0, 1, 2, 4}


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled with NUMBA_DISABLE_JIT")
def test_all_rules_run_in_one_compiled_signature() -> None:
    """A second one, for an int where a float belongs, would be another compilation for every user."""
    for rules in all_rules().values():
        play(rules)
        play(rules, [1.0, 2.0])
    for path in recordings([TESTS / "vllm_traces"])[:3]:
        rules = read_rules(json.loads(path.read_text(encoding="utf-8")))
        loop.run_until(new_world(rules), rules, 0, 1.0)
        first_difference(path)
    for method in ("none", "eagle3"):
        rules = build(compose(["workload.requests=5", f"speculation={method}"])).rules
        loop.run_until(new_world(rules), rules, 0, 1.0)
    for entry in (loop.run_until, by_hand.command):
        assert len(entry.signatures) == 1


@pytest.mark.slow
def test_the_worlds_compared_reach_nine_tenths_of_the_engine(tmp_path: Path) -> None:
    """As plain Python, where coverage can see it; invariants.py is for tests and not counted."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    switches = {"NUMBA_DISABLE_JIT": "1", "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": path}
    script = tmp_path / "script.py"
    script.write_text("import test_engine_modes\ntest_engine_modes.digests()\n")
    measure = ["run", "--data-file", str(tmp_path / "data"), "--rcfile=", "--branch"]
    for arguments in (
        [*measure, "--source=cluster_sim.engine", "--omit=*/invariants.py", str(script)],
        ["json", "--data-file", str(tmp_path / "data"), "--rcfile=", "-o", str(tmp_path / "report.json")],
    ):
        command = [sys.executable, "-W", "ignore", "-m", "coverage", *arguments]
        done = subprocess.run(
            command, env=os.environ | switches, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["totals"]["percent_covered"] >= 90
