"""The section on what a step is made of, by batch size: of one simulation, or of two arms side by side."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes

from cluster_sim.report.figures import INK, MUTED, PARTS, Figure, figure
from cluster_sim.report.margins import LABEL_POINTS, legend_above
from cluster_sim.report.points import busiest, value, where
from cluster_sim.report.recommended import recommended
from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Kind, Stored, Tree
from cluster_sim.report.words import figures, seconds

NAMES = {  # part -> what stands on the page, from below
    "dense": "dense layers",
    "experts": "experts",
    "all_reduce": "all-reduce",
    "attention": "attention",
    "head": "head and sampling",
    "exchange": "exchange between ranks",
    "launch": "launching",
    "draft": "drafting",
    "host": "waiting for the host",
}
LIKELY = ("dense", "attention", "head")  # that every target has
FEWEST = 64  # the batch sizes drawn reach so far at least, and
BEYOND = 2.0  # so many times the mean batch, and the knee


def anatomy(stored: Stored) -> Sequence[Section]:
    """Parts of a step of decodes against the batch size, with the roofline's knee."""
    known = {name: one for name, one in _anatomies(stored).items() if one["batch_size"]}
    if not known:
        return []
    means = _mean_batches(stored, list(known))
    words = [*_words(known, means), *([] if stored.kind is Kind.run else [where(stored)])]
    drawn = _chart(known, means)
    data = [_table(name, one) for name, one in known.items()]
    return [Section("anatomy", "What a step is made of", words, [drawn], data=data)]


def knee_batch(anatomy: Tree, part: str) -> float | None:
    """Requests of a step whose decodes and drafts are as many tokens as the knee; None: there is none."""
    knee, drafts = anatomy["knee_tokens"][part], anatomy["draft_length"]
    if knee is None:
        return None
    beyond = (k for size, k in zip(anatomy["batch_size"], drafts, strict=True) if size * (1 + k) >= knee)
    return float(knee) / float(1 + next(beyond, drafts[-1]))


def _anatomies(stored: Stored) -> Mapping[str, Tree]:
    """Label -> what is stored: of a run its kinds of instances; else the baseline and an arm that drafts."""
    summary = stored.summary
    if stored.kind is Kind.run:
        kinds = summary.get("by_instance_kind") or {"": summary}
        return {name: part["anatomy"] for name, part in kinds.items() if part.get("anatomy")}
    arms: Mapping[str, Sequence[Tree]] = summary.get("anatomies", {})
    names = [stored.baseline, _arm(stored, list(arms))]
    known = {name: arms[name][0] for name in dict.fromkeys(names) if arms.get(name)}
    alike = len({repr(one) for one in known.values()}) == 1
    return dict(list(known.items())[:1]) if alike else known


def _arm(stored: Stored, arms: Sequence[str]) -> str:
    """The recommended arm; where none is, the last one."""
    if stored.kind is Kind.study:
        return str(stored.summary["verdict"]["recommended"])
    return recommended(stored) or next(reversed(arms), "")


def _mean_batches(stored: Stored, names: Sequence[str]) -> dict[str, float]:
    """Label -> mean requests of a step, where they are known."""
    if stored.kind is Kind.run:
        parts = stored.summary.get("by_instance_kind") or {"": stored.summary}
    else:
        parts = busiest(stored)
    sizes = {name: parts[name]["batch_size"]["mean"] for name in names if name in parts}
    return {name: value(size) for name, size in sizes.items() if size is not None}


def _words(known: Mapping[str, Tree], means: Mapping[str, float]) -> Iterator[str]:
    one = next(iter(known.values()))
    yield (
        f"Decodes alone at {figures(one['kv_tokens'])} tokens of context, with the draft length in force; "
        "prefills come on top. Before the knee the products are bound by reading the weights, and drafts "
        "ride along; beyond it they are bound by computing, and each further draft costs its full time."
    )
    for name, each in known.items():
        of = f"{name}: " if name else "Here "
        knees = [(part, batch) for part in ("dense", "experts") if (batch := knee_batch(each, part))]
        said = [f"the knee of the {NAMES[part]} is at a batch of {figures(batch)}" for part, batch in knees]
        if name in means:
            said.append(f"the mean batch is {figures(means[name])}")
        yield f"{of}{'; '.join(said)}." if said else f"{of}no fit of the GPU says where the knee is."
    missing = [NAMES[part] for part in LIKELY if part not in one["parts_s"]]
    if one["bundle_kind"] != "roofline" and missing:
        yield f"The measured bundle tells no {' and no '.join(missing)} apart: they are in the other parts."


