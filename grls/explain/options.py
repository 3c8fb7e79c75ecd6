"""What is explained of a query, and how far it is looked into."""

from __future__ import annotations

from dataclasses import dataclass

from grls.errors import ConfigError


@dataclass(frozen=True)
class CaseOptions:
    """What is explained, and how far it is looked into.

    Args:
        gold: Ids of gold passages, separated by commas; null takes those of the data set.
        evidence: Ids of the passages found so far, separated by commas, instead of the gold order's.
        hop: Explain only this hop of the gold order, from 1.
        widest: Beam width up to which wider beams are tried for a passage that the beam lost.
        exhaustive: Score every passage, for the true rank; slow on a large corpus.

    Raises:
        ConfigError: Evidence and hop are given both, or ``widest`` is below 1.
    """

    gold: str | None = None
    evidence: str | None = None
    hop: int | None = None
    widest: int = 128
    exhaustive: bool = False

    def __post_init__(self) -> None:
        if self.evidence is not None and self.hop is not None:
            raise ConfigError("give --case.evidence or --case.hop, not both.")
        if self.widest < 1:
            raise ConfigError(f"--case.widest must be at least 1, got {self.widest}.")

    @property
    def is_of_one_query(self) -> bool:
        """Whether it names passages or a hop."""
        return any(given is not None for given in (self.gold, self.evidence, self.hop))


USUAL_CASE = CaseOptions()
