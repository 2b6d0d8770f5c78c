"""mtp.csv: what a model's MTP module runs around its decoder layer (embedding, join, norms, copies).

The layer itself is one more like the target's last: its times are those of dense.csv and moe.csv, its
lm_head and choice those of per_sequence.csv. Passes of one token a request and over a step's tokens are the
same kernels. What launches and KV cost is not profiled: bundle/draft_tables.py.
"""

from pathlib import Path

import numpy as np

from cluster_sim.bundle.importers import layer_table
from cluster_sim.bundle.importers.csv_table import Floats, Longs, refuse
from cluster_sim.bundle.importers.curves import along
from cluster_sim.config import ModelConfig

FILE = "mtp.csv"
PREFIX = "mtp_"


def is_of_no_use(directory: Path, model: ModelConfig) -> bool:
    """Whether a profile times a module that the model has not."""
    return (directory / FILE).is_file() and model.num_nextn_predict_layers == 0


def around_layer_s(file: Path, tokens: Longs) -> Floats:
    """Seconds of a pass of `tokens` tokens without the module's decoder layer.

    Raises:
        UserError: the file is damaged, or has layers of something else.
    """
    table = layer_table.read(file, "sequences")
    others = sorted(name for name in table.time_us if not name.startswith(PREFIX))
    if others:
        refuse(file, f"layers must be those around a decoder layer, called {PREFIX}..", others[0])
    return along(table.counts, table.sum_s(dict.fromkeys(table.time_us, 1)), np.asarray(tokens))
