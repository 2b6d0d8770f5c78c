"""The section on the fleet over time: queue, running requests, KV use and draft length of each instance."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from cluster_sim.files import FLEET
from cluster_sim.report.arms import DASHES
from cluster_sim.report.figures import MUTED, OTHERS, Figure, figure
from cluster_sim.report.margins import legend_above
from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Kind, Stored
from cluster_sim.report.words import NOTHING, figures

Panel = tuple[str, NDArray[np.float64]]  # title, [sample, instance]
MOST_LINES = 8  # instances of which each has a line; more are drawn as their median and their range
PANEL_IN = 1.7  # height


def fleet(stored: Stored) -> Sequence[Section]:
    """What each instance was doing between the first and the last arrival."""
    path = stored.directory / FLEET
    if stored.kind is not Kind.run or not path.is_file():
        return []
    at_s, panels = read_fleet(pq.read_table(path))
    if len(at_s) == 0:
        return []
    instances = panels[0][1].shape[1]
    drawn = _chart(at_s, panels)
    words = [f"{len(at_s)} samples, from the first arrival to the last."]
    if instances > MOST_LINES:
        words.append(f"Medians over {instances} instances, and bands from the least to the most.")
    return [Section("fleet", "The fleet over time", words, [drawn], data=[_table(panels)])]


def read_fleet(table: pa.Table) -> tuple[NDArray[np.float64], list[Panel]]:
    """Moments, s, and what fleet.parquet holds, by instance; a panel that is nothing throughout is left out.

    Ranks of an instance are one: their requests add up, their KV use is averaged.
    """
    at_s, counts = np.unique(table["at_s"].to_numpy(), return_counts=True)
    if len(at_s) == 0:
        return at_s, []
    ranks = 1 if "rank" not in table.column_names else 1 + int(np.max(table["rank"].to_numpy()))
    shape = (len(at_s), counts[0] // ranks, ranks)

    def column(name: str) -> NDArray[np.float64]:
        return np.asarray(table[name].to_numpy().astype(np.float64).reshape(shape))

    drafts = np.where(np.isnan(lengths := column("draft_length")), -np.inf, lengths).max(axis=2)
    drafts[np.isneginf(drafts)] = np.nan
    panels = [
        ("Waiting requests", column("waiting").sum(axis=2)),
        ("Running requests", column("running").sum(axis=2)),
        ("KV memory in use (%)", 100.0 * column("kv_usage").mean(axis=2)),
    ]
    return at_s, [*panels, *([("Draft length K", drafts)] if np.nanmax(drafts, initial=0.0) > 0.0 else [])]


def _chart(at_s: NDArray[np.float64], panels: Sequence[Panel]) -> Figure:
    instances = panels[0][1].shape[1]

    def draw(all_axes: Sequence[Axes]) -> None:
        for axes, (title, values) in zip(all_axes, panels, strict=True):
            if instances <= MOST_LINES:
                for instance in range(instances):
                    (line,) = axes.plot(
                        at_s, values[:, instance], label=f"instance {instance}", linewidth=1.1
                    )
                    line.set(color=OTHERS[instance], linestyle=DASHES[instance % len(DASHES)])
            else:
                middle, low, high = (_over_instances(values, share) for share in (0.5, 0.0, 1.0))
                axes.fill_between(at_s, low, high, color=OTHERS[0], alpha=0.25, linewidth=0.0)
                axes.plot(at_s, middle, color=OTHERS[0], linewidth=1.1)
            axes.set(title=title, xlabel="Simulated time (s)", xlim=(0.0, float(at_s[-1])))
            axes.set_ylim(0.0, max(1.0, 1.08 * float(np.nanmax(values, initial=0.0))))
            axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
            axes.tick_params(color=MUTED)
        if 1 < instances <= MOST_LINES:
            legend_above(all_axes[:1])

    alt = "Waiting and running requests, KV use and draft length of the instances over simulated time."
    title = "What each instance was doing"
    return figure("fleet", title, alt, len(panels), draw, PANEL_IN, columns=2)


def _over_instances(values: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """A quantile over the instances that have a value; nan where none has."""
    found = np.full(len(values), np.nan)
    some = ~np.isnan(values).all(axis=1)
    found[some] = np.nanquantile(values[some], share, axis=1)
    return found


def _table(panels: Sequence[Panel]) -> Table:
    """Mean and most of each, by instance."""
    heads = [f"{title}, {word}" for title, _ in panels for word in ("mean", "most")]
    rows = [
        [str(instance), *(cell for _, values in panels for cell in _mean_and_most(values[:, instance]))]
        for instance in range(panels[0][1].shape[1])
    ]
    return Table(("Instance", *heads), rows)


def _mean_and_most(values: NDArray[np.float64]) -> tuple[str, str]:
    known = values[~np.isnan(values)]
    return (figures(float(known.mean())), figures(float(known.max()))) if len(known) else (NOTHING, NOTHING)
