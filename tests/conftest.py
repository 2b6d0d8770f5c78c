"""What all tests share: the reading beside the repository, and hypothesis without chance or clocks."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The directory ../shared; skips the test where there is none. Mark such tests `shared`."""
    if not SHARED.is_dir():
        pytest.skip("../shared, the reading beside the repository, is not here")
    return SHARED
