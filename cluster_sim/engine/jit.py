"""How rules are compiled: one decorator, one cache directory per version of the rules.

Numba keys its cache on the file that holds a function, not on the files that it calls: a cached caller would
keep the old callee. The directory is therefore named after the digest of every engine source and of the
switches that change the code, and set before numba is imported.
"""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

SWITCHES = ("NUMBA_BOUNDSCHECK", "NUMBA_DISABLE_JIT", "NUMBA_CPU_NAME", "NUMBA_OPT")


def digest() -> str:
    """Hex digest of the engine's sources; the manifest of every result carries it."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def _cache_dir() -> Path:
    switches = "".join(f"{name}={os.environ.get(name, '')};" for name in SWITCHES)
    key = hashlib.sha256((digest() + switches + sys.version).encode()).hexdigest()[:16]
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    for base in (home / "cluster_sim", Path(tempfile.gettempdir()) / f"cluster_sim-{os.getuid()}"):
        try:
            (base / key).mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(base / key, os.W_OK):
            return base / key
    raise OSError("neither the home nor the temporary directory can be written: set XDG_CACHE_HOME")


CACHE_DIR = _cache_dir()
if "numba" in sys.modules:
    sys.modules["numba"].config.CACHE_DIR = str(CACHE_DIR)
os.environ["NUMBA_CACHE_DIR"] = str(CACHE_DIR)

import numba  # noqa: E402  the cache directory must be set first
from numba.extending import register_jitable  # noqa: E402

P = ParamSpec("P")
R = TypeVar("R")
OPTIONS: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}


def rule(function: Callable[P, R]) -> Callable[P, R]:
    """A rule of the simulation, compiled into its caller; called from Python it runs as Python."""
    return _inside(function, forceinline=True)


def rare(function: Callable[P, R]) -> Callable[P, R]:
    """A rule that few steps need: compiled, but kept out of line."""
    return _inside(function, forceinline=False)


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """A rule that Python calls compiled; the code, with all rules below it, is kept on disk."""
    compiled: Callable[P, R] = numba.njit(cache=True, nogil=True, **OPTIONS)(function)
    return compiled


def _inside(function: Callable[P, R], forceinline: bool) -> Callable[P, R]:
    options = OPTIONS | {"no_cpython_wrapper": True, "forceinline": forceinline}
    inside: Callable[P, R] = register_jitable(**options)(function)
    return inside


def is_compiled_before(module: str) -> bool:
    """Whether an earlier process left the compiled entries of an engine module: no wait to announce."""
    return any(CACHE_DIR.rglob(f"{module}.*.nbc"))
