"""Responses of SGLang, one JSON object a line: what their meta_info says of drafts.

    spec_verify_ct                    verify events of the request
    spec_correct_drafts_histogram     [n] those that accepted n drafts; older: spec_accept_histogram
    spec_num_correct_drafts           drafts accepted; older: spec_accepted_drafts, spec_accept_token_num
    spec_num_proposed_drafts          spec_verify_ct * K; older: spec_proposed_drafts, spec_draft_token_num
    spec_proposed_drafts_histogram    [n] events of n drafts; where the server counts them

Source of the names: tokenizer_manager of github.com/sgl-project/sglang; ../shared/spec-decode-facts.md F3. A
histogram ends with its last entry above 0, so that it is no longer than K + 1, and may be shorter.
"""

from collections.abc import Sequence

from cluster_sim.calibrate.counts import Counts, check
from cluster_sim.calibrate.entries import Entry

EVENTS = "spec_verify_ct"
HISTOGRAMS = ("spec_correct_drafts_histogram", "spec_accept_histogram")
CORRECT = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
PROPOSED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
PROPOSED_HISTOGRAM = "spec_proposed_drafts_histogram"


def is_response(entry: Entry) -> bool:
    """Whether the entry is a response of SGLang with its meta_info, or a meta_info itself."""
    return EVENTS in meta_info(entry) or "meta_info" in entry


def has_verified(entry: Entry) -> bool:
    """Whether the response says what speculation did."""
    return EVENTS in meta_info(entry)


def counts_of(entries: Sequence[Entry], draft_length: int) -> list[Counts]:
    """What speculation did in each request that had a verification; the server drafts `draft_length`.

    Raises:
        UserError: numbers are missing, damaged, or contradict each other or the draft length.
    """
    verified = [one for one in map(meta_info, entries) if one.values.get(EVENTS) != 0]
    if not verified:
        entries[0].refuse("a response must have verifications", "none in any of them")
    return [_counts(one, draft_length) for one in verified]


def meta_info(entry: Entry) -> Entry:
    """The meta_info of /generate's response or of a chat completion's first choice; else the entry itself."""
    choices = entry.values.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    for holder in (entry.values, first):
        if isinstance(holder.get("meta_info"), dict):
            return Entry(entry.path, entry.place, holder["meta_info"])
    return entry


def _counts(entry: Entry, draft_length: int) -> Counts:
    events = entry.whole(EVENTS, 1)
    histogram = entry.wholes(_named(entry, HISTOGRAMS) or HISTOGRAMS[0])
    if len(histogram) > draft_length + 1:
        rule = f"drafts of {draft_length} have at most {draft_length} accepted"
        entry.refuse(
            rule, len(histogram) - 1, f"Set speculation.num_speculative_tokens={len(histogram) - 1}."
        )
    if sum(histogram) != events:
        entry.refuse(f"the histogram of accepted drafts adds up to {EVENTS}, {events}", sum(histogram))
    accepted_at = tuple(sum(histogram[position + 1 :]) for position in range(draft_length))
    correct = _named(entry, CORRECT)
    if correct is not None and entry.whole(correct) != sum(accepted_at):
        entry.refuse(f"{correct} is what the histogram adds up to, {sum(accepted_at)}", entry.whole(correct))
    offered_at = _offered_at(entry, events, draft_length)
    tokens = _draft_tokens(entry, events, draft_length) if offered_at is None else sum(offered_at)
    counts = Counts(entry.place, events, tokens, accepted_at, offered_at)
    check(counts)
    return counts


def _draft_tokens(entry: Entry, events: int, draft_length: int) -> int:
    proposed = _named(entry, PROPOSED)
    if proposed is None:
        return events * draft_length
    tokens = entry.whole(proposed, events)
    if tokens != events * draft_length:
        rule = f"{proposed} is {EVENTS} * draft length, {events} * {draft_length} = {events * draft_length}"
        remedy = "Set speculation.num_speculative_tokens to SGLang's --speculative-num-draft-tokens - 1."
        entry.refuse(rule, tokens, remedy)
    return tokens


def _offered_at(entry: Entry, events: int, draft_length: int) -> tuple[int, ...] | None:
    """[position] events that had it; None where the server does not count drafts by length."""
    if PROPOSED_HISTOGRAM not in entry:
        return None
    histogram = entry.wholes(PROPOSED_HISTOGRAM)
    if len(histogram) > draft_length + 1 or sum(histogram) != events:
        rule = f"{PROPOSED_HISTOGRAM} counts {events} events of at most {draft_length} drafts"
        entry.refuse(rule, f"{sum(histogram)} of at most {len(histogram) - 1}")
    return tuple(sum(histogram[position + 1 :]) for position in range(draft_length))


def _named(entry: Entry, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in entry), None)
