"""What commands refuse: the line, and what its error says. Nothing is written."""

import shutil
from pathlib import Path

import pytest
from composite_specs import write_spec
from failing import fails
from fixture_types import Capsys, Patch
from small_data import passages

from grls.data.corpus import Corpus
from grls.models.biencoder import BiEncoderModel
from grls.retrieve.dense import DenseRetriever

REFUSED = (
    ("retrieve dense --hops.pool=true", "pool is of other hops: choose --hops.steps fixed"),
    ("retrieve dense --hops.sets=true --hops.steps=fixed", "hops.sets needs a generator"),
    ("retrieve dense --search.compile=true", "no step to compile"),
    ("retrieve dense --analyzer.stem=true", "--analyzer is for bm25"),
    ("retrieve dense --hops.choose=expected-f1", "choose --hops.steps dynamic"),
    ("retrieve dense --hops.choose=expected-f1 --hops.steps=dynamic", "needs log-probabilities of chains"),
    ("retrieve dense --hops.steps=dynamic --hops.done_bias=.nan", "done_bias must be a finite number"),
    ("retrieve bm25 --search.compile=true", "bm25 takes neither"),
    ("retrieve bm25 --hops.steps=dynamic", "bm25 never writes DONE"),
    ("retrieve bm25 --hops.steps=fixed --hops.pool=true --k=0", "k must be at least 1"),
    ("retrieve bm25 --output=file/o", "the folder cannot be written"),
    ("retrieve bm25 --split=none", "none.tsv: the split holds no query: add judgements, or choose another"),
    ("retrieve bm25 --split=validation", "no such file; there are dev, none, test, train; "),
    ("retrieve bm25 --limit=0", "limit must be at least 1, got 0"),
    ("retrieve bm25 --limit=2 --split=null", "name one with --split"),
    ("index dense --corpus=data --output=file/o", "the folder cannot be written"),
    ("index sentence --corpus=data --limits.passage=9", "no --limits.passage; set --limits.input"),
    ("index sentence --corpus=data --kind=generative", "sequence-to-sequence"),
    ("index bm25 --corpus=data --bm25.b=2", "b must be between 0 and 1, got 2.0"),
    ('index hybrid generative --priors=[{"retriever":"other"}]', "make both from the same corpus.jsonl"),
    ('index hybrid generative --priors=[{"weigth":1}]', "weigth"),
    ("index hybrid generative --priors bm25 dense --weights 1", "1 weight, and 2 priors are named"),
    ('index hybrid dense --priors=[{"retriever":"dense"}]', "priors look ahead for a generator"),
    ("index fusion generative other", "retrieve from one corpus"),
    ("index rescored dense --model=dense", "Give a folder, or the hub name, of a CrossEncoder"),
    ("index rescored dense --model=encoder --weight=.inf", "must be a finite number"),
    ("index hops generative", "choose --hops.steps fixed or dynamic"),
    ("index hops bm25 --hops.steps=fixed", "make one with `grls index bm25`"),
    ("tune generative", "has nothing to tune: priors (kind hybrid)"),
    ("tune ahead --grid.prior_weights=[0]", "grid.prior_weights[0] must be above 0"),
    ("tune ahead --grid.prior_weights=[.nan]", "grid.prior_weights[0] must be a finite number"),
    ("tune ahead --split=none", "none.tsv: the split holds no query"),
    (f"tune three --grid.prior_weights={[*range(1, 40)]}".replace(", ", ","), "settings of the priors are"),
    ("search bm25 otters", "bm25 needs --data"),
    ("search dense otters --data=data", "leave it out"),
    ("search dense otters --k=0", "k must be"),
    ("search nowhere otters", "nowhere"),
    ("answer direct --retriever bm25 --run x.jsonl", "give --retriever or --run, not both"),
    ("answer direct --run x.jsonl --hops.steps fixed", "a --run has retrieved"),
    ("answer direct --hops.steps fixed", "give --retriever FOLDER or bm25"),
    ("answer direct --retriever bm25 --hops.steps dynamic", "bm25 never writes DONE"),
    ("answer direct --retriever bm25 --k 0", "--k must be at least 1, got 0"),
    ("answer direct --retriever bm25 --reader.max_new_tokens 1024", "has room for 0 beside 1024 new ones"),
    ("answer direct --retriever bm25 --reader.chat true", "no chat template"),
    ("answer direct --run ./nowhere.jsonl", "no such file"),
    ("answer dsp vanilla --retriever=bm25", "retrieves nothing"),
    ("answer dsp multihop", "give --retriever FOLDER, or bm25"),
)  # fmt: skip
GIVEN = {
    "retrieve": "--data=data --device=cpu --output=new", "tune": "--data=data --device=cpu",
    "index": "--output=new", "search": "",
    "answer": "--data=quotes/data --model=quotes/model --device=cpu --output=new",
}  # fmt: skip


@pytest.fixture(scope="module")
def place(kinds: Path, quotes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refused")
    for name in ("dense", "generative", "encoder"):
        (folder / name).symlink_to(kinds / name)
    (folder / "quotes").symlink_to(quotes)
    (folder / "file").write_text("")
    shutil.copytree(kinds / "data", folder / "data")
    (folder / "data" / "qrels" / "none.tsv").write_text("query-id\tcorpus-id\tscore\n")
    encoder = BiEncoderModel.load(str(kinds / "bert"), device="cpu")
    encoder.save(folder / "sentence")
    DenseRetriever.assemble(encoder, Corpus.from_passages(passages()[1:])).save_pretrained(folder / "other")
    for name, priors in (("ahead", 1), ("three", 3)):
        write_spec(
            folder / name,
            "hybrid",
            {"generator": "../generative", "priors": [{"retriever": "bm25"}] * priors},
        )
    return folder


@pytest.mark.parametrize(("line", "says"), REFUSED, ids=[line for line, _ in REFUSED])
def test_it_is_refused(line: str, says: str, place: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.chdir(place)
    words = line.split()
    given = [one for one in GIVEN[words[0]].split() if f"{one.partition('=')[0]}=" not in line]
    if words[:2] == ["answer", "dsp"]:
        pytest.importorskip("dspy", reason="the extra dsp is not installed")
    before = {file: file.read_bytes() for file in place.glob("*/*.json")}
    assert says in fails(capsys, *words, *given)
    assert {file: file.read_bytes() for file in place.glob("*/*.json")} == before
    assert not [*place.glob("new*")]
