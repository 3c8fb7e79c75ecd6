"""Arrays of 64 bits, as those of an index with billions of rows: the answers are the same.

NumPy makes floating-point numbers of unsigned and signed 64-bit integers, which are no places in an array.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from fault_folders import write_indexes

from grls.index.base import Segment
from grls.index.index_check import check_index
from grls.index.storage import load_index
from grls.io.seal import seal


def answers(index: Segment) -> list[object]:
    """What may follow each prefix, how many passages there are, and all passages."""
    states, said = np.array([index.start()]), list[object]()
    while len(states):
        allowed = index.allowed(states)
        said += [allowed.tokens.tolist(), index.count(allowed.states).tolist()]
        states = allowed.states
    return [said, [list(index.tokens(n)) for n in range(len(index))], list(index.passages(index.start()))]


@pytest.mark.parametrize("kind", ["<u8", ">u4"])
def test_an_index_whose_numbers_have_more_bits_answers_the_same(tmp_path: Path, kind: str) -> None:
    for name, folder in write_indexes(tmp_path).items():
        if name.endswith("prefixes"):
            continue  # only with its corpus
        expected = answers(load_index(folder))
        for file in sorted(folder.glob("*.npy")):
            array = np.load(file)
            if array.dtype.kind != "u":
                continue
            np.save(file, array.astype(kind))
            seal(folder / "index.json", json.loads((folder / "index.json").read_text()))
            assert answers(load_index(folder)) == expected, f"{name}: {file.name}"
            assert [part.fault for part in check_index(folder) if part.fault] == []
