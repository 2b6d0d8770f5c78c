"""What the tests of bundles share: the shipped configuration's model and GPU, and a bundle to damage."""

from dataclasses import replace
from pathlib import Path

from cluster_sim.bundle import format as bundle_format
from cluster_sim.bundle import roofline
from cluster_sim.bundle.architecture import Parallel
from cluster_sim.compose import compose
from cluster_sim.config import Config, CudagraphMode, EngineConfig, SpeculationConfig
from cluster_sim.engine_defaults import resolve_engine

CONFIG: Config = compose(["speculation=eagle3", "model=llama-3.1-8b", "hardware=h100"])
BUNDLE = roofline.build(CONFIG.model, CONFIG.hardware, Parallel(1))
NONE: SpeculationConfig = compose(["speculation=none"]).speculation


def engine(**changes: object) -> EngineConfig:
    """A resolved engine: 1,024 seats, 8,192 tokens, full graphs, except for `changes`."""
    return replace(resolve_engine(CONFIG.engine, CONFIG.model, CONFIG.hardware), **changes)


def eager() -> EngineConfig:
    """No CUDA graphs."""
    return engine(cudagraph_mode=CudagraphMode.NONE)


def written(directory: Path) -> Path:
    """BUNDLE, written."""
    bundle_format.write(BUNDLE, directory)
    return directory
