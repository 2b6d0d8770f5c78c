"""What all tests share: the reading beside the repository, hypothesis without chance or clocks, and order."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of several processes one runs all that starts Ray: one runtime at a time; the files stay whole else."""
    for item in items:
        group = "ray" if item.get_closest_marker("ray") else item.path.name
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The directory ../shared; skips the test where there is none. Mark such tests `shared`."""
    if not SHARED.is_dir():
        pytest.skip("../shared, the reading beside the repository, is not here")
    return SHARED
