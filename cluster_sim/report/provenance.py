"""Where the numbers come from: what was measured, fitted and assumed, the checklist, the manifest."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from cluster_sim.report.section import Section, Table
from cluster_sim.report.stored import Kind, Stored, Tree
from cluster_sim.report.words import NOTHING, percent

ENGINE_RULES = "those of vLLM 0.33.0"
GROUPS = ("model", "hardware", "cluster", "engine", "speculation", "workload", "router", "slo")


def sources(stored: Stored) -> Sequence[Section]:
    """The inputs, each with its source."""
    rows = [[name.replace("_", " "), words] for name, words in stored.manifest["sources"].items()]
    rows.append(["hardware", str(stored.config["hardware"]["source"])])
    rows.append(["model", str(stored.config["model"]["source"])])
    return [Section("sources", "Measured, fitted, assumed", tables=[Table(("Input", "Source"), rows)])]


def checklist(stored: Stored) -> Sequence[Section]:
    """What a careful benchmark says of itself."""
    config, about = stored.config, stored.manifest
    sources_of, speculation = about["sources"], config["speculation"]
    rows = [
        ("Target", config["model"]["name"]),
        ("Tokenizer", "none: requests are lengths, no text is tokenized"),
        ("Drafter", f"{speculation['method']}, its cost: {sources_of.get('draft_cost', NOTHING)}"),
        ("Scheduling rules", ENGINE_RULES),
        *_traffic(config["workload"]),
        ("Warm-up", _warm_up(config["workload"])),
        *_strata(stored),
        ("Seeds", ", ".join(map(str, about["seeds"]))),
        ("Varied", ", ".join(sorted(varied(stored))) or "nothing"),
        ("Not varied", _not_varied(stored)),
        *((f"Digest of {name}", digest) for name, digest in about["digests"].items()),
        *((f"Version of {name}", str(version)) for name, version in about["versions"].items()),
        ("Commit", _commit(about.get("git"))),
    ]
    return [Section("checklist", "To reproduce it", tables=[Table(("What", "Which"), list(map(list, rows)))])]


def manifest(stored: Stored) -> Sequence[Section]:
    """All of it, as it was written."""
    text = yaml.safe_dump(dict(stored.manifest), sort_keys=False, allow_unicode=True)
    words = ["manifest.yaml, beside this page, rebuilds the same results."]
    return [Section("manifest", "Manifest", words, preformatted=text)]


def varied(stored: Stored) -> set[str]:
    """The keys in which simulations differ: arms, axes and what is searched for."""
    asked = stored.study or stored.sweep
    keys = {*asked.get("axes", {}), *(key for changes in asked.get("arms", {}).values() for key in changes)}
    search = asked.get("search") or {}
    keys |= {search["key"]} if "key" in search else set()
    if stored.study:
        keys |= {*stored.study.get("choices", {}), "speculation.num_speculative_tokens_per_batch_size"}
    return keys


def _traffic(workload: Tree) -> Iterator[tuple[str, str]]:
    trace = workload["trace"]
    yield "Arrivals", f"the trace {trace}" if trace else str(workload.get("arrivals", "poisson"))
    if workload.get("request_rate") is not None:
        yield "Request rate", f"{workload['request_rate']:g} requests/s, where it is not varied"
    if workload.get("max_concurrency") is not None:
        name = "Clients" if workload.get("arrivals") == "closed_loop" else "Most under way"
        yield name, f"{workload['max_concurrency']:,}, where it is not varied"
    for key, name in (("prompt_tokens", "Prompt tokens"), ("output_tokens", "Output tokens")):
        if workload[key] is not None:
            yield name, _lengths(workload[key])
    yield "Requests of a run", str(workload["requests"] or "all of the trace, or as many as the time holds")


def _lengths(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return str(value)


def _warm_up(workload: Tree) -> str:
    start, end = workload.get("warmup", 0.0), workload.get("cooldown", 0.0)
    if not start and not end:
        return "none: every request is measured, from an empty cluster on"
    return f"the first {percent(start)} and the last {percent(end)} of the time of arrivals are not measured"


def _strata(stored: Stored) -> Iterator[tuple[str, str]]:
    """How many requests each class has, in one run."""
    classes = stored.summary.get("classes") if stored.kind is Kind.run else _classes_of_first(stored)
    for name, part in (classes or {}).items():
        offered = part["requests"]["offered"]
        number = offered["value"] if isinstance(offered, Mapping) else offered
        yield f"Requests of class {name}", f"{number:,.0f}"


def _classes_of_first(stored: Stored) -> Tree:
    entries: Sequence[Tree] = next(iter(stored.summary.get("arms", {}).values()), [])
    return (entries[0].get("classes") or {}) if entries else {}


def _not_varied(stored: Stored) -> str:
    groups = {key.partition(".")[0] for key in varied(stored)}
    return ", ".join(group for group in GROUPS if group not in groups) or NOTHING


def _commit(git: Tree | None) -> str:
    if git is None:
        return "no checkout"
    return str(git["commit"]) + (", changed since" if git["changed"] else "")
