"""Whether a run was saturated: more arrived than was served, to the end.

Rule. Let N(t) be the number of requests in the system, and look at the second half, of length T, of the time
in which requests arrive; the first half is warm-up. A least-squares line through N(t) rises over that half by
r. The run is saturated when r exceeds all of

    10 requests;
    5 % of the requests that arrived in that half: r / arrivals estimates 1 - 1 / utilisation;
    2.5 standard deviations of the rise by chance in a stable system, whose variance is the smaller of
        12 N W / T      the infinite-server queue, M/G/inf: T / W independent values of variance N, for the
                        mean number N in the system and the mean time W in it;
        6/5 arrivals    a queue that is never empty: N(t) is a random walk that Poisson arrivals drive.

Faults of the cluster are no exception: a queue that an outage leaves, and that has not gone by the end of the
arrivals, is growth. fault_report.py warns of faults in that half.

False alarms and misses, measured on one H100 with Llama-3.1-8B, whose requests stay for seconds near its
capacity of 57 requests/s: of 50 runs of 10,000 requests at 90, 95, 105 and 110 % of it 0, 0, 12 and 44 were
called saturated. Of 100 runs of 2,000, half a minute, 11, 17, 37 and 71: a rise by chance looks the same.
With a drafter (K=3): 0, 1, 26 and 50 of 50; 18, 34, 86 and 85 of 100. tests/test_saturation.py has queues.

A run so short that requests stay for most of it counts as saturated too: it never became steady. So does a
part of a trace that ends in a burst or a busier hour, for its arrivals are no Poisson process: of nine parts
of 300 requests of Mooncake's conversations (prompts cut to 6,000 tokens, one H100, stable over 3,000) three.
With too few arrivals, or all at one moment, nobody can tell: None. A closed loop's queue cannot grow: None.
"""

from dataclasses import dataclass

import numpy as np

from cluster_sim.engine.kinds import Outcome
from cluster_sim.engine.tables import Floats
from cluster_sim.results import Run
from cluster_sim.waiting import is_closed_loop

FEWEST_ARRIVALS = 20  # in the second half
SMALLEST_RISE_REQUESTS = 10
SMALLEST_SHARE = 0.05
STANDARD_DEVIATIONS = 2.5
LARGEST_BURST = 0.5  # share of the arrivals up to which growth may be a trace's own
MOST_SEEDS = 0.5  # at least so many of a point's seeds are saturated: the point is
NUM_POINTS = 256  # at which N(t) is looked at


@dataclass(frozen=True)
class Growth:
    """How the number in the system changes over the second half of the arrivals; None: nobody can tell."""

    requests: float | None  # rise of the line
    share_of_arrivals: float | None  # of those that arrived meanwhile
    is_saturated: bool | None


def growth_of_queue(run: Run) -> Growth:
    """Growth of the number of requests in the system, rejected and failed ones left out.

    Those that wait at a client for a place under its limit are in it.
    """
    if is_closed_loop(run.config.workload):
        return Growth(None, None, None)
    served = ~np.isin(run.log["outcome"], (int(Outcome.rejected), int(Outcome.failed)))
    due_s = run.requests["arrival_s"] if run.due_s is None else run.due_s
    return growth(due_s[served], leaves_s(run)[served])


def may_be_a_burst(trace: str | None, share_of_arrivals: float | None) -> bool:
    """Whether growth by this share of the arrivals may come from the trace's own load, which rose."""
    return trace is not None and share_of_arrivals is not None and share_of_arrivals <= LARGEST_BURST


def warnings_of_growth(run: Run, growth: Growth) -> list[str]:
    """That a saturated run of a trace may have met no more than a burst."""
    if not (growth.is_saturated and may_be_a_burst(run.config.workload.trace, growth.share_of_arrivals)):
        return []
    return [
        "a burst or a busier hour at the end of a trace looks like saturation: replay more to tell them apart"
    ]


def leaves_s(run: Run) -> Floats:
    """When each request leaves the system, s, [request]; of a rejected or failed one it means nothing."""
    completed = run.log["outcome"] == int(Outcome.completed)
    left_s: Floats = np.where(completed, run.log["last_token_s"], run.requests["abort_s"])
    return left_s


def growth(arrival_s: Floats, left_s: Floats) -> Growth:
    """Growth of the number in a system; requests enter at `arrival_s`, in order, and leave at `left_s`."""
    if len(arrival_s) == 0:
        return Growth(None, None, None)
    middle_s, end_s = (arrival_s[0] + arrival_s[-1]) / 2, arrival_s[-1]
    half_s = float(end_s - middle_s)
    arrivals = int((arrival_s > middle_s).sum())
    if half_s <= 0.0 or arrivals < FEWEST_ARRIVALS:
        return Growth(None, None, None)
    at_s = np.linspace(middle_s, end_s, NUM_POINTS)
    entered = np.searchsorted(arrival_s, at_s, side="right")
    inside = entered - np.searchsorted(np.sort(left_s), at_s, side="right")
    rise = float(np.polyfit(np.linspace(0.0, 1.0, NUM_POINTS), inside, 1)[0])
    stay_s = float((left_s - arrival_s)[arrival_s > middle_s].mean())
    by_chance = np.sqrt(min(12 * inside.mean() * stay_s / half_s, 1.2 * arrivals))
    threshold = max(SMALLEST_RISE_REQUESTS, SMALLEST_SHARE * arrivals, STANDARD_DEVIATIONS * by_chance)
    return Growth(rise, rise / arrivals, bool(rise > threshold))
