"""What calibrate reads of SGLang: responses with their meta_info."""

from pathlib import Path
from typing import Any

import pytest
from example_bench import write_bench

from cluster_sim.calibrate import sglang
from cluster_sim.calibrate.entries import read_entries
from cluster_sim.errors import UserError

# github.com/sgl-project/sglang/pull/33518, in ../shared/spec-decode-facts.md F3
RESPONSE: dict[str, Any] = {
    **{"completion_tokens": 106, "spec_verify_ct": 43, "spec_accept_length": 2.465},
    **{"spec_num_correct_drafts": 63, "spec_correct_drafts_histogram": [11, 14, 11, 4, 0, 3]},
}


def responses(tmp_path: Path, *found: dict[str, Any]) -> Path:
    return write_bench(tmp_path / "responses.jsonl", [{"text": "..", "meta_info": one} for one in found])


def test_the_counts_of_a_response_are_those_of_its_histogram(tmp_path: Path) -> None:
    """The marginals of ../shared/spec-decode-facts.md F3; completion_tokens = verifications + accepted."""
    (counts,) = sglang.counts_of(read_entries(responses(tmp_path, RESPONSE)), 5)
    shares = [accepted / counts.drafts for accepted in counts.accepted_at]
    assert shares == pytest.approx([0.744, 0.419, 0.163, 0.070, 0.070], abs=5e-4)
    assert counts.drafts + counts.accepted == RESPONSE["completion_tokens"]


def test_the_names_that_sglang_had_before_are_read_too(tmp_path: Path) -> None:
    old = {"spec_verify_ct": 43, "spec_accept_token_num": 63, "spec_draft_token_num": 43 * 5}
    old["spec_accept_histogram"] = RESPONSE["spec_correct_drafts_histogram"]
    file = write_bench(tmp_path / "chat.json", [{"id": "x", "choices": [{"meta_info": old}]}])
    (counts,) = sglang.counts_of(read_entries(file), 5)
    assert counts.accepted_at == (32, 18, 7, 3, 3)


def test_a_histogram_of_draft_lengths_gives_each_position_its_own_drafts(tmp_path: Path) -> None:
    found = {"spec_verify_ct": 10, "spec_correct_drafts_histogram": [4, 3, 3]}
    found["spec_proposed_drafts_histogram"] = [0, 6, 4]
    (counts,) = sglang.counts_of(read_entries(responses(tmp_path, found)), 2)
    assert (counts.offered_at, counts.draft_tokens) == ((10, 4), 14)


@pytest.mark.parametrize(
    ("changes", "drafts", "error"),
    [
        (
            {},
            3,
            "drafts of 3 have at most 3 accepted, but got 5 ({0}). Set speculation.num_speculative_tokens=5.",
        ),
        (
            {"spec_verify_ct": 44},
            5,
            "the histogram of accepted drafts adds up to spec_verify_ct, 44, but got 43 ({0}). "
            "Correct the file, or measure again.",
        ),
        (
            {"spec_num_correct_drafts": 62},
            5,
            "spec_num_correct_drafts is what the histogram adds up to, 63, but got 62 ({0}). "
            "Correct the file, or measure again.",
        ),
        (
            {"spec_num_proposed_drafts": 43 * 5},
            6,
            "spec_num_proposed_drafts is spec_verify_ct * draft length, 43 * 6 = 258, but got 215 ({0}). "
            "Set speculation.num_speculative_tokens to SGLang's --speculative-num-draft-tokens - 1.",
        ),
        (
            {"spec_verify_ct": 0},
            5,
            "a response must have verifications, but got none in any of them ({0}). "
            "Correct the file, or measure again.",
        ),
    ],
)
def test_a_response_that_contradicts_itself_or_the_draft_length_is_refused(
    tmp_path: Path, changes: dict[str, Any], drafts: int, error: str
) -> None:
    file = responses(tmp_path, RESPONSE | changes)
    with pytest.raises(UserError) as raised:
        sglang.counts_of(read_entries(file), drafts)
    assert str(raised.value) == error.replace("{0}", str(file))
