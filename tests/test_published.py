"""Published acceptance: what is shipped, the identity of every pair, smoothing, and who gets which."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_sim.build import build
from cluster_sim.compose import compose
from cluster_sim.config import AcceptanceConfig, AcceptancePolicy, Method
from cluster_sim.errors import UserError
from cluster_sim.listing import names
from cluster_sim.luck import acceptance_source
from cluster_sim.paths import conf_dir, group_options
from cluster_sim.speculation.acceptance import acceptance_length, conditional_table, marginals
from cluster_sim.speculation.isotonic import non_increasing
from cluster_sim.speculation.profiles import Profile, other_draft_lengths, resolve
from cluster_sim.speculation.published import FILE, Published, load

ENTRIES = load()


def auto(model: str, method: Method) -> Profile:
    return resolve(AcceptanceConfig(published="auto"), model, method)


def length_of(entry: Published, drafts: int) -> float:
    return acceptance_length(conditional_table(entry.config(), drafts), drafts)


# ---- what is shipped ----


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_has_a_source_and_the_acceptance_lengths_it_was_published_with(name: str) -> None:
    """Within the rounding of the digits; rows of one run a length within their noise (0.3 where AL falls)."""
    entry = ENTRIES[name]
    assert entry.source
    assert entry.licence == "facts"
    for drafts, row in entry.rows.items():
        tolerance = 0.3 if entry.has_all_lengths else 0.011
        assert length_of(entry, drafts) == pytest.approx(row.mean_length(drafts), abs=tolerance)


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_never_accepts_less_of_a_longer_draft_where_its_rows_are_one_profile(name: str) -> None:
    entry = ENTRIES[name]
    if entry.has_all_lengths:
        table = conditional_table(entry.config(), max(entry.rows))
        lengths = [acceptance_length(table, drafts) for drafts in entry.rows]
        assert all(after >= before for before, after in pairwise(lengths))


@pytest.mark.parametrize(
    ("name", "method", "drafts", "length"),
    [
        ("deepseek-v3.2-exp-mtp", "mtp", 4, 2.55),
        ("glm-5-mtp", "mtp", 4, 2.76),
        ("minimax-m3-eagle3", "eagle3", 3, 3.01),
        ("qwen3.8-27b-mtp", "mtp", 5, 4.895),
        ("glm-5.2-dspark-16", "parallel", 16, 4.348),
        ("mtp-gsm8k-rerun", "mtp", 8, 4.496),
        ("llama-3.1-8b-ngram-instructcoder", "ngram", 3, 2.028),
        ("llama-3.1-8b-eagle3-mt-bench", "eagle3", 4, 3.08),
        ("kimi-k2.5-eagle3-thinking", "eagle3", 8, 3.77),
    ],
)
def test_the_pairs_that_are_known_are_there(name: str, method: str, drafts: int, length: float) -> None:
    assert ENTRIES[name].method.name == method
    assert length_of(ENTRIES[name], drafts) == pytest.approx(length, abs=1e-3)


def test_the_file_is_no_option_of_a_group() -> None:
    assert (conf_dir() / FILE).is_file()
    assert not set(group_options("speculation", [conf_dir()])) - {method.name for method in Method}


def test_list_shows_raw_rows_beside_smoothed_ones() -> None:
    (line,) = [
        text for text in names(["profiles"]) if text.startswith("deepseek-v4-pro-0813-dspark-thinking:")
    ]
    assert (
        "5: 3.61, 6: 3.77, 7: 3.73, 8: 3.47; smoothed 1.84, 2.51, 3.01, 3.36, 3.61, 3.77, 3.77, 3.77" in line
    )
    assert len(names(["profiles"])) == len(ENTRIES)


# ---- smoothing ----


def test_neighbours_that_rise_share_their_mean() -> None:
    """MiniMax-M3, K = 3 to 4: marginals 0.41 then 0.48 (../shared/spec-decode-facts.md A4)."""
    assert non_increasing([0.84, 0.68, 0.41, 0.48, 0.18]) == pytest.approx([0.84, 0.68, 0.445, 0.445, 0.18])


def test_what_would_be_negative_is_zero() -> None:
    assert non_increasing([0.5, -0.04, -0.26]) == [0.5, 0.0, 0.0]


@given(values=st.lists(st.floats(-1, 1), min_size=1, max_size=8))
def test_the_smoothed_row_is_the_closest_that_falls(values: list[float]) -> None:
    """It falls; where nothing is cut at 0 it keeps the sum; and no falling row nearby is closer."""
    smooth = non_increasing(values)
    assert all(after <= before + 1e-12 for before, after in pairwise(smooth))
    assert min(smooth) >= 0
    if min(smooth) > 0:
        assert sum(smooth) == pytest.approx(sum(values))
    for index in range(len(values)):
        for step in (-1e-3, 1e-3):
            other = [max(value + step * (at <= index), 0.0) for at, value in enumerate(smooth)]
            if all(after <= before for before, after in pairwise(other)):
                assert distance(other, values) >= distance(smooth, values) - 1e-12


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    return float(np.square(np.subtract(one, other)).sum())


# ---- who gets which ----


def test_auto_takes_the_entry_of_the_model_and_the_method() -> None:
    assert auto("llama-3.1-8b", Method.eagle3).label == "llama-3.1-8b-eagle3-mt-bench"
    assert auto("llama-3.1-8b", Method.ngram).label == "llama-3.1-8b-ngram-sharegpt"
    assert auto("deepseek-v3", Method.mtp).label == "deepseek-v3-mtp"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["model=qwen3-8b"],
            "acceptance with eagle3 must be given for a model without a published profile, but got qwen3-8b "
            "(speculation.acceptance.published). Set 'speculation.acceptance={policy: decay, rate: RATE}' to "
            "what was measured, accepted / drafted tokens.",
        ),
        (
            ["speculation.acceptance.published=llama-3.1-8b-eagle-cnn"],
            "llama-3.1-8b-eagle-cnn was measured with method eagle, but got method eagle3 "
            "(speculation.acceptance.published). Choose speculation=eagle, or a profile of eagle3.",
        ),
    ],
)
def test_a_model_without_a_profile_is_refused_until_it_is_given_numbers(
    arguments: list[str], text: str
) -> None:
    config = compose([*arguments, "workload.requests=5"])
    with pytest.raises(UserError) as caught:
        build(config)
    assert str(caught.value) == text
    numbers = "speculation.acceptance={policy: decay, rate: 0.6}"
    build(compose([*arguments[:1], "workload.requests=5", numbers] if "model" in arguments[0] else [numbers]))


def test_several_profiles_without_a_default_are_named() -> None:
    with pytest.raises(UserError, match=re.escape("Name one: deepseek-v4-flash-mtp-random-c1, ")):
        auto("deepseek-v4-flash", Method.mtp)


def test_a_profile_of_another_model_stands_in_only_by_name_and_says_so() -> None:
    chosen = AcceptanceConfig(published="minimax-m3-eagle3", request_spread=0.5)
    profile = resolve(chosen, "qwen3-8b", Method.eagle3)
    assert profile.config.request_spread == 0.5
    assert profile.warnings == (
        "the acceptance profile minimax-m3-eagle3 was measured on minimax-m3, not on qwen3-8b",
    )


def test_the_source_is_published_or_given() -> None:
    assert acceptance_source(compose([])).startswith(
        "[published] llama-3.1-8b-eagle3-mt-bench: EAGLE heads of"
    )
    given_here = "speculation.acceptance={policy: decay, rate: 0.6, source: my own log}"
    assert acceptance_source(compose([given_here])) == "[given] my own log"
    assert (
        acceptance_source(compose([given_here.replace(", source: my own log", "")])) == "[given] by the user"
    )
    assert acceptance_source(compose(["speculation=none"])) == "no speculation"


# ---- at another draft length ----


def test_a_draft_length_that_was_measured_is_not_remarked_on() -> None:
    assert other_draft_lengths(auto("llama-3.1-8b", Method.eagle3), [0, 2, 3, 7]) is None


def test_another_draft_length_is_said_once_with_both_acceptance_lengths() -> None:
    profile = resolve(AcceptanceConfig(published="deepseek-v3.2-exp-mtp"), "deepseek-v3.2-exp", Method.mtp)
    assert other_draft_lengths(profile, [1, 3, 3, 4]) == (
        "the acceptance profile deepseek-v3.2-exp-mtp has drafts of 4 (acceptance length 2.55) and stands in "
        "for drafts of 1 (1.66), 3 (2.37), whose own may differ by some percent"
    )


def test_a_run_at_another_draft_length_warns() -> None:
    warnings = build(compose(["speculation.num_speculative_tokens=1", "workload.requests=5"])).warnings
    assert [
        text
        for text in warnings
        if "llama-3.1-8b-eagle3-mt-bench has drafts of 2 (acceptance length 2.36), 3" in text
    ]


def test_a_length_alone_keeps_the_measured_drafts_beginning() -> None:
    config = ENTRIES["deepseek-v3.2-exp-mtp"].config()
    assert config.policy is AcceptancePolicy.decay
    assert marginals(config, 2) == pytest.approx(marginals(config, 4)[:2])


# ---- a broken file ----

SOUND = """licence: facts
profiles:
  one:
    model: m
    method: mtp
    domain: text
    temperature: null
    source: somewhere
    rows: {4: {rate: 0.3875, acceptance_length: 2.55}}
