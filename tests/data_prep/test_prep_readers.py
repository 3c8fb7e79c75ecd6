"""Readers of public releases, on small files of their forms, of our own making; data sets of the hub."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from prep_helpers import fails, load, real, write_lines

from data_prep import dpr, hotpotqa_full, judged, multihop_rag, nq320k, pooled, ruletaker_release
from grls.cli import main
from grls.data.corpus import Corpus
from grls.data.dataset import read_qrels, turns_of
from grls.evaluation.graph import graph_errors
from grls.evaluation.ruletaker import problem_of

MILL = ("Mill Lane", ["Mill Lane is a film.", " Ada Reed directed it."])
ADA = ("Ada Reed", ["Ada Reed is from York."])
YORK = ("York", ["York is a city."])


def write(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = value if isinstance(value, str) else json.dumps(value)
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())


def passages(folder: Path) -> list[tuple[str, str, str]]:
    return [tuple(passage) for passage in Corpus.read(folder)]


def asked(name: str, text: str, titles=("Mill Lane", "Ada Reed"), **changes: Any) -> dict[str, Any]:
    """A question in HotpotQA's form."""
    record = {"_id": name, "question": text, "answer": "York", "type": "bridge", "level": "hard"}
    facts = [[title, 0] for title in titles]
    return {**record, "supporting_facts": facts, "context": [list(p) for p in (ADA, YORK, MILL)], **changes}


def steps(name: str, text: str, *support: int, **changes: Any) -> dict[str, Any]:
    """A question in MuSiQue's form."""
    listed = [
        {"idx": n, "title": title, "paragraph_text": "".join(sentences), "is_supporting": n in support}
        for n, (title, sentences) in enumerate((ADA, YORK, MILL))
    ]
    parts = [{"id": n, "question": "…", "answer": "…", "paragraph_support_idx": n} for n in support]
    record = {"id": name, "question": text, "answer": "York", "answer_aliases": ["city of York", "York"]}
    return {**record, "paragraphs": listed, "question_decomposition": parts, "answerable": True, **changes}


