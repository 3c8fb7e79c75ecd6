"""The passages of an index in the layouts of other engines: STATIC's arrays, the dictionary of SGLang's fork.

Legend: N rows of L tokens, V vocabulary, S states, E edges.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from grls.errors import ConfigError, MismatchError
from grls.index.base import ConstraintIndex
from grls.index.rows import Array, Ints


class StaticArrays(NamedTuple):
    """The arguments of STATIC's search (arXiv 2602.22647), in the order of its ``build_static_index``.

    State 0 is the end, state t + 1 the token t; further states are numbered by depth, then in order of ids.

    Attributes:
        packed_csr: ``[E + V, 2]`` 32-bit; token and next state of each edge, by state; V edges of padding.
        indptr: ``[S + 2]`` 32-bit; state s owns the edges ``indptr[s]:indptr[s + 1]``.
        layer_max_branches: L numbers; the most tokens that may follow a prefix of each length.
        start_mask: ``[V]`` whether an id begins with a token.
        dense_mask: ``[V]`` or ``[V, V]`` whether an id begins with these tokens.
        dense_states: The state after them, of the same shape, 32-bit.
    """

    packed_csr: Array
    indptr: Array
    layer_max_branches: tuple[int, ...]
    start_mask: Array
    dense_mask: Array
    dense_states: Array


def static_arrays(
    index: ConstraintIndex, vocabulary: int, dense: int = 2, exclude: Collection[int] = ()
) -> StaticArrays:
    """The ids of an index as arrays for STATIC, without their end tokens.

    Args:
        index: An index of ids of one length.
        vocabulary: The number of tokens, V. Two dense levels take 5 V V bytes.
        dense: The number of dense levels, 1 or 2.
        exclude: Numbers of passages that are left out, such as DONE, the last one of a retriever's index.

    Raises:
        ConfigError: The ids differ in length, or are not longer than ``dense``.
        MismatchError: A token is not in the vocabulary.
    """
    ids = _ids(index, exclude)
    count, length = ids.shape
    if dense not in (1, 2) or length <= dense:
        raise ConfigError(f"ids of {length} tokens have 1 or 2 dense levels, fewer than tokens; got {dense}.")
    if int(ids.max()) >= vocabulary:
        raise MismatchError(
            f"the index has the token {int(ids.max()):,}, above the vocabulary of {vocabulary:,}: give the "
            "number of tokens of the model that wrote the ids."
        )
    opens = np.ones((count, length), dtype=bool)  # whether a prefix is the first of its kind
    np.logical_or.accumulate(ids[1:] != ids[:-1], axis=1, out=opens[1:])
    node, states = ids[:, 0] + 1, vocabulary + 1
    nodes, edges, branches = node, [], [len(np.unique(ids[:, 0]))]
    for depth in range(1, length):
        new = opens[:, depth]
        below = np.zeros(count, dtype=np.int64)
        if depth < length - 1:
            below = states + np.cumsum(new) - 1
            states = int(below[-1]) + 1
        edges.append(np.stack((node[new], ids[new, depth], below[new])))
        branches.append(int(np.bincount(node[new]).max()))
        node = below
        if depth == 1 and dense == 2:
            nodes = below
    parents, tokens, children = np.concatenate(edges, axis=1)
    pairs = np.stack((tokens, children), axis=1)
    padding = np.tile([vocabulary, 0], (vocabulary, 1))
    ends = np.append(np.cumsum(np.bincount(parents, minlength=states)), len(pairs) + vocabulary)
    start_mask = np.zeros(vocabulary, dtype=bool)
    start_mask[ids[:, 0]] = True
    first = tuple(ids[:, :dense].T)
    dense_states = np.zeros((vocabulary,) * dense, dtype=np.int32)
    dense_states[first] = nodes
    return StaticArrays(
        np.concatenate((pairs, padding)).astype(np.int32),
        np.append(0, ends).astype(np.int32),
        tuple(branches),
        start_mask,
        dense_states > 0,
        dense_states,
    )


def _ids(index: ConstraintIndex, exclude: Collection[int]) -> Ints:
    """``[N, L]`` the rows in order, without end tokens."""
    index.rows.refuse_prefixes("a layout for another engine")
    rows = np.setdiff1d(np.arange(len(index.rows)), index.rows.row_of[list(exclude)])
    lengths = index.rows.lengths()[rows]
    if not len(rows) or (lengths != lengths[0]).any():
        other = index.rows.members_of(rows[lengths != lengths[:1]][:1]).tolist()
        raise ConfigError(
            f"STATIC needs ids of one length, and this index has {len(rows):,}, of which number "
            f"{other[0]} has another length than the first: exclude it, or use another engine."
            if other
            else "the index holds no id: build it from ids of one length."
        )
    columns = [index.rows.tokens_at(rows, np.full(len(rows), place)) for place in range(lengths[0] - 1)]
    return np.stack(columns, axis=1)


def beam_dictionary(index: ConstraintIndex, exclude: Collection[int] = ()) -> dict[str, Any]:
    """The passages of an index as the dictionary that SGLang's fork with beam search loads.

    Pickled, it is the file of ``--beam-search-constraint-dict`` (github.com/cswuyg/sglang). A node is
    ``{"t": whether a passage ends, "c": {token: node}}``; the fork adds the end token itself. Memory:
    hundreds of bytes a token.

    Args:
        index: An index of any passages.
        exclude: Numbers of passages that are left out, such as DONE, the last one of a retriever's index.

    Raises:
        ConfigError: The index holds only unique prefixes.
    """
    index.rows.refuse_prefixes("a layout for another engine")
    hidden = set(index.rows.row_of[list(exclude)].tolist())
    tree: dict[str, Any] = {"t": False}
    nodes, depths = 1, [0]
    for row in (row for row in range(len(index.rows)) if row not in hidden):
        node, tokens = tree, index.rows.row(row)[:-1].tolist()
        for token in tokens:
            children = node.setdefault("c", {})
            nodes += token not in children
            node = children.setdefault(token, {"t": False})
        node["t"] = True
        depths.append(len(tokens))
    return {
        "tree": tree, "num_sequences": len(depths) - 1, "num_nodes": nodes, "num_edges": nodes - 1,
        "max_depth": max(depths), "min_depth": min(depths[1:], default=0),
    }  # fmt: skip
