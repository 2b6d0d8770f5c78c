"""A study on Ray that is killed twice ends as if nothing had happened: no trial is lost, and none doubled."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from studying import SMALL, studied, summary_of, told_of
from sweeping import Driver

from cluster_sim.trials import JOURNAL, read_kept


@pytest.mark.ray
@pytest.mark.slow
def test_killed_twice_a_study_on_ray_leaves_what_an_undisturbed_one_does(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert studied(whole) == 0
    given = (*SMALL, "executor=ray", "executor.workers=2", f"output.dir={killed}")
    for count in (9, 25):
        driver = Driver(*given)
        driver.wait_for_trials(killed, count)
        os.kill(driver.process.pid, signal.SIGKILL)
        driver.kill()
        kept = read_kept(killed)
        assert len(kept) >= count
        lines = (killed / JOURNAL).read_bytes().split(b"\n")
        assert max(Counter(lines).values()) == 1
    driver = Driver(*given)
    code, _, err = driver.end()
    driver.kill()
    assert (code, f"{len(kept)} simulations kept from before" in err) == (0, True)
    assert (killed / "trials.parquet").read_bytes() == (whole / "trials.parquet").read_bytes()
    assert told_of(killed) == told_of(whole)
    assert summary_of(killed) == summary_of(whole)
