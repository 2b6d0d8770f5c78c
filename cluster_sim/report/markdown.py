"""The page as Markdown, for a pull request or a wiki: report.md, and its figures beside it as SVG."""

from collections.abc import Iterator
from pathlib import Path

from cluster_sim.files import write_text
from cluster_sim.report.answer import head_of
from cluster_sim.report.caveats import caveats
from cluster_sim.report.page import sections_of
from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Stored, read_results

MARKDOWN, FIGURES = "report.md", "figures"


def write_markdown(directory: Path) -> Path:
    """Write report.md and figures/*.svg of the results in `directory` beside them; the path of the first.

    Raises:
        UserError: there are no results, or it cannot be written.
    """
    stored = read_results(directory)
    sections = [section for section in sections_of(stored) if not _is_long(section)]
    for section in sections:
        for figure in section.figures:
            write_text(directory / FIGURES / f"{figure.name}.svg", figure.wide)
    write_text(directory / MARKDOWN, "\n".join(_lines(stored, sections)) + "\n")
    return directory / MARKDOWN


def _is_long(section: Section) -> bool:
    """Whether it is for the page alone: all trials, or a whole manifest."""
    return any(table.is_of_trials for table in section.tables) or bool(
        section.preformatted and not section.is_open
    )


def _lines(stored: Stored, sections: list[Section]) -> Iterator[str]:
    head = head_of(stored)
    yield from (f"# {_escaped(head.question)}", "", _escaped(head.what), "")
    for sentence in head.answer:
        yield from (f"**{_escaped(sentence)}**", "")
    found = caveats(stored)
    if found:
        yield from ("## What could make this wrong", "", *(f"- {_escaped(words)}" for words in found), "")
    for section in sections:
        yield from _section(section)


def _section(section: Section) -> Iterator[str]:
    yield from (f"## {_escaped(section.title)}", "")
    for words in section.words:
        yield from (_escaped(words), "")
    for figure in section.figures:
        yield from (f"![{_escaped(figure.alt)}]({FIGURES}/{figure.name}.svg)", "")
    for table in section.tables:
        yield from _table(table)
    if section.preformatted:
        yield from ("```", section.preformatted.rstrip("\n"), "```", "")


def _table(table: Table) -> Iterator[str]:
    if table.caption:
        yield from (_escaped(table.caption), "")
    yield _row(list(table.columns))
    yield _row(["---"] * len(table.columns))
    yield from (_row([_escaped(cell) for cell in row]) for row in table.rows)
    yield ""


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """Text as itself: what Markdown would read as markup is marked."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#" else letter for letter in text)
