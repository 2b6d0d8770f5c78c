"""Lengths of synthetic requests: their distributions, limits, and the text of every error.

Statistical tests have fixed seeds; each states how often a right implementation would fail at others.
"""

import math
from pathlib import Path
from statistics import NormalDist
from typing import Any

import kolmogorov
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim import draws
from cluster_sim.config import WorkloadConfig
from cluster_sim.engine.kinds import Purpose
from cluster_sim.errors import UserError
from cluster_sim.workload import Workload, build_workload

LOGNORMAL = {"distribution": "lognormal", "mean": 500.0, "cv": 1.5}


def synthetic(seed: int = 0, **values: Any) -> Workload:
    settings = {"requests": 1000, "request_rate": 8.0, "prompt_tokens": 512, "output_tokens": 128}
    return build_workload(WorkloadConfig(**(settings | values)), seed, 16, 0)


def error_of(**values: Any) -> str:
    with pytest.raises(UserError) as caught:
        synthetic(**values)
    return str(caught.value)


@pytest.mark.parametrize("value", [512, {"distribution": "fixed", "mean": 512}])
def test_fixed_lengths_are_all_the_same(value: object) -> None:
    assert synthetic(prompt_tokens=value).prompt_tokens.tolist() == [512] * 1000


def test_lognormal_lengths_have_their_mean_and_their_cv() -> None:
    """The logarithm of a length is normal with variance ln(1 + cv^2) and mean ln(mean) - variance / 2.

    KS on lengths spread over their rounding: false alarm 1e-6. Mean within 5 standard errors: 6e-7.
    """
    lengths = synthetic(requests=20_000, prompt_tokens=LOGNORMAL).prompt_tokens
    variance = math.log(1 + 1.5**2)
    normal = NormalDist(math.log(500) - variance / 2, math.sqrt(variance))
    smooth = np.log(lengths + draws.uniforms(0, Purpose.acceptance, 20_000, 0) - 0.5)
    assert kolmogorov.distance(smooth, normal.cdf) < kolmogorov.LIMIT
    assert lengths.mean() == pytest.approx(500, abs=5 * 750 / math.sqrt(20_000))


def test_lengths_do_not_depend_on_the_rate_or_on_the_other_length() -> None:
    one = synthetic(prompt_tokens=LOGNORMAL, output_tokens=LOGNORMAL)
    other = synthetic(prompt_tokens=LOGNORMAL, output_tokens=7, request_rate=99.0)
    assert np.array_equal(one.prompt_tokens, other.prompt_tokens)
    assert not np.array_equal(one.prompt_tokens, one.output_tokens)


@given(low=st.integers(1, 500), width=st.integers(0, 500), cv=st.floats(0, 3))
def test_lengths_stay_within_their_limits(low: int, width: int, cv: float) -> None:
    value = {"distribution": "lognormal", "mean": low + width / 2, "cv": cv, "min": low, "max": low + width}
    lengths = synthetic(requests=50, output_tokens=value).output_tokens
    assert low <= lengths.min() <= lengths.max() <= low + width


PROMPT = "workload.prompt_tokens"
DISTRIBUTION = "the distribution of a length must be fixed, uniform, lognormal or file"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            512.5,
            f"a length must be a whole number of tokens, but got 512.5 ({PROMPT}). "
            "Write 512, or {distribution: lognormal, mean: 512, cv: 1.0}.",
        ),
        (
            True,
            f"a length must be a whole number of tokens, but got true ({PROMPT}). "
            "Write 512, or {distribution: lognormal, mean: 512, cv: 1.0}.",
        ),
        (0, f"a length in tokens must be at least 1, but got 0 ({PROMPT}). Set {PROMPT} to 1 or more."),
        (
            10**12,
            f"a length in tokens must be at most 2147483647, but got 1000000000000 ({PROMPT}). "
            f"Set {PROMPT} to 2147483647 or less.",
        ),
        (
            {"mean": 512},
            f"{DISTRIBUTION}, but got null ({PROMPT}.distribution). Name one of them.",
        ),
        (
            LOGNORMAL | {"distribution": "lognorm"},
            f"{DISTRIBUTION}, but got 'lognorm' ({PROMPT}.distribution). Did you mean lognormal?",
        ),
        (
            {"distribution": "fixed", "mean": 512, "cv": 1.0},
            f"a fixed length has the keys distribution, mean, but got 'cv' ({PROMPT}). Leave cv out.",
        ),
        (
            {"distribution": "fixed"},
            f"a length must be a whole number of tokens, but got null ({PROMPT}.mean). "
            "Write 512, or {distribution: lognormal, mean: 512, cv: 1.0}.",
        ),
        (
            {"distribution": "lognormal", "mean": 512},
            f"the coefficient of variation must be a number, but got null ({PROMPT}.cv). Set {PROMPT}.cv.",
        ),
        (
            LOGNORMAL | {"cv": -1.0},
            f"the coefficient of variation must be at least 0, but got -1.0 ({PROMPT}.cv). "
            f"Set {PROMPT}.cv to 0 or more.",
        ),
        (
            LOGNORMAL | {"mean": math.nan},
            f"a mean length in tokens must be finite, but got nan ({PROMPT}.mean). "
            f"Set {PROMPT}.mean to a finite number.",
        ),
        (
            LOGNORMAL | {"min": 1.5},
            f"a length must be a whole number of tokens, but got 1.5 ({PROMPT}.min). "
            "Write 512, or {distribution: lognormal, mean: 512, cv: 1.0}.",
        ),
        (
            {"distribution": "uniform", "min": 9, "max": 3},
            f"min <= max must hold, but got min 9, max 3 ({PROMPT}). Swap them.",
        ),
        (
            {"distribution": "file"},
            f"lengths of a file need its path, but got null ({PROMPT}.path). Set {PROMPT}.path.",
        ),
        (
            LOGNORMAL | {"max": 100},
            f"min <= mean <= max must hold, but got mean 500, min 1, max 100 ({PROMPT}). "
            "Move the limits or the mean.",
        ),
    ],
)
def test_an_unsound_length_gets_its_one_line(value: object, text: str) -> None:
    assert error_of(prompt_tokens=value) == text


