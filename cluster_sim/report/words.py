"""Numbers as people read them: three figures, and the unit that suits."""

from collections.abc import Mapping

from cluster_sim.config import LimitsConfig, SloConfig

NOTHING = "-"
GIB = 2**30


def seconds(value: float | None) -> str:
    """A time given in s."""
    if value is None:
        return NOTHING
    if value == 0.0:
        return "0 s"
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if round(abs(value) * scale, 3) >= 1.0:
            return f"{figures(value * scale)} {unit}"
    return f"{figures(value * 1e6)} us"


def figures(value: float | None) -> str:
    """Three figures, and no exponent; whole above 100."""
    if value is None:
        return NOTHING
    size = abs(value)
    decimals = next((digits for digits, limit in ((2, 9.995), (1, 99.95)) if size < limit), 0)
    return f"{value:,.{decimals}f}"


def percent(share: float | None) -> str:
    """A share of 1."""
    return NOTHING if share is None else f"{100 * share:.1f}%"


def cached_words(tokens: Mapping[str, int]) -> str:
    """What the prefix cache gave, behind other words; nothing where it gave nothing."""
    if not tokens["cached"]:
        return ""
    return f", {percent(tokens['cached'] / tokens['prompt'])} of the prompt tokens from the prefix cache"


def slo_limits(slo: SloConfig | LimitsConfig) -> str:
    """What a request must meet."""
    limits = (("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s), ("E2E", slo.e2el_s))
    return ", ".join(f"{name} <= {seconds(limit_s)}" for name, limit_s in limits if limit_s is not None)
