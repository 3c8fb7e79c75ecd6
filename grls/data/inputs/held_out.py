"""Dev queries from the training queries, where a user has none."""

from __future__ import annotations

import hashlib
import logging

from grls.data.inputs.gold import Gold
from grls.errors import DataError

log = logging.getLogger(__name__)

SHARE, MOST = 0.1, 200


def hold_out(gold: Gold, share: float = SHARE, most: int = MOST) -> tuple[Gold, Gold]:
    """Take some queries out of the training queries, for dev.

    The choice depends on the ids alone, so it is the same in every run, and in any order of the queries.

    Args:
        gold: The training queries.
        share: Share of the queries that are taken out, at least one query.
        most: Largest number of queries that are taken out.

    Returns:
        The other queries, and the dev queries.

    Raises:
        DataError: There is one query only.
    """
    if len(gold.queries) < 2:
        raise DataError(
            "there is one training query, of which no dev query can be taken out: give more queries, or dev.",
            "queries",
        )
    count = min(max(1, int(share * len(gold.queries))), most)
    order = sorted((hashlib.sha256(query.id.encode()).digest(), query.id) for query in gold.queries)
    taken = {name for _, name in order[:count]}
    log.warning(
        "there are no dev queries, so %d of the %d training queries are taken out for dev.",
        count,
        len(gold.queries),
    )
    return _only(gold, set(gold.qrels) - taken), _only(gold, taken)


def _only(gold: Gold, ids: set[str]) -> Gold:
    return Gold(
        [query for query in gold.queries if query.id in ids],
        {name: grades for name, grades in gold.qrels.items() if name in ids},
    )
