"""Several kinds of identifiers at once: a passage is written as any of them (MINDER, arXiv 2305.16675)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from grls.data.corpus import Corpus
from grls.data.identifiers import Identifier, IdentifierKind, identifier_kind, kind_for, read_kind
from grls.errors import ConfigError, Option
from grls.io.arguments import options


@options("options")
class Union(IdentifierKind):
    """All identifiers of a passage by several kinds, those that are equal once.

    Args:
        of: Folders of identifiers of the corpus, at least two.
    """

    of: list[Any]

    @cached_property
    def members(self) -> list[IdentifierKind]:
        members = []
        for number, member in enumerate(self.of):
            if isinstance(member, str | Path):
                members.append(read_kind(member))
            else:
                members.append(identifier_kind(member["kind"], member["options"]))
                own = {name.partition(".")[::2]: value for name, value in self.state.items()}
                members[-1].state.update(
                    {name: value for (n, name), value in own.items() if n == str(number)}
                )
        return members

    @property
    def vocabulary(self) -> list[str]:
        return [name for member in self.members for name in member.vocabulary]

    @property
    def record(self) -> dict[str, Any]:
        return {"kind": "union", "options": {"of": [member.record for member in self.members]}}

    def learn(self, corpus: Corpus) -> None:
        if len(self.of) < 2 or not all(isinstance(folder, str | Path) for folder in self.of):
            raise ConfigError(f"{Option('options.of')} takes at least two folders of identifiers.")
        for folder in self.of:
            kind_for(folder, corpus)
        if len({*self.vocabulary}) < len(self.vocabulary):
            raise ConfigError(
                f"several of {Option('options.of')} are codes, of tokens with equal names: take one of them."
            )
        self._joined()

    def knowing(self, corpus: Corpus) -> Self:
        known = copy(self)
        known.__dict__.update(members=[member.knowing(corpus) for member in self.members], state={})
        known._joined()
        return known

    def _joined(self) -> None:
        for number, member in enumerate(self.members):
            self.state.update({f"{number}.{name}": value for name, value in member.state.items()})

    def identify(self, corpus: Corpus) -> Iterator[Sequence[Identifier]]:
        for lists in zip(*(member.identify(corpus) for member in self.members), strict=True):
            yield [*dict.fromkeys(one for identifiers in lists for one in identifiers)]
