"""What a section of the page is made of."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster_sim.report.figures import Figure


@dataclass(frozen=True)
class Table:
    """Rows of text."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    is_of_trials: bool = False  # long: sorted, filtered and downloaded in the browser


@dataclass(frozen=True)
class Section:
    """A heading, words, figures, and the numbers behind them."""

    name: str  # of its anchor
    title: str
    words: Sequence[str] = ()  # paragraphs
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()  # shown
    data: Sequence[Table] = field(default=())  # folded away beneath the figures
    preformatted: str = ""  # a file, folded away
    is_open: bool = False  # not folded