"""


def test_the_sound_file_is_read(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(SOUND)
    assert list(load(tmp_path / FILE)) == ["one"]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (
            "2.55",
            "2.56",
            "1 + rate * 4, acceptance length and 1 + the sum of the marginals are one number, but got "
            "2.56 and 2.5500 ({file}: one: 4). Correct the file.",
        ),
        (
            "{rate: 0.3875, acceptance_length: 2.55}",
            "{marginals: [0.80, 0.40, 0.30, 0.10], acceptance_length: 2.64}",
            "1 + rate * 4, acceptance length and 1 + the sum of the marginals are one number, but got "
            "2.64 and 2.60 ({file}: one: 4). Correct the file.",
        ),
        (
            "{rate: 0.3875, acceptance_length: 2.55}",
            "[0.8, 0.4, 0.5, 0.1]",
            "marginals must not increase, but got 0.4 then 0.5 ({file}: one: 4). Correct the file.",
        ),
        (
            "{rate: 0.3875, acceptance_length: 2.55}",
            "[0.8, 0.4]",
            "4 drafts have 4 marginals, but got ['0.8', '0.4'] ({file}: one: 4). Correct the file.",
        ),
        (
            "0.3875",
            "38.75",
            "the number must lie between 0 and 1, but got 38.75 ({file}: one: 4). Correct the file.",
        ),
        ("2.55", "x", "a number must be given, but got 'x' ({file}: one: 4). Correct the file."),
        (
            "mtp",
            "mtq",
            "the method must be one of speculation.method, but got mtq ({file}: one). Correct the file.",
        ),
        (
            "null",
            "hot",
            "the temperature must be a number, or null, but got hot ({file}: one). Correct the file.",
        ),
        (
            "4: {",
            "0: {",
            "a draft length must be a whole number of 1 or more, but got 0 ({file}: one). Correct the file.",
        ),
        (
            "licence: facts",
            "a: b",
            "the file must hold a licence and profiles, but got something else ({file}).",
        ),
        (
            "    source: somewhere\n",
            "",
            "a published profile has model, method, domain, temperature, source, rows",
        ),
    ],
)
def test_a_broken_entry_is_refused_by_its_name(tmp_path: Path, old: str, new: str, text: str) -> None:
    file = tmp_path / FILE
    file.write_text(SOUND.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        load(file)
    assert str(caught.value).startswith(text.replace("{file}", str(file)))


def test_rounding_of_the_printed_digits_is_allowed_for(tmp_path: Path) -> None:
    """0.44 of 4 drafts is 2.74 to 2.78, and 2.76 and 2.74 are both within; trailing zeros count as digits."""
    for rate, length, is_sound in (("0.44", "2.74", True), ("0.4400", "2.74", False), ("0.4", "2.7", True)):
        file = tmp_path / f"{rate}-{length}.yaml"
        file.write_text(SOUND.replace("0.3875", rate).replace("2.55", length))
        if is_sound:
            load(file)
        else:
            with pytest.raises(UserError, match="are one number"):
                load(file)


def test_two_defaults_of_one_model_and_method_are_refused(tmp_path: Path) -> None:
    file = tmp_path / FILE
    first = SOUND.replace("    source", "    default: true\n    source")
    entry = first[first.index("  one:") :]
    file.write_text(first + entry.replace("  one:", "  two:"))
    with pytest.raises(
        UserError, match="a model and a method have one default profile, but got two of m with mtp"
    ):
        load(file)
