"""One engine core, driven call by call: for replays of recorded runs, and for tests."""

from cluster_sim.engine import engine_core, output
from cluster_sim.engine.jit import entry
from cluster_sim.engine.kinds import Command
from cluster_sim.engine.rules import Rules
from cluster_sim.engine.state import World

ACCEPT = int(Command.accept)
ABORT = int(Command.abort)
SCHEDULE = int(Command.schedule)


@entry
def command(world: World, rules: Rules, instance: int, what: int, request: int, now_s: float) -> None:
    """Accept or abort `request`, schedule the next step, or process the oldest step's output."""
    if what == ACCEPT:
        engine_core.accept(world, rules, instance, request)
    elif what == ABORT:
        output.abort(world, rules, instance, request)
    elif what == SCHEDULE:
        engine_core.schedule_next(world, rules, instance, 1, now_s)
    else:
        engine_core.update_oldest(world, rules, instance, 1, now_s)
