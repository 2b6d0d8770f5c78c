"""Sections of a study: what to run and how, the arms beside it, how far it stands, how it was found."""

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate

from matplotlib.axes import Axes

from cluster_sim.report.arms import looks_of
from cluster_sim.report.capacity_sections import AROUND_IN, DOT_IN
from cluster_sim.report.figures import INK, MUTED, OTHERS, Figure, figure, height_of_rows, name_rows
from cluster_sim.report.objectives import TIMES, WHOLE
from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Kind, Stored, Tree
from cluster_sim.report.study import asked, load_words, number_words, stands, value_words
from cluster_sim.report.words import NOTHING, percent
from cluster_sim.study.export import SCHEDULE, needs_checkpoint

CHECKPOINT = (
    'It still needs the checkpoint of the drafter, "model", which vLLM does not guess: the command of the '
    "study with its output.dir and output.drafter=ORGANISATION/CHECKPOINT writes it, at once."
)


def recommendation(stored: Stored) -> Sequence[Section]:
    """The file to hand to vLLM."""
    path = stored.directory / SCHEDULE
    if stored.kind is not Kind.study or not path.is_file():
        return []
    words = [
        f'vllm serve MODEL --speculative-config "$(cat {SCHEDULE})"; {SCHEDULE} stands beside this page:'
    ]
    text = path.read_text("utf-8")
    if needs_checkpoint(json.loads(text)):
        words.append(CHECKPOINT)
    return [Section("recommended", "How to turn it on", words, preformatted=text, is_open=True)]


def verdicts(stored: Stored) -> Sequence[Section]:
    """Every arm under the fresh seeds, with its difference from the best."""
    if stored.kind is not Kind.study:
        return []
    summary = stored.summary
    has_loads = any(one["by_load"] for one in summary["contenders"])  # GPUs are one number for all of them
    loads = [load_words(load) for load in summary["loads"]] if has_loads else []
    rows = [
        [
            one["arm"],
            NOTHING if one["value"] is None else value_words(summary, one["value"]),
            *_against(summary, one),
            "yes" if one["is_feasible"] else "no",
            *(number_words(summary, value) for value in one["by_load"]),
        ]
        for one in summary["contenders"]
    ]
    unit = summary["unit"]
    heads = ("Arm", f"Value ({unit})", "Difference from the best", "Verdict", "Constraints met", *loads)
    words = [" ".join(asked(summary)), "Values under seeds that the search had not seen, with 95% intervals."]
    return [Section("verdict", "The arms", words, [_chart(stored)], [Table(heads, rows)])]


def sensitivity(stored: Stored) -> Sequence[Section]:
    """What becomes of the recommendation where one thing is changed."""
    if stored.kind is not Kind.study or not stored.summary["sensitivity"]:
        return []
    summary = stored.summary
    varied = [one for one in summary["sensitivity"] if "values" in one]
    arms = list(dict.fromkeys(arm for one in varied for arm in one["values"]))
    rows = [
        [one["variation"], *(number_words(summary, one["values"].get(arm)) for arm in arms)] for one in varied
    ]
    data = [Table(("Variation", *arms), rows, f"Value in {summary['unit']}")] if rows else []
    return [Section("sensitivity", "How far it stands", list(stands(summary)), data=data)]


def history(stored: Stored) -> Sequence[Section]:
    """How the search went."""
    told = stored.summary.get("search", {}).get("history") if stored.kind is Kind.study else None
    if not told:
        return []
    summary = stored.summary
    best = _best_so_far(_more_is_better(summary), told)
    rows = [
        [
            str(place + 1),
            one["arm"],
            number_words(summary, one["value"]),
            "yes" if one["is_feasible"] else "no",
        ]
        for place, one in enumerate(told)
    ]

    def draw(panels: Sequence[Axes]) -> None:
        (axes,) = panels
        for feasible, colour, label in ((True, OTHERS[0], "a trial"), (False, MUTED, "misses a constraint")):
            points = [
                (place + 1, one["value"])
                for place, one in enumerate(told)
                if one["value"] is not None and one["is_feasible"] is feasible
            ]
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", linestyle="", color=colour, label=label)
        axes.plot(range(1, len(told) + 1), best, color=INK, drawstyle="steps-post", label="best so far")
        axes.set(xlabel="Trials that ran to their end", ylabel=f"Value ({summary['unit']})")
        axes.legend(frameon=False, fontsize=8.0)

    title = "Value of each trial under the seeds of the search"
    drawn = figure("history", title, f"{title}, and the best so far.", 1, draw)
    search = summary["search"]
    words = [f"{search['trials']} trials, {search['stopped_early']} of them stopped early and not shown."]
    table = Table(("Trial", "Arm", f"Value ({summary['unit']})", "Constraints met"), rows)
    return [Section("history", "The search", words, [drawn], data=[table])]


