"""The space of a study: a draft length for each bucket of batch sizes, where buckets end, and other choices.

A candidate is a point of it; Optuna sees it as named parameters. Draft lengths that may not rise with the
batch size are told by how far each is reached: parameter `buckets with K >= k` counts the first buckets that
draft at least k, sorted so that more drafts never reach further; any values of the parameters then are a
schedule. Neighbours of a candidate differ from it in one small way; they are what a local search tries.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

Range = tuple[int, int, int]  # first, last, K
Parameters = Mapping[str, int]


@dataclass(frozen=True)
class Candidate:
    """A draft length for each bucket; bucket i ends with batch size lasts[i], the last with max_num_seqs."""

    lengths: tuple[int, ...]
    lasts: tuple[int, ...]  # one less
    chosen: tuple[int, ...] = ()  # place in the list of each choice

    def ranges(self, max_num_seqs: int) -> tuple[Range, ...]:
        """Its schedule with the fewest ranges, up to `max_num_seqs` requests; none if it drafts nothing."""
        found: list[Range] = []
        first = 1
        for last, length in zip((*self.lasts, max_num_seqs), self.lengths, strict=True):
            end = min(last, max_num_seqs)
            if end < first:
                continue
            if found and found[-1][2] == length:
                found[-1] = (found[-1][0], end, length)
            else:
                found.append((first, end, length))
            first = end + 1
        return tuple(found) if any(length for _, _, length in found) else ()


@dataclass(frozen=True)
class Space:
    """All candidates."""

    lasts: tuple[int, ...]
    longest: int  # K
    most: int  # batch size at which an edge may lie
    is_monotone: bool
    searches_edges: bool
    choices: tuple[int, ...] = ()  # values of each

    @property
    def bounds(self) -> dict[str, tuple[int, int]]:
        """Parameter -> its least and its greatest value."""
        buckets = len(self.lasts) + 1
        if self.is_monotone:
            lengths = {_reach(length): (0, buckets) for length in range(1, self.longest + 1)}
        else:
            lengths = {_length(bucket): (0, self.longest) for bucket in range(buckets)}
        edges = {_edge(edge): (1, self.most) for edge in range(len(self.lasts)) if self.searches_edges}
        return lengths | edges | {_choice(place): (0, count - 1) for place, count in enumerate(self.choices)}

    def candidate(self, parameters: Parameters) -> Candidate:
        """The point with these values of `bounds`."""
        buckets = range(len(self.lasts) + 1)
        if self.is_monotone:
            reach = [parameters[_reach(length)] for length in range(1, self.longest + 1)]
            lengths = tuple(sum(bucket < last for last in reach) for bucket in buckets)
        else:
            lengths = tuple(parameters[_length(bucket)] for bucket in buckets)
        lasts = self.lasts
        if self.searches_edges:
            lasts = tuple(sorted(parameters[_edge(edge)] for edge in range(len(self.lasts))))
        return Candidate(
            lengths, lasts, tuple(parameters[_choice(place)] for place in range(len(self.choices)))
        )

    def parameters(self, candidate: Candidate) -> dict[str, int]:
        """The values of `bounds` that mean `candidate`."""
        if self.is_monotone:
            found = {
                _reach(length): sum(drafts >= length for drafts in candidate.lengths)
                for length in range(1, self.longest + 1)
            }
        else:
            found = {_length(bucket): drafts for bucket, drafts in enumerate(candidate.lengths)}
        if self.searches_edges:
            found |= {_edge(edge): last for edge, last in enumerate(candidate.lasts)}
        return found | {_choice(place): value for place, value in enumerate(candidate.chosen)}

    def static(self, length: int, chosen: tuple[int, ...]) -> Candidate:
        """The same draft length in every bucket; 0: no speculation at all."""
        return Candidate((length,) * (len(self.lasts) + 1), self.lasts, chosen)

    def nearest(self, ranges: Sequence[Range], chosen: tuple[int, ...]) -> Candidate:
        """The schedule `ranges` in buckets: in each, the draft length of its middle (on a log scale)."""
        firsts = (1, *(last + 1 for last in self.lasts))
        middles = (
            math.isqrt(first * last) for first, last in zip(firsts, (*self.lasts, self.most), strict=True)
        )
        lengths = [min(_length_at(ranges, middle), self.longest) for middle in middles]
        if self.is_monotone:
            lengths = [min(lengths[: place + 1]) for place in range(len(lengths))]
        return Candidate(tuple(lengths), self.lasts, chosen)

    def neighbours(self, candidate: Candidate) -> Iterator[Candidate]:
        """Candidates one small step away, in a fixed order: draft lengths, edges, choices."""
        for first, last in _runs(candidate.lengths):
            for step in (1, -1):
                lengths = [
                    drafts + step * (first <= bucket <= last)
                    for bucket, drafts in enumerate(candidate.lengths)
                ]
                if self._allows(lengths):
                    yield replace(candidate, lengths=tuple(lengths))
        if self.searches_edges:
            yield from self._moved_edges(candidate)
        for place, count in enumerate(self.choices):
            for value in range(count):
                if value != candidate.chosen[place]:
                    chosen = (*candidate.chosen[:place], value, *candidate.chosen[place + 1 :])
                    yield replace(candidate, chosen=chosen)

    def _allows(self, lengths: Sequence[int]) -> bool:
        in_bounds = all(0 <= length <= self.longest for length in lengths)
        return in_bounds and not (
            self.is_monotone and any(after > before for before, after in pairwise(lengths))
        )

    def _moved_edges(self, candidate: Candidate) -> Iterator[Candidate]:
        """Each edge halfway to the one before it and the one behind it, on a log scale."""
        around = (1, *candidate.lasts, self.most)
        for place, last in enumerate(candidate.lasts):
            for other in (around[place], around[place + 2]):
                moved = round(math.sqrt(last * other))
                if moved != last:
                    lasts = sorted((*candidate.lasts[:place], moved, *candidate.lasts[place + 1 :]))
                    yield replace(candidate, lasts=tuple(lasts))


def _runs(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """What moves together: single buckets, and those that stand together with one draft length."""
    for bucket in range(len(lengths)):
        yield bucket, bucket
    first = 0
    for bucket in range(1, len(lengths) + 1):
        if bucket == len(lengths) or lengths[bucket] != lengths[first]:
            if bucket - first > 1:
                yield first, bucket - 1
            first = bucket


def _length_at(ranges: Sequence[Range], size: int) -> int:
    """K at a batch size; behind the last range it is carried forward, as in vLLM."""
    return [length for first, _, length in ranges if first <= size][-1]


def _reach(length: int) -> str:
    return f"buckets with K >= {length}"


def _length(bucket: int) -> str:
    return f"K of bucket {bucket + 1}"


def _edge(edge: int) -> str:
    return f"last of bucket {edge + 1}"


def _choice(place: int) -> str:
    return f"choice {place + 1}"
