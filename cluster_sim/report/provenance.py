"""Where the numbers come from: what was measured, fitted and assumed, the checklist, the manifest."""

from collections.abc import Sequence

import yaml

from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Stored

ENGINE_RULES = "vLLM 0.33.0"


def sources(stored: Stored) -> Sequence[Section]:
    """The inputs, each with its source."""
    rows = [[name.replace("_", " "), words] for name, words in stored.manifest["sources"].items()]
    rows.append(["hardware", str(stored.config["hardware"]["source"])])
    rows.append(["model", str(stored.config["model"]["source"])])
    return [Section("sources", "Measured, fitted, assumed", tables=[Table(("Input", "source"), rows)])]


def checklist(stored: Stored) -> Sequence[Section]:
    """What a careful benchmark says of itself."""
    config, manifest = stored.config, stored.manifest
    workload, speculation = config["workload"], config["speculation"]
    arrivals = workload["trace"] or "Poisson"
    rows = [
        ["Target", config["model"]["name"]],
        ["Tokenizer", "not applicable: requests are lengths, no text is tokenized"],
        ["Drafter", f"{speculation['method']}, cost: {manifest['sources'].get('draft_cost', '-')}"],
        ["Scheduling rules", ENGINE_RULES],
        ["Arrivals", arrivals],
        ["Seeds", ", ".join(map(str, manifest["seeds"]))],
        ["Requests of a run", str(workload["requests"] or "all of the trace")],
        *([name, digest[:16]] for name, digest in manifest["digests"].items()),
        *([f"version of {name}", str(version)] for name, version in manifest["versions"].items()),
    ]
    return [Section("checklist", "To reproduce it", tables=[Table(("What", "which"), rows)])]


def manifest(stored: Stored) -> Sequence[Section]:
    """All of it, as it was written."""
    text = yaml.safe_dump(dict(stored.manifest), sort_keys=False, allow_unicode=True)
    return [Section("manifest", "Manifest", preformatted=text)]
