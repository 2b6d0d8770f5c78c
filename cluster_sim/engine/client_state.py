"""What changes on the side of the clients: what they have sent, and when they send more."""

from cluster_sim.engine.tables import Float, Int32, Int64


class Sent:
    """A request as its client sent it. Written by clients.py; before the first arrival as Request has it."""

    arrival_s: Float  # inf: not sent yet
    abort_s: Float  # when its client gives up; inf: never, or not known yet
    priority: Int32
    client: Int32  # into World.clients; -1: arrivals are known


class Client:
    """One that waits for an answer before it sends more, with one request under way at a time.

    Written by clients.py.
    """

    due_s: Float  # when it sends its next request, as far as that is known; inf: never
    next: Int32  # that request; -1: the next one that nobody has taken


class Source:
    """What clients take requests from, in one row. Written by clients.py, loop.py."""

    untaken: Int64  # the first request that nobody has taken
    window_end_s: Float  # of the signal window at whose start the router has looked
