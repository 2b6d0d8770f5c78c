"""The one exception that users cause: bad input, worded in one line.

`cli.py` prints it and exits with code 2; everything else that is raised is a defect of this program.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class UserError(Exception):
    """Bad input: which rule, what was found instead, where, and what to do about it.

    The text reads "RULE, but got GOT (WHERE). REMEDY". It survives pickling, so that a worker process can
    raise it.
    """

    def __init__(self, rule: str, got: object, where: str, remedy: str) -> None:
        super().__init__(rule, got, where, remedy)
        self.rule, self.got, self.where, self.remedy = rule, got, where, remedy

    def __str__(self) -> str:
        return f"{self.rule}, but got {self.got} ({self.where}). {self.remedy}"


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Add `place`, in words, to where an error of the user is."""
    try:
        yield
    except UserError as error:
        raise UserError(error.rule, error.got, f"{error.where}; {place}", error.remedy) from error
