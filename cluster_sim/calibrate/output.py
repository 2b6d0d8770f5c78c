"""The files of a calibration: what to simulate with, and all that was found.

DIR/bundle/                  the scaled bundle, where times were fitted: cluster.bundle=DIR/bundle
DIR/speculation/NAME.yaml    an option of speculation: 'hydra.searchpath=[DIR]' speculation=NAME
DIR/calibration.json         sources, values, intervals, residuals, the configuration
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster_sim.bundle import format as bundle_format
from cluster_sim.calibrate.acceptance import Row
from cluster_sim.calibrate.calibration import Calibration
from cluster_sim.calibrate.points import profile_of
from cluster_sim.calibrate.timing import Fit
from cluster_sim.errors import UserError
from cluster_sim.files import worded, write_json, write_yaml
from cluster_sim.manifest import plain
from cluster_sim.statistics import Interval

BUNDLE, SPECULATION, FOUND = "bundle", "speculation", "calibration.json"
OPTION = "--output"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def check_name(name: str) -> None:
    """Refuse a name that no bundle and no option of a group can have.

    Raises:
        UserError: it is none.
    """
    if not NAME.fullmatch(name) or name.endswith(".yaml"):
        rule = "a name has small letters, digits, '.', '_' and '-', and starts with a letter or a digit"
        raise UserError(rule, repr(name), "--name", "Correct it.")


def write(found: Calibration, name: str, directory: Path) -> list[str]:
    """Write the files; the overrides that simulate with them.

    Raises:
        UserError: they cannot be written.
    """
    overrides = []
    with worded(directory, OPTION):
        directory.mkdir(parents=True, exist_ok=True)
        if found.rows:
            write_yaml(directory / SPECULATION / f"{name}.yaml", _option(found))
            overrides += [f"'hydra.searchpath=[{directory}]'", f"speculation={name}"]
        if found.bundle is not None:
            bundle_format.write_whole(found.bundle, directory / BUNDLE)
            overrides.append(f"cluster.bundle={directory / BUNDLE}")
    write_json(directory / FOUND, _as_dict(found), OPTION)
    return overrides


def _option(found: Calibration) -> dict[str, Any]:
    """All keys of the group speculation, with the profile that was found and its source."""
    keys = plain(found.config.speculation)
    profile = {
        key: value for key, value in profile_of(found.rows, _source(found)).items() if value is not None
    }
    return {**keys, "acceptance": profile}


def _source(found: Calibration) -> str:
    lengths = [
        f"{row.draft_length} drafts: "
        + ", ".join(f"{one.low:.4g} to {one.high:.4g}" for one in row.marginals)
        for row in found.rows
    ]
    return f"{found.words}; 95 % intervals of {'; '.join(lengths)}"


def _as_dict(found: Calibration) -> dict[str, Any]:
    return {
        "sources": [
            {"file": str(source.path), "sha256": source.sha256, "dates": list(source.dates)}
            for source in found.sources
        ],
        "acceptance": [_row(row) for row in found.rows],
        "timing": None if found.fit is None else _fit(found.fit),
        "notes": list(found.notes),
        "config": plain(found.config),
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "draft_length": row.draft_length,
        "drafts": row.counts.drafts,
        "draft_tokens": row.counts.draft_tokens,
        "accepted_at": list(row.counts.accepted_at),
        "marginals": _intervals(row.marginals),
        "conditionals": _intervals(row.conditionals),
        "rates": row.rates,
        "acceptance_length": dict(vars(row.acceptance_length)),
        "is_mixed": row.is_mixed,
        "held_out": [
            {"place": one.place, "measured": one.measured, "error_percent": one.error_percent}
            for one in row.held_out
        ],
    }


def _fit(done: Fit) -> dict[str, Any]:
    return {
        "values": {name: vars(one) for name, one in done.values.items()},
        "factors": done.factors,
        "metrics": list(done.metrics),
        "steps": done.steps,
        "residuals": [
            {**vars(one), "before_percent": one.before_percent, "error_percent": one.error_percent}
            for one in done.residuals
        ],
    }


def _intervals(values: Sequence[Interval]) -> list[dict[str, float]]:
    return [dict(vars(one)) for one in values]
