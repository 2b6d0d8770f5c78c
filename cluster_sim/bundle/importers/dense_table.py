"""dense.csv: the layers that every token passes, except attention itself and routed experts."""

from pathlib import Path

import numpy as np

from cluster_sim.bundle.architecture import moe_layers
from cluster_sim.bundle.importers import layer_table
from cluster_sim.bundle.importers.csv_table import Floats
from cluster_sim.bundle.importers.layer_table import LayerTable
from cluster_sim.config import ModelConfig

ONCE = ("embedding", "final_layernorm")
NORM = "layernorm"  # twice a layer
ATTENTION = ("qkv_proj", "rotary_emb", "o_proj")
QK_NORM = "qk_norm"  # of some models
MLP = ("gate_up_proj", "act_fn", "down_proj")


def read(file: Path, model: ModelConfig) -> LayerTable:
    """The table of a model.

    Raises:
        UserError: the file is damaged, lacks a layer of the model or has another one.
    """
    table = layer_table.read(file, "tokens")
    mlp = MLP if moe_layers(model) < model.num_hidden_layers else ()
    table.check_layers({*ONCE, NORM, *ATTENTION, *mlp}, {QK_NORM}, f" of {model.name}")
    return table


def step_s(table: LayerTable, model: ModelConfig) -> Floats:
    """All layers of the model, seconds."""
    mlps = model.num_hidden_layers - moe_layers(model)
    layers_s = model.num_hidden_layers * _around_attention_s(table) + mlps * _mlp_s(table, mlps > 0)
    return table.sum_s(dict.fromkeys(ONCE, 1)) + layers_s


def mtp_layer_s(table: LayerTable, model: ModelConfig) -> Floats:
    """A decoder layer like the model's last one, without its experts, seconds."""
    return np.asarray(_around_attention_s(table) + _mlp_s(table, not model.num_experts))


def _around_attention_s(table: LayerTable) -> Floats:
    present = (*ATTENTION, QK_NORM) if QK_NORM in table.time_us else ATTENTION
    return table.sum_s({NORM: 2} | dict.fromkeys(present, 1))


def _mlp_s(table: LayerTable, is_there: bool) -> Floats:
    return table.sum_s(dict.fromkeys(MLP, 1) if is_there else {})
