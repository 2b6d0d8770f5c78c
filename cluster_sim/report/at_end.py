"""The page that a run leaves at its end. What draws is loaded only then: it takes a second."""

from pathlib import Path

from cluster_sim.config import OutputConfig
from cluster_sim.report.console import say


def leave_page(output: OutputConfig, directory: Path) -> None:
    """Write the page of the complete results in `directory` if `output` wants one, and say where it is.

    Raises:
        UserError: it cannot be written.
    """
    if not output.page:
        return
    from cluster_sim.report.page import write_page  # noqa: PLC0415  after the results: see above

    say(f"page in {write_page(directory)}")
