"""Whether a run went beyond what its bundle was timed at.

The last points of the tables are compared with the requests of the largest step, the mean tokens of a step
and the longest context. What lies inside may still lie between points that are far apart.
"""

from collections.abc import Iterator

import numpy as np

from cluster_sim.bundle.extent import Extent
from cluster_sim.engine.tables import Longs
from cluster_sim.results import Run

WHAT = ("requests of the largest step", "mean tokens of a step", "tokens of the longest context")


def warnings_beyond(run: Run) -> Iterator[str]:
    """What to say of each kind of instance that went beyond its bundle."""
    ranks = run.config.cluster.data_parallel_size
    for one in run.kinds:
        rows = np.add.outer(np.multiply(one.kind.instances, ranks), np.arange(ranks)).ravel()
        beyond = [
            f"{words} {seen:,}, timed up to {last:,}"
            for words, seen, last in zip(WHAT, _seen(run, rows), one.extent, strict=True)
            if seen > last
        ]
        if beyond:
            yield (
                f"the run went beyond bundle {one.bundle_name}, whose step times go on in a straight line "
                f"there ({'; '.join(beyond)})"
            )


def _seen(run: Run, rows: Longs) -> Extent:
    """The largest step of some engine cores, the mean tokens of their steps and their longest context."""
    steps = run.tally.batch_size_steps[rows].sum(axis=0)
    tokens = run.tally.totals["scheduled_tokens"][rows].sum() / max(int(steps.sum()), 1)
    served = np.isin(run.log["instance"], rows)
    contexts = (run.requests["prompt_tokens"] + run.log["emitted_tokens"])[served]
    return Extent(int(np.flatnonzero(steps).max(initial=0)), int(tokens), int(contexts.max(initial=0)))