def _chart(known: Mapping[str, Tree], means: Mapping[str, float]) -> Figure:
    parts = [part for part in NAMES if any(part in one["parts_s"] for one in known.values())]
    last = _largest_drawn(known, means)

    def draw(panels: Sequence[Axes]) -> None:
        tops = []
        for axes, (name, one) in zip(panels, known.items(), strict=True):
            tops.append(_stack(axes, one, parts, last))
            knees = {"knee": knee_batch(one, "dense"), "experts' knee": knee_batch(one, "experts")}
            _mark(axes, {**knees, "mean": means.get(name)}, last)
            axes.set(title=name, xlabel="Batch size (requests in a step)")
        for axes in panels:
            axes.set_ylim(0.0, 1.3 * max(tops))
        panels[0].set_ylabel("Time of a step (ms)")
        legend_above(panels[:1])

    alt = "Time of a step of decodes by part, stacked, over the batch size, with the knee of the roofline."
    title = "Time of a step of decodes, by part"
    return figure("anatomy", title, alt, len(known), draw)


def _largest_drawn(known: Mapping[str, Tree], means: Mapping[str, float]) -> int:
    knees = [knee_batch(one, "dense") or 0.0 for one in known.values()]
    least = BEYOND * max(FEWEST / BEYOND, *means.values(), *knees)
    sizes: Sequence[int] = max((one["batch_size"] for one in known.values()), key=len)
    return next((size for size in sizes if size >= least), sizes[-1])


def _stack(axes: Axes, anatomy: Tree, parts: Sequence[str], last: int) -> float:
    """Draw the parts up to batch size `last`; the height of the highest step, ms."""
    sizes = [size for size in anatomy["batch_size"] if size <= last]
    below = np.zeros(len(sizes))
    for place, part in enumerate(parts):
        colour = PARTS[round(place * (len(PARTS) - 1) / max(len(parts) - 1, 1))]
        times_ms = 1e3 * np.array(anatomy["parts_s"].get(part, np.zeros(len(sizes))))[: len(sizes)]
        axes.fill_between(sizes, below, below + times_ms, color=colour, linewidth=0.0, label=NAMES[part])
        below = below + times_ms
    axes.set_xscale("log", base=2)
    axes.set_xticks([2**power for power in range(0, 11, 2) if 2**power <= last])
    axes.xaxis.set_major_formatter(lambda size, _: f"{size:g}")
    axes.minorticks_off()
    axes.set_xlim(1, max(last, 2))
    axes.tick_params(color=MUTED)
    return float(below.max())


def _mark(axes: Axes, batches: Mapping[str, float | None], last: int) -> None:
    """Dotted lines at batch sizes, named at their tops, one below the other."""
    known = [(words, size) for words, size in batches.items() if size is not None and 1.0 <= size <= last]
    for place, (words, size) in enumerate(known):
        axes.axvline(size, color=INK, linewidth=1.0, linestyle=(0, (1, 2)))
        at = {"transform": axes.get_xaxis_transform(), "ha": "right", "va": "top", "fontsize": LABEL_POINTS}
        axes.text(size, 0.99 - 0.08 * place, f"{words} ", **cast(Any, at))


def _table(name: str, anatomy: Tree) -> Table:
    parts = [part for part in NAMES if part in anatomy["parts_s"]]
    rows = [
        [
            str(size),
            str(anatomy["draft_length"][place]),
            seconds(anatomy["step_s"][place]),
            *(seconds(anatomy["parts_s"][part][place]) for part in parts),
        ]
        for place, size in enumerate(anatomy["batch_size"])
    ]
    return Table(("Batch size", "K", "Step", *(NAMES[part] for part in parts)), rows, name)