def _more_is_better(summary: Tree) -> bool:
    """Of the objective; results of an earlier version do not say it."""
    return bool(summary.get("more_is_better", summary["objective"] not in (*TIMES, WHOLE)))


def importance(stored: Stored) -> Sequence[Section]:
    """Which parameters of the search mattered."""
    told = stored.summary.get("search", {}).get("history") if stored.kind is Kind.study else None
    if not told:
        return []
    shares = stored.summary["search"].get("importance")
    title = "What mattered in the search"
    if shares is None:
        why = f"{len(told)} trials ran to their end, too few to tell"
        if stored.summary.get("front"):
            why = "the search was for two objectives"
        return [Section("importance", title, [f"Not shown: {why}."])]
    words = [
        "Share of each parameter in what makes a trial one of the best tenth (PED-ANOVA), among the points "
        "that the search chose to try: it tried more of what looked good."
    ]
    ordered = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    rows = [[name, percent(share)] for name, share in ordered]
    return [Section("importance", title, words, tables=[Table(("Parameter", "Share"), rows)])]


def _best_so_far(more_is_better: bool, told: Sequence[Tree]) -> list[float]:
    """After each trial the best value of those that meet the constraints; nan before there is one."""
    sign = 1.0 if more_is_better else -1.0
    values = [
        sign * one["value"] if one["value"] is not None and one["is_feasible"] else float("-inf")
        for one in told
    ]
    best = accumulate(values, max)
    return [float("nan") if value == float("-inf") else sign * value for value in best]


def _against(summary: Tree, one: Tree) -> Iterator[str]:
    against = one["vs_champion"]
    if against is None:
        yield from (NOTHING, NOTHING)
    elif one["arm"] == summary["verdict"]["champion"]:
        yield from (NOTHING, "best")
    else:
        yield _difference(summary, against)
        yield str(against["verdict"])


def _difference(summary: Tree, against: Tree) -> str:
    value, low, high = (_signed(summary, against[name]) for name in ("difference", "low", "high"))
    return value if against["low"] is None else f"{value} [{low}, {high}]"


def _signed(summary: Tree, value: float | None) -> str:
    if value is None:
        return NOTHING
    return ("+" if value >= 0.0 else "-") + number_words(summary, abs(value))


def _chart(stored: Stored) -> Figure:
    """A dot and its interval for every arm."""
    summary, looks = stored.summary, looks_of(stored)
    known = [one for one in summary["contenders"] if one["value"] is not None]
    names = [_marked(summary, one["arm"]) for one in known]

    def draw(panels: Sequence[Axes]) -> None:
        (axes,) = panels
        for place, one in enumerate(known):
            value = one["value"]
            if value["low"] is not None and value["high"] is not None:
                colour = looks[one["arm"]].colour
                axes.plot([value["low"], value["high"]], [place, place], color=colour, linewidth=3.0)
            axes.plot([value["value"]], [place], marker="o", color=INK, linestyle="")
        name_rows(axes, names)
        axes.set_ylim(max(len(known), 1) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.set_xlabel(f"Value ({summary['unit']})")

    title = "Value of every arm under fresh seeds, with 95 % intervals"
    return figure("verdict", title, f"{title}.", 1, draw, height_of_rows(names, DOT_IN) + AROUND_IN)


def _marked(summary: Tree, arm: str) -> str:
    return f"{arm} (recommended)" if arm == summary["verdict"]["recommended"] else arm
