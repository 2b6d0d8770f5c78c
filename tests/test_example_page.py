"""The committed example of a page says what the program says today: `make example` makes it again."""

from pathlib import Path

import pytest
from paging import tables_of
from sweeping import swept

from cluster_sim.report.page import write_page

EXAMPLE = Path(__file__).resolve().parents[1] / "reports" / "example.html"
OF_THE_MACHINE = {"sources", "checklist"}  # versions and digests


@pytest.mark.slow
def test_the_numbers_of_the_committed_page_are_those_of_its_sweep_run_again(tmp_path: Path) -> None:
    assert swept(tmp_path, "+sweep=example", "workload.requests=500", "output.page=false") == 0
    again, committed = tables_of(write_page(tmp_path)), tables_of(EXAMPLE)
    assert set(committed) == set(again)
    for section in sorted(set(again) - OF_THE_MACHINE):
        assert committed[section] == again[section], f"{section} differs: run `make example`"
