"""Folders whose manifests and headers claim sizes that the files do not have, with checksums that fit.

(Those of an index are made up in ``test_fuzzed_files.py``.)
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from grls.errors import GrlsError
from grls.io.seal import seal
from grls.retrieve.registry import Opening, load_retriever
from grls.retrieve.spec import MANIFEST, read_spec, write_manifest

SIZES = (0, 3, 10**6, 2**40, 2**62, -5)
ENCODED = {
    "dense": ["embeddings.npy"],
    "sparse": ["embeddings/data.npy", "embeddings/numbers.npy", "embeddings/bounds.npy"],
    "multi-vector": ["embeddings/vectors.npy", "embeddings/bounds.npy"],
}


def refused(folder: Path) -> str:
    with pytest.raises(GrlsError) as error:
        load_retriever(folder, Opening("cpu"))
    assert str(folder) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("kind", ENCODED)
@pytest.mark.parametrize("field", ["dimension", "bytes"])
def test_sizes_of_a_manifest(every_kind: Path, tmp_path: Path, kind: str, field: str) -> None:
    folder = Path(shutil.copytree(every_kind / kind, tmp_path / kind))
    spec = read_spec(folder, checksums=True)
    place = spec["files"][ENCODED[kind][0]] if field == "bytes" else spec
    for size in SIZES:
        place[field] = size
        write_manifest(folder, spec)
        assert "make it again with `grls index`" in refused(folder)


def headers(file: Path) -> Iterator[bytes]:
    """The file with headers that claim other sizes: of each axis."""
    content, shape = file.read_bytes(), np.load(file).shape
    for size in (size for size in SIZES if size >= 0):
        for axis in range(len(shape)):
            claimed = (*shape[:axis], size, *shape[axis + 1 :])
            header = content[10:128].rstrip().replace(str(shape).encode(), str(claimed).encode())
            yield content[:10] + header.ljust(117) + b"\n" + content[128:]


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in ENCODED for name in ENCODED[kind]])
def test_sizes_of_a_header(every_kind: Path, tmp_path: Path, kind: str, name: str) -> None:
    folder = Path(shutil.copytree(every_kind / kind, tmp_path / kind))
    file, spec = folder / name, read_spec(folder)
    before = file.read_bytes()
    for content in list(headers(file)):
        assert content != before
        file.write_bytes(content)
        seal(folder / MANIFEST, spec)
        refused(folder)
