"""The file of --config: keys of the configuration, or the manifest of a simulation to be made again."""

from pathlib import Path
from typing import Any

import yaml

from cluster_sim.errors import UserError

WHERE_AND_HOW = ("executor", "output")  # no result depends on them: those of the old run are left out
SEARCHES = ("sweep", "study")


def read_tree(file: Path) -> dict[str, Any]:
    """The keys that `file` gives, unchecked.

    Raises:
        UserError: it cannot be read, holds no keys, or is the manifest of a sweep or a study.
    """
    try:
        tree = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(
            "--config must name a readable YAML file", reason, str(file), "Correct it."
        ) from error
    if not isinstance(tree, dict):
        raise UserError("--config must name a file of keys", type(tree).__name__, str(file), "Correct it.")
    return _of_manifest(tree["config"], file) if _is_manifest(tree) else tree


def _is_manifest(tree: dict[str, Any]) -> bool:
    return {"schema_version", "identity"} <= tree.keys() and isinstance(tree.get("config"), dict)


def _of_manifest(settings: dict[str, Any], file: Path) -> dict[str, Any]:
    for name in SEARCHES:
        if settings.get(name) is not None:
            remedy = "Give its command again with the same output.dir."
            raise UserError("a file of --config is one simulation", f"a {name}", str(file), remedy)
    return {key: value for key, value in settings.items() if key not in (*WHERE_AND_HOW, *SEARCHES)}
