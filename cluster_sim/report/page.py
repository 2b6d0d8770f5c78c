"""The page: one HTML file that opens offline, made from stored results alone.

Sections stand in the order in which a reader asks: what was found and how sure it is, what could make it
wrong, the figures, the numbers, and where they come from.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from cluster_sim.files import write_text
from cluster_sim.report import (
    anatomy_sections,
    answer,
    capacity_sections,
    caveats,
    fleet_sections,
    front_sections,
    parts_sections,
    provenance,
    run_sections,
    schedule_sections,
    study_sections,
    sweep_sections,
    trial_table,
)
from cluster_sim.report.section import Section
from cluster_sim.report.stored import Stored, read_results

PAGE = "report.html"
SECTIONS: Sequence[Callable[[Stored], Sequence[Section]]] = (  # in the order of the page
    study_sections.recommendation,
    study_sections.verdicts,
    front_sections.front,
    capacity_sections.capacities,
    sweep_sections.crossovers,
    sweep_sections.latencies,
    run_sections.latencies,
    fleet_sections.fleet,
    parts_sections.classes,
    parts_sections.kinds,
    schedule_sections.of_run,
    schedule_sections.of_sweep,
    schedule_sections.of_study,
    run_sections.acceptance,
    sweep_sections.acceptance,
    run_sections.chunks,
    sweep_sections.chunks,
    anatomy_sections.anatomy,
    run_sections.time,
    sweep_sections.time,
    run_sections.memory,
    sweep_sections.memory,
    study_sections.sensitivity,
    study_sections.history,
    study_sections.importance,
    trial_table.baseline,
    trial_table.trials,
    provenance.sources,
    provenance.checklist,
    provenance.manifest,
)


def write_page(directory: Path) -> Path:
    """Write the page of the results in `directory` beside them; its path.

    Raises:
        UserError: there are no results, or it cannot be written.
    """
    path = directory / PAGE
    write_text(path, page_of(read_results(directory)))
    return path


def page_of(stored: Stored) -> str:
    """The HTML of the page."""
    return rendered(answer.head_of(stored), caveats.caveats(stored), sections_of(stored))


def rendered(head: answer.Head, found: Sequence[str], sections: Sequence[Section]) -> str:
    """The HTML of a page of `sections`; `found` could make it wrong."""
    environment = Environment(
        loader=PackageLoader("cluster_sim.report", "assets"),
        autoescape=select_autoescape(["j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html.j2")
    return template.render(head=head, caveats=found, sections=sections)


def sections_of(stored: Stored) -> list[Section]:
    """Those that apply, in their order."""
    return [section for make in SECTIONS for section in make(stored)]
