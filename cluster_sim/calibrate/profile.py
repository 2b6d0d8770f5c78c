"""The acceptance profile of a configuration's server, from all that was counted."""

from collections.abc import Collection, Sequence

from cluster_sim.calibrate.acceptance import Row, row_of
from cluster_sim.calibrate.counts import Counts
from cluster_sim.config import Config, Method
from cluster_sim.drafting import as_vllm_runs_it, draft_length
from cluster_sim.errors import UserError
from cluster_sim.speculation.schedule import dense_lookup

KEY = "speculation.num_speculative_tokens"
COMMAND = "calibrate"


def rows_of(counts: Sequence[Counts], config: Config, given: Collection[str]) -> tuple[Row, ...]:
    """A profile for each draft length that was measured; `given` are the keys of the command line.

    Raises:
        UserError: the counts contradict the configuration, or there are none.
    """
    if config.speculation.method is Method.none:
        if counts:
            rule, remedy = "drafts were counted, so that there is a drafter", "Choose it: speculation=eagle3."
            raise UserError(rule, "speculation=none", counts[0].place, remedy)
        return ()
    if not counts:
        rule = "a profile needs counts of drafts: spec_decode_* of vLLM's result, two scrapes, or meta_info"
        remedy = "Add such a file, or write speculation=none to fit the target alone."
        raise UserError(rule, "none in any file", COMMAND, remedy)
    own = [key for key in given if key.startswith("speculation.acceptance")]
    if own:
        rule = "acceptance is what calibrate finds"
        raise UserError(rule, "a value of your own", own[0], "Leave it out.")
    longest = max(counts, key=lambda one: len(one.accepted_at))
    found, asked = len(longest.accepted_at), draft_length(config)
    if found != asked:
        rule = f"{KEY} must be {found}, as the counts have {found} positions"
        raise UserError(rule, asked, longest.place, f"Set {KEY}={found}, or give the files of other drafts.")
    by_length: dict[int, list[Counts]] = {}
    for one in counts:
        by_length.setdefault(len(one.accepted_at), []).append(one)
    scheduled = _lengths(config)
    return tuple(
        row_of(by_length[length], scheduled if length == asked else (length,)) for length in sorted(by_length)
    )


def _lengths(config: Config) -> tuple[int, ...]:
    """Draft lengths that the server may use, ascending, 0 left out."""
    setting = as_vllm_runs_it(config)
    ranges, longest = setting.config.speculation.num_speculative_tokens_per_batch_size, draft_length(config)
    if ranges is None:
        return (longest,)
    lookup = dense_lookup(ranges, int(setting.engine.max_num_seqs or 0), longest)
    return tuple(sorted({int(drafts) for drafts in lookup[1:]} - {0}))