def test_musique(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    train = [steps(f"2hop__{n}", f"question {n}", 2, 0) for n in range(10)]
    write_lines(raw / "musique_ans_v1.0_train.jsonl", train)
    write_lines(raw / "musique_ans_v1.0_dev.jsonl", [steps("3hop1__1_2_3", "where ?", 2, 0, 1)])
    assert main(["prepare", "musique", f"--raw={raw}", f"--out={out}", "--dev_share=0.2"]) == 0
    assert "train: 10 here, 19,938 are published" in capsys.readouterr().out
    assert passages(out) == [
        ("p000000", "Ada Reed is from York.", "Ada Reed"), ("p000001", "York is a city.", "York"),
        ("p000002", "Mill Lane is a film. Ada Reed directed it.", "Mill Lane"),
    ]  # fmt: skip
    _, splits = load(out)
    assert {name: len(queries) for name, queries in splits.items()} == {"train": 8, "dev": 2, "test": 1}
    (query,) = splits["test"]
    assert query.evidence == ("p000002", "p000000", "p000001")
    assert (query.answers, json.loads(query.metadata)["type"]) == (("York", "city of York"), "3hop1")

    full = [*train, steps("2hop__x", "no answer ?", answerable=False, question_decomposition=[{"id": 1}])]
    write_lines(raw / "musique_full_v1.0_train.jsonl", full)
    pooled.musique(raw, tmp_path / "full", full=True, sample=11)
    assert "1 question that cannot be answered" in capsys.readouterr().out


def test_hotpotqa_distractor_has_one_paragraph_a_title(tmp_path: Path, capsys) -> None:
    file = tmp_path / "raw" / "hotpot_dev_distractor_v1.json"
    other = asked("c", "older ?", ("York", "Ada Reed"), type="comparison", answer="yes")
    other["context"][0] = ["Ada Reed", ["Another text."]]
    write(file, [asked("b", "where is its director from ?"), other])
    pooled.hotpotqa_distractor(file.parent, tmp_path / "out")
    names = {title: name for name, _, title in passages(tmp_path / "out")}
    bridge, compared = load(tmp_path / "out")[1]["test"]
    assert bridge.evidence == (names["Mill Lane"], names["Ada Reed"])
    assert json.loads(compared.metadata)["any_order"] is True
    assert (compared.answers, len(names)) == ((), 3)
    assert "passages: 3 here, 66,581 are published" in capsys.readouterr().out


def test_hipporag_keeps_the_corpus_and_finds_gold_by_its_text(tmp_path: Path, capsys) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    corpus = [{"title": title, "text": "".join(s)} for title, s in (YORK, MILL, ADA)]
    for name, record in {
        "musique": steps("2hop__1_2", "where ?", 2, 0),
        "2wikimultihopqa": asked("w", "where ?", type="compositional"),
        "hotpotqa": asked("h", "where is its director from ?"),
    }.items():
        write(raw / f"{name}_corpus.json", corpus)
        write(raw / f"{name}.json", [record])
        pooled.hipporag(raw, out, name)
        assert [(i, title) for i, _, title in passages(out)] == [
            ("d0", "York"), ("d1", "Mill Lane"), ("d2", "Ada Reed"),
        ]  # fmt: skip
        assert [query.evidence for query in load(out)[1]["test"]] == [("d1", "d2")]
    assert "passages: 3 here, 9,811 are published" in capsys.readouterr().out
    write(raw / "hotpotqa_corpus.json", corpus[:2])
    text = fails(pooled.hipporag, capsys, "--raw", raw, "--out", tmp_path / "new", "--questions", "hotpotqa")
    assert "hotpotqa_corpus.json: the gold passages of 1 query are not there: 'Ada Reed' of query 'h'" in text
    layout = real("twowiki1000")
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        ours, theirs = ((folder / name).read_text().splitlines()[0] for folder in (out, layout))
        assert (
            ours == theirs if name.endswith("tsv") else json.loads(ours).keys() >= json.loads(theirs).keys()
        )


def test_hover(tmp_path: Path, capsys) -> None:
    raw = tmp_path / "raw"
    claim = {"uid": "u", "claim": "Mill Lane's director is from York.", "label": "SUPPORTED", "num_hops": 3}
    claim["supporting_facts"] = [["Mill Lane", 0], ["Ada Reed", 0], ["York", 0], ["York", 1]]
    trained = [{**claim, "uid": f"t{n}", "claim": f"claim {n}"} for n in range(10)]
    write(raw / "hover_train_release_v1.1.json", trained)
    write(raw / "hover_dev_release_v1.1.json", [claim])
    abstracts = [{"id": str(n), "title": p[0], "text": p[1]} for n, p in enumerate((MILL, ADA, YORK))]
    write_lines(raw / hotpotqa_full.ABSTRACTS / "AA" / "wiki_00", abstracts)
    hotpotqa_full.prepare(raw, tmp_path / "out", questions="hover")
    (query,) = load(tmp_path / "out")[1]["test"]
    assert query.evidence == ("0", "1", "2")
    assert json.loads(query.metadata) == {"type": "3 hops", "any_order": True, "label": "SUPPORTED"}
    assert "train: 10 here, 18,171 are published" in capsys.readouterr().out


def test_open_squad_finds_the_passage_of_a_test_question(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    write(
        raw / "psgs_w100.tsv", "id\ttext\ttitle\n1\tthe otter eats fish of the river\tThe Otter\n2\tx y\tB\n"
    )
    for split in ("train", "dev"):
        record = {"question": f"{split} ?", "answers": ["x"], "positive_ctxs": [{"psg_id": "2"}]}
        write(raw / f"biencoder-squad1-{split}.json", [record])
    held = {"question": "what does it eat ?", "answers": [{"text": "fish"}, {"text": "fish"}]}
    paragraph = {"context": "The otter eats fish. It lives by the river.", "qas": [held]}
    write(raw / "dev-v1.1.json", {"data": [{"title": "The_Otter", "paragraphs": [paragraph]}]})
    dpr.prepare(raw, tmp_path / "out", questions="squad1")
    (query,) = load(tmp_path / "out")[1]["test"]
    assert (query.id, query.evidence, query.answers) == ("squad1-test-1", ("1",), ("fish",))


def test_multihop_rag_keeps_what_is_known_of_an_article(tmp_path: Path, capsys) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    known = {"author": None, "source": "The Verge", "published_at": "2023-10-01", "category": "tech"}
    articles = [{**known, "title": t, "url": f"https://{t}", "body": f"{t} is\n\nnews"} for t in "ab"]
    write(raw / "corpus.json", articles)
    facts = {"b is": "b", "a is": "a", "b was": "b"}
    evidence = [{"url": f"https://{article}", "fact": fact} for fact, article in facts.items()]
    first = {"query": "who ?", "answer": "Yes", "question_type": "comparison_query"}
    questions = [{**first, "evidence_list": evidence}, {**first, "query": "why ?", "evidence_list": []}]
    write(raw / "MultiHopRAG.json", questions)
    multihop_rag.prepare(raw, out)
    printed = capsys.readouterr().out
    assert "1 question without evidence" in printed
    assert "questions: 2 here, 2,556 are published" in printed
    assert passages(out)[0] == ("d0", "a is news", "a")
    assert next(Corpus.read(out).metadata())["source"] == "The Verge"
    (query,) = load(out)[1]["test"]
    assert (query.evidence, query.answers) == (("d1", "d0"), ())
    assert json.loads(query.metadata)["facts"] == [*facts], "two of one article"


def test_msmarco_keeps_grades_and_refuses_those_below_zero(tmp_path: Path, capsys) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    write(raw / "collection.tsv", "0\tan otter  swims\n1\ta lynx hunts\n2\t\n")
    write(raw / "queries.dev.small.tsv", "7\twho swims\n8\twho sleeps\n")
    write(raw / "qrels.dev.small.tsv", "7\t0\t0\t1\n")
    write(raw / "msmarco-test2019-queries.tsv.gz", "9\twho hunts\n")
    write(raw / "2019qrels-pass.txt", "9 Q0 1 3\n9 Q0 0 0\n")
    judged.msmarco(raw, out)
    assert passages(out) == [("0", "an otter swims", ""), ("1", "a lynx hunts", ""), ("2", "", "")]
    assert read_qrels(out / "qrels" / "dl19.tsv") == {"9": {"1": 3, "0": 0}}
    assert read_qrels(out / "qrels" / "dev.tsv") == {"7": {"0": 1}}
    printed = capsys.readouterr().out
    assert "1 query that nobody has judged" in printed
    assert "dl19 queries: 1 here, 43 are published" in printed
    for line, complaint in {
        "9 Q0 1 -1": "2019qrels-pass.txt, line 2: the grade -1 is below 0",
        "9 Q0 1": "2019qrels-pass.txt, line 2: expected query id, 0, passage id and a whole grade",
        "9 Q0 5 1": "collection.tsv: the gold passages of 1 query are not there: '5' of query '9'",
    }.items():
        write(raw / "2019qrels-pass.txt", f"9 Q0 1 3\n{line}\n")
        assert complaint in fails(judged.msmarco, capsys, "--raw", raw, "--out", tmp_path / "new")


def test_browsecomp_plus(tmp_path: Path, capsys) -> None:
    raw = tmp_path / "raw"
    write_lines(
        raw / "browsecomp_plus_decrypted.jsonl", [{"query_id": "1", "query": "who ?", "answer": "Ada"}]
    )
    write(raw / "qrel_evidence.txt", "1 Q0 33 1\n")
    table = pa.table({"docid": ["33", "34"], "text": ["Ada\nReed", "else"], "url": ["u", "v"]})
    (raw / "data").mkdir()
    pyarrow.parquet.write_table(table, raw / "data" / "train-00000.parquet")
    judged.browsecomp_plus(raw, tmp_path / "out")
    assert passages(tmp_path / "out")[0] == ("33", "Ada Reed", "")
    (query,) = load(tmp_path / "out")[1]["test"]
    assert (query.answers, read_qrels(tmp_path / "out" / "qrels" / "test.tsv")) == (
        ("Ada",),
        {"1": {"33": 1}},
    )


def test_qrecc_tells_questions_apart_by_their_conversations(tmp_path: Path, capsys) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    turn = {
        "Conversation_no": 1,
        "Turn_no": 2,
        "Context": ["who is Ada ?", "a director"],
        "Question": "why ?",
    }
    turn |= {"Truth_rewrite": "why is Ada a director ?", "Truth_answer": "", "Truth_passages": ["a_p0"]}
    lost = {**turn, "Turn_no": 3, "Truth_passages": []}
    write(raw / "scai-qrecc21-training-turns.json", [{**turn, "Context": ["who is Bo ?", "a film"]}, lost])
    write(raw / "scai-qrecc21-test-turns.json", [turn])
    write_lines(raw / "wayback" / "x.jsonl", [{"id": "a_p0", "contents": "Ada directs"}])
    judged.qrecc(raw, out)
    _, splits = load_conversations(out)
    assert splits == {"train": ["train-1-2"], "test": ["test-1-2"]}
    text = fails(judged.qrecc, capsys, "--raw", raw, "--out", tmp_path / "new", "--text", "rewrite")
    assert "1 query text stands in two splits, such as 'why is ada a director ?'" in text


def load_conversations(folder: Path) -> tuple[Corpus, dict[str, list[str]]]:
    from grls.data.dataset import read_split

    corpus, splits = Corpus.read(folder), {}
    for split in ("train", "test"):
        queries, _ = read_split(folder, split, corpus)
        assert all(len(turns_of(query)) == 1 for query in queries)
        splits[split] = [query.id for query in queries]
    return corpus, splits


def test_nq320k_has_each_title_once(tmp_path: Path, capsys) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    text = "<H1> The Otter </H1> <P> An otter eats fish . </P> <Ul> <Li> a < b </Li> </Ul>"
    short = [{"short_answers": [{"start_token": 7, "end_token": 9}]}]
    first = {
        "question_text": "what does it eat",
        "example_id": 5,
        "document_text": text,
        "annotations": short,
    }
    records = [{**first, "example_id": n, "question_text": f"question {n}"} for n in range(9)]
    lines = "".join(json.dumps(record) + "\n" for record in [first | {"example_id": 99}, *records])
    write(raw / "v1.0-simplified_simplified-nq-train.jsonl.gz", lines)
    original = {k: v for k, v in first.items() if k != "document_text"}
    tokens = [{"token": token, "html_token": token[0] == "<"} for token in text.split()]
    original |= {"document_tokens": tokens, "document_title": "The Ötter", "question_text": "what is it"}
    write_lines(raw / "nq-dev-all.jsonl", [original | {"example_id": 100}])
    nq320k.prepare(raw, out, words=4)
    assert passages(out) == [("p000000", "An otter eats fish", "The Otter")]
    (query,) = load(out)[1]["test"]
    assert (query.id, query.evidence, query.answers) == ("100", ("p000000",), ("eats fish",))
    assert "passages: 1 here, 109,739 are published" in capsys.readouterr().out


TRIPLES = {
    "triple1": {"text": "The cow is big.", "representation": '("cow" "is" "big" "+")'},
    "triple2": {"text": "The cow is not red.", "representation": '("cow" "is" "red" "-")'},
}
CHASES = '("something" "chases" "dog" "+")'
RULES = {
    "rule1": {"text": "Big things chase the dog.",
              "representation": f'((("something" "is" "big" "+")) -> {CHASES})'},
    "rule2": {"text": "If something is big and it chases the dog then it is old.",
              "representation": f'((("something" "is" "big" "+") {CHASES}) -> ("something" "is" "old" "+"))'},
}  # fmt: skip


def test_ruletaker_release_gives_proofs_that_pass_the_graph_checks(tmp_path: Path, capsys) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    once, twice = "((triple1) -> rule1)", "((triple1 ((triple1) -> rule1)) -> rule2)"

    def question(text: str, form: str, strategy: str, proofs: str) -> dict[str, Any]:
        return {
            "question": text,
            "representation": form,
            "strategy": strategy,
            "proofs": proofs,
            "answer": True,
        }

    questions = [
        question("The cow chases the dog.", '("cow" "chases" "dog" "+")', "proof", f"[({once})]"),
        question("The cow is not old.", '("cow" "is" "old" "-")', "inv-proof", f"[({twice} OR (triple1))]"),
        question("The cow is old.", '("cow" "is" "old" "+")', "proof", "[(((triple1 NAF) -> rule2))]"),
        question("The cow is red.", '("cow" "is" "red" "+")', "rconc", "[@1: [CWA. (rule1 <- FAIL)]]"),
        question("The cow is big.", '("cow" "is" "big" "+")', "proof", "[(((triple1 triple2) -> rule2))]"),
    ]
    theory = {"id": "a", "triples": TRIPLES, "rules": RULES}
    asked_of = {f"Q{n}": q for n, q in enumerate(questions, 1)}
    for split, chosen in {
        "train": asked_of,
        "dev": {"Q1": questions[0]},
        "test": {"Q1": questions[0]},
    }.items():
        write_lines(raw / f"meta-{split}.jsonl", [{**theory, "questions": chosen}])
    ruletaker_release.prepare(raw, out, ratios=(0.5, 0, 0.5))
    texts, splits = load(out)
    assert set(texts.values()) == {
        "the cow is big .", "the cow is not red .", "if something is big then it chases the dog .",
        "if something is big and it chases the dog then it is old .",
    }  # fmt: skip
    chains = {q.text: [texts[i] for i in q.evidence] for queries in splits.values() for q in queries}
    assert chains.keys() == {"the cow chases the dog .", "the cow is not old ."}
    assert chains["the cow is not old ."].count("the cow is big .") == 2
    for query in (query for queries in splits.values() for query in queries):
        problem = problem_of(json.loads(query.metadata), texts)
        assert problem is not None
        assert graph_errors(problem, [texts[i] for i in query.evidence]).success
    printed = capsys.readouterr().out
    for line in (
        "1 proofs with NAF or FAIL",
        "1 proofs without 2 to 10",
        "1 proofs with a statement outside",
    ):
        assert line in printed
    assert "queries: 2 here, 1,621 are published" in printed
    write_lines(
        raw / "meta-dev.jsonl", [{**theory, "questions": {"Q1": {**questions[0], "proofs": "[(triple9)]"}}}]
    )
    text = fails(ruletaker_release.prepare, capsys, "--raw", raw, "--out", tmp_path / "new")
    assert "meta-dev.jsonl, line 1: the proof names 'triple9', which the theory lacks" in text


def test_data_sets_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    sets = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "default": "qrels.jsonl"}
    card = "".join(
        f"- config_name: {name}\n  data_files:\n  - split: test\n    path: {file}\n"
        for name, file in sets.items()
    )
    hub = tmp_path / "hub"
    write(hub / "README.md", f"---\nconfigs:\n{card}---\n")
    texts = enumerate(("the otter swims", "the lynx hunts"))
    rows = [{"_id": f"d{n}", "title": "T", "text": text, "year": n} for n, text in texts]
    write_lines(hub / "corpus.jsonl", rows)
    write_lines(hub / "queries.jsonl", [{"_id": "q", "text": "who hunts"}])
    write_lines(hub / "qrels.jsonl", [{"query-id": "q", "corpus-id": "d1", "score": 2.0}])
    run = ["retrieve", "bm25", f"--data=hub:{hub}", "--split=test", f"--output={tmp_path / 'run'}"]
    assert main(run) == 0
    folder = Path(capsys.readouterr().err.split(" is now in ")[1].split(";")[0])
    assert next(Corpus.read(folder).metadata()) == {"year": 0}
    assert read_qrels(folder / "qrels" / "test.tsv") == {"q": {"d1": 2}}
    assert (tmp_path / "run.trec").read_text().split()[2] == "d1"
    assert main([*run[:2], f"--data=hub:{tmp_path / 'nothing'}", *run[3:]]) == 1
    assert "without the network, give hub:FOLDER" in capsys.readouterr().err
    assert main([*run[:2], "--data=hub:", *run[3:]]) == 1
    assert "hub:: expected hub:NAME, a data set of the hub" in capsys.readouterr().err
    (hub / "corpus.jsonl").unlink()
    write(hub / "README.md", f"---\nconfigs:\n{card.replace('name: corpus', 'name: other')}---\n")
    write_lines(hub / "corpus.jsonl", [{"_id": "d", "words": "x"}])
    assert main([*run[:2], f"--data=hub:{hub}", *run[3:]]) == 1
    assert "hub:NAME:CONFIGURATION; there are" in capsys.readouterr().err
    assert main([*run[:2], f"--data=hub:{hub}:other", *run[3:]]) == 1
    assert f"hub:{hub}:other: corpus: row 0 has no text: looked for 'text'" in capsys.readouterr().err
