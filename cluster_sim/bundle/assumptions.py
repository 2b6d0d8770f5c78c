"""bundles/assumptions.yaml: numbers that every roofline bundle rests on, each with its source."""

from dataclasses import dataclass
from functools import cache

from cluster_sim.bundle.sections import Parameter, read_parameters, read_yaml, section
from cluster_sim.paths import bundles_dir


@dataclass(frozen=True)
class Assumptions:
    """Beyond the fit of a GPU's kernels: engine, drafters (by method), memory."""

    parameters: dict[str, Parameter]
    drafters: dict[str, dict[str, Parameter]]
    memory: dict[str, Parameter]


@cache
def assumptions() -> Assumptions:
    """The shipped assumptions.

    Raises:
        UserError: the file is damaged.
    """
    file = bundles_dir() / "assumptions.yaml"
    content = read_yaml(file)
    drafters = section(content, "drafters", file)
    return Assumptions(
        parameters=read_parameters(section(content, "parameters", file), "parameters", file),
        drafters={name: read_parameters(section(drafters, name, file), name, file) for name in drafters},
        memory=read_parameters(section(content, "memory", file), "memory", file),
    )