def test_lengths_beyond_counting_ask_for_a_maximum() -> None:
    huge = {"distribution": "lognormal", "mean": 1e9, "cv": 3.0}
    assert error_of(prompt_tokens=huge).startswith(
        "drawn lengths must be at most 2147483647 tokens, but got "
    )
    assert synthetic(prompt_tokens=huge | {"max": 2**31 - 1}).prompt_tokens.max() == 2**31 - 1


def test_uniform_lengths_are_all_as_likely() -> None:
    """Counts of 3 .. 12 among 20,000 are within 5 standard errors of 2,000: false alarm 6e-6."""
    value = {"distribution": "uniform", "min": 3, "max": 12}
    lengths = synthetic(requests=20_000, prompt_tokens=value).prompt_tokens
    counts = np.bincount(lengths, minlength=13)
    assert counts[:3].sum() == 0
    assert counts[3:13] == pytest.approx(2000, abs=5 * math.sqrt(20_000 * 0.1 * 0.9))


def test_lengths_of_a_file_are_drawn_with_replacement(tmp_path: Path) -> None:
    """Shares 1/4, 1/2, 1/4 within 5 standard errors: false alarm 2e-6; prompts and outputs independent."""
    file = tmp_path / "lengths.txt"
    file.write_text("10\n20\r\n20\n40\n")
    value = {"distribution": "file", "path": str(file)}
    drawn = synthetic(requests=20_000, prompt_tokens=value, output_tokens=value)
    shares = [(drawn.prompt_tokens == tokens).mean() for tokens in (10, 20, 40)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=5 * math.sqrt(0.25 / 20_000))
    both = ((drawn.prompt_tokens == 20) & (drawn.output_tokens == 20)).mean()
    assert both == pytest.approx(0.25, abs=5 * math.sqrt(0.19 / 20_000))


def test_prompts_and_outputs_of_one_line_stay_together(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    pairs = [(100, 1), (200, 2), (300, 3)]
    file.write_text("".join(f'{{"prompt_tokens": {p}, "output_tokens": {o}}}\n' for p, o in pairs))
    value = {"distribution": "file", "path": str(file)}
    drawn = synthetic(prompt_tokens=value, output_tokens=value)
    assert np.array_equal(drawn.prompt_tokens, 100 * drawn.output_tokens)
    assert len(set(drawn.prompt_tokens.tolist())) == 3


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            "12\n0\n",
            "a length must be a whole number from 1 to 2147483647, but got '0' (FILE, line 2). "
            "Correct or remove the line.",
        ),
        (
            "12\n1e3\n",
            "a length must be a whole number from 1 to 2147483647, but got '1e3' (FILE, line 2). "
            "Correct or remove the line.",
        ),
        (
            "",
            "a file of lengths must hold at least one length, but got an empty file (FILE). Choose another.",
        ),
        (
            '{"prompt_tokens": 2.5}',
            "prompt_tokens must be a whole number from 1 to 2147483647, but got 2.5 (FILE, line 1). "
            "Correct or remove the line.",
        ),
    ],
)
def test_a_damaged_file_of_lengths_gets_its_one_line(tmp_path: Path, content: str, text: str) -> None:
    file = tmp_path / "lengths"
    file.write_text(content)
    error = error_of(prompt_tokens={"distribution": "file", "path": str(file)})
    assert error.replace(str(file), "FILE") == text
    file.unlink()
    assert error_of(prompt_tokens={"distribution": "file", "path": str(file)}) == (
        f"a file of lengths must be a file that can be read, but got no such file ({file}). "
        f"Set {PROMPT}.path to one."
    )
