"""What speculation did, counted twice: as vLLM exports it, and so that each position has its own denominator.

vLLM counts a request's step with at least one draft as one draft; steps without (K = 0) are not counted. It
divides the acceptances of every position by all drafts (../shared/vllm-scheduler.md section 12), so that late
positions read low when K varies: by the share of the drafts that had the position
(../shared/spec-decode-facts.md F2). For one K the two agree.
"""

from typing import Any

import numpy as np

from cluster_sim.engine.tables import Longs


def acceptance(verified: Longs) -> dict[str, Any]:
    """Acceptance from verify events [drafts verified, drafts accepted]; None without any.

    Acceptance length = 1 + accepted / verify events with a draft; rate = accepted / drafted tokens. Entry i
    of acceptance_by_position is the share of the events with more than i drafts whose first i + 1 drafts were
    all accepted; of acceptance_by_position_vllm, that of all events with a draft.
    """
    counted = vllm_counters(verified)
    num_events, kept = counted["num_drafts"], counted["num_accepted_tokens_per_pos"]
    if num_events == 0:
        names = ("length", "rate", "by_position", "by_position_vllm")
        return {f"acceptance_{name}": None for name in names}
    num_accepted = counted["num_accepted_tokens"]
    return {
        "acceptance_length": 1 + num_accepted / num_events,
        "acceptance_rate": num_accepted / counted["num_draft_tokens"],
        "acceptance_by_position": [
            kept_at / had_it if had_it else None
            for kept_at, had_it in zip(kept, _reached(verified), strict=True)
        ],
        "acceptance_by_position_vllm": [kept_at / num_events for kept_at in kept],
    }


def acceptance_by_draft_length(verified: Longs) -> dict[str, list[Any]]:
    """The verify events of each draft length and their acceptance; entry K is that of K drafts, None without.

    Of a request cut short by max_tokens or a budget, a step may verify fewer drafts than were proposed.
    """
    lengths, positions = [], []
    for drafts in range(len(verified)):
        own = np.zeros_like(verified[: drafts + 1, : drafts + 1])
        own[drafts] = verified[drafts, : drafts + 1]
        of_length = acceptance(own)
        lengths.append(of_length["acceptance_length"])
        positions.append(of_length["acceptance_by_position"])
    counts = [0, *verified[1:].sum(axis=1).tolist()]
    return {"verifications": counts, "acceptance_length": lengths, "acceptance_by_position": positions}


def vllm_counters(verified: Longs) -> dict[str, Any]:
    """The counters vllm:spec_decode_* from verify events [drafts verified, drafts accepted]."""
    events = verified[1:]
    return {
        "num_drafts": int(events.sum()),
        "num_draft_tokens": int(events.sum(axis=1) @ np.arange(1, len(verified))),
        "num_accepted_tokens": int(events.sum(axis=0) @ np.arange(verified.shape[1])),
        "num_accepted_tokens_per_pos": np.cumsum(events.sum(axis=0)[::-1])[::-1][1:].tolist(),
    }


def _reached(verified: Longs) -> list[int]:
    """[position]: verify events that had it."""
    reached: list[int] = np.cumsum(verified[1:].sum(axis=1)[::-1])[::-1].tolist()
    return reached
