"""Tables of a layer a row: layer, a count (tokens or sequences), microseconds."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cluster_sim.bundle.importers.csv_table import COUNT, TIME_US, WORDS, Floats, Longs, read_csv, refuse


@dataclass(frozen=True)
class LayerTable:
    """Times of several layers at the same counts."""

    file: Path
    counts: Longs  # rising
    time_us: dict[str, Floats]  # by layer

    def sum_s(self, times: dict[str, int]) -> Floats:
        """Seconds of layers that run so many times each."""
        total_us = sum(
            (count * self.time_us[name] for name, count in times.items()), np.zeros(len(self.counts))
        )
        return np.asarray(1e-6 * total_us)

    def check_layers(self, needed: set[str], allowed: set[str], whose: str) -> None:
        """Refuse a table without the `needed` layers, or with others than these and `allowed`.

        Raises:
            UserError: naming the first layer.
        """
        missing, unknown = sorted(needed - set(self.time_us)), sorted(set(self.time_us) - needed - allowed)
        if missing or unknown:
            words = f"none called {missing[0]}" if missing else f"one called {unknown[0]}"
            refuse(self.file, f"layers{whose} must be {', '.join(sorted(needed))}", words)


def read(file: Path, counted: str) -> LayerTable:
    """The table in `file`, whose count is the column `counted`.

    Raises:
        UserError: the file is damaged, or layers were profiled at different or too few counts.
    """
    rows = read_csv(file, {"layer": WORDS, counted: COUNT, "time_us": TIME_US})
    rows.check_once("layer", counted)
    counts, time_us = np.unique(rows[counted]), {}
    if len(counts) < 2 or counts[0] < 1:  # noqa: PLR2004  a line has two ends
        refuse(file, f"column {counted} must hold two or more different counts >= 1", counts.tolist()[:2])
    for name in np.unique(rows["layer"]).tolist():
        of_layer = rows.where(rows["layer"] == name)
        order = np.argsort(of_layer[counted])
        if not np.array_equal(of_layer[counted][order], counts):
            missing = sorted(set(counts.tolist()) - set(of_layer[counted].tolist()))
            refuse(
                file, f"layer {name} must be profiled at the {counted} of the others", f"none at {missing[0]}"
            )
        time_us[name] = of_layer["time_us"][order]
    return LayerTable(file, counts, time_us)
