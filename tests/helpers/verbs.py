"""The commands of ``grls``."""

from collections.abc import Mapping

from grls.cli import VERBS, Verb


def commands(verbs: Mapping[str, Verb] = VERBS, before: str = "") -> dict[str, Verb]:
    """All that have a function, as they are called."""
    found: dict[str, Verb] = {}
    for name, verb in verbs.items():
        found |= {f"{before}{name}": verb} if verb.target else {}
        found |= commands(verb.names, f"{before}{name} ")
    return found
