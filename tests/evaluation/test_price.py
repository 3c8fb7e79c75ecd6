"""The price of DONE, by hand, and which runs may stand beside each other for it."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_helpers import GOOD, dataset, write
from small_data import passages, small_retriever, write_small

from grls.cli import main
from grls.data.corpus import Corpus
from grls.errors import ConfigError, MismatchError
from grls.evaluation.metrics.set_f1 import set_f1
from grls.evaluation.price import format_price, price_of_end, price_of_run, runs_without_end
from grls.runs.manifest import RunInfo, read_info

ENDED = [["a"], ["a", "b"], ["a", "b", "x"], ["x", "a", "b"]]
WHOLE = [["a", "b", "c"], ["a", "b", "c"], ["a", "b", "x"], ["x", "a", "b"]]
GOLD = [["a", "b"], ["a", "b"], ["a", "b"], ["a", "b"]]
# F1 as ended: 2/3, 1, 4/5, 4/5; with the known number: 1, 1, 1, 1/2 (x, a)


def test_the_price_by_hand():
    price = price_of_end(ENDED, WHOLE, GOLD, {"bridge": [0, 1], "other": [2, 3]})
    rows = {name: (one.price.queries, one.ended, one.known, one.price.difference)
            for name, one in price.groups.items()}  # fmt: skip
    ended = (2 / 3 + 1 + 4 / 5 + 4 / 5) / 4
    assert rows == {
        "all": pytest.approx((4, ended, 3.5 / 4, 3.5 / 4 - ended)),
        "too short": pytest.approx((1, 2 / 3, 1, 1 / 3)),
        "right length": pytest.approx((1, 1, 1, 0)),
        "too long": pytest.approx((2, 0.8, 0.75, -0.05)),
        "type bridge": pytest.approx((2, 5 / 6, 1, 1 / 6)),
        "type other": pytest.approx((2, 0.8, 0.75, -0.05)),
    }
    assert (price.length, price.gold, price.beyond) == (2.25, 2.0, 0)
    assert (
        price.groups["all"].price.low < price.groups["all"].price.difference < price.groups["all"].price.high
    )
    assert price.groups["too short"].price.low is None, "a single query has no interval"
    assert format_price(price, "fixed").splitlines()[3].split()[:5] == ["all", "4", "81.7", "87.5", "+5.8"]


def test_a_passage_twice_in_a_chain_counts_once():
    price = price_of_end([["a", "a", "b"]], [["a", "a", "b", "c"]], [["a", "b"]])
    assert list(price.groups) == ["all", "right length"]
    assert price.groups["all"].price.difference == 0


def test_too_few_passages_without_an_end_are_told():
    price = price_of_end([["a"]], [["a", "b"]], [["a", "b", "c"]])
    assert price.beyond == 1
    assert "a lower bound: for 1 query fixed has fewer passages than are gold" in format_price(price, "fixed")


CHAIN = st.lists(st.sampled_from("abcdef"), min_size=6, max_size=6, unique=True)


CASE = st.tuples(CHAIN, st.integers(0, 6), st.sets(st.sampled_from("abcdef"), min_size=1))


@settings(max_examples=25, deadline=None)
@given(st.lists(CASE, min_size=1, max_size=5))
def test_the_end_at_the_right_place_is_free_and_the_groups_add_up(cases):
    whole, gold = [ids for ids, _, _ in cases], [sorted(wanted) for _, _, wanted in cases]
    ended = [ids[:length] for ids, length, _ in cases]
    price = price_of_end(ended, whole, gold)
    every = price.groups.pop("all")
    assert every.ended == pytest.approx(set_f1(ended, gold)["f1"])
    parts = price.groups.values()
    assert sum(one.price.queries for one in parts) == len(cases)
    total = sum(one.price.queries * one.price.difference for one in parts)
    assert total == pytest.approx(len(cases) * every.price.difference)
    if "right length" in price.groups:
        assert price.groups["right length"].price.difference == 0
    right = price_of_end([ids[: len(g)] for ids, g in zip(whole, gold, strict=True)], whole, gold)
    assert right.groups["all"].price.difference == 0


def info(steps="dynamic", retriever="r", corpus="c", queries="q", **options):
    return RunInfo(
        "biencoder", "n", steps, corpus, queries, "", "test", "x", options=options, retriever=retriever
    )


def test_runs_belong_together_by_corpus_queries_and_retriever():
    ended, fixed = info(), info("fixed", hops=4)
    assert runs_without_end([ended, fixed]) == {0: 1}
    assert runs_without_end([fixed, None, ended, info("fixed", hops=6), info("fixed", hops=6)]) == {2: 3}
    assert runs_without_end([ended, info("single", k=5), info("ranked", k=20)]) == {0: 2}
    others = [info("fixed", **{name: "other"}) for name in ("retriever", "corpus", "queries")]
    assert runs_without_end([ended, info(), *others]) == {}
    unknown = replace(ended, retriever="")
    assert runs_without_end([unknown, replace(fixed, retriever="")]) == {}, "unknown is not the same"


@pytest.fixture
def data(tmp_path):
    return dataset(tmp_path / "small")


SHORT = {"q1": ["f1"], "q2": ["f2", "r2", "odd"]}


def test_evaluate_prints_the_price_beside_the_same_system_alone(data, tmp_path, capsys):
    ended = write(tmp_path / "a", data, SHORT, retriever="one")
    whole = write(tmp_path / "b", data, GOOD, steps="fixed", retriever="one")
    other = write(tmp_path / "c", data, GOOD, steps="fixed", retriever="two")
    report = tmp_path / "report.json"
    assert main(["evaluate", ended, whole, "--data", str(data), f"--output={report}"]) == 0
    text = capsys.readouterr().out
    assert f"{ended}: price of DONE" in text
    assert ["all", "2", "65.0", "100.0", "+35.0"] in [line.split()[:5] for line in text.splitlines()]
    (price,) = json.loads(report.read_text())["prices"]
    assert (price["run"], price["unended"], price["what"]) == (ended, whole, "DONE")
    assert price["groups"]["all"]["price"]["difference"] == pytest.approx(0.35)
    assert main(["evaluate", ended, other, "--data", str(data)]) == 0
    assert "price of" not in capsys.readouterr().out
    assert main(["evaluate", ended, "--data", str(data), "--price", whole]) == 0
    assert "\nprice of DONE" in capsys.readouterr().out


def test_a_price_that_is_asked_for_needs_an_end_and_the_same_system(data, tmp_path, capsys):
    ended = write(tmp_path / "a", data, SHORT, retriever="one")
    again = write(tmp_path / "b", data, GOOD, retriever="one")
    fixed = write(tmp_path / "c", data, GOOD, steps="fixed", retriever="two")
    foreign = write(tmp_path / "d", data, GOOD, steps="fixed", manifest=False)
    corpus = Corpus.read(data)
    for first, second, kind, problem in (
        (fixed, foreign, ConfigError, "does not end by itself, so its end has no price"),
        (ended, again, ConfigError, "ends by itself, so it lacks the passages after its end"),
        (ended, fixed, MismatchError, "are of two systems"),
        (ended, ended, ConfigError, "are the same run"),
    ):
        with pytest.raises(kind, match=problem):
            price_of_run(first, second, data, None, corpus)
    priced = price_of_run(ended, foreign, data, None, corpus)
    assert priced.groups["all"].price.difference == pytest.approx(0.35)  # whoever names it says that it fits
    assert main(["evaluate", "x.answers.jsonl", "--data", str(data), "--price", fixed]) == 1
    assert "--price and --examples are of runs" in capsys.readouterr().err


def test_what_is_retrieved_is_known_by_retriever_search_and_filters(tmp_path, capsys):
    data = write_small(tmp_path / "data")
    small_retriever(data).save_pretrained(tmp_path / "r")

    def retriever_of(name, *options):
        given = [str(tmp_path / "r"), f"--data={data}", "--device=cpu", f"--output={tmp_path / name}"]
        assert main(["retrieve", *given, "--split=test", *options]) == 0
        return read_info(tmp_path / f"{name}.jsonl").retriever

    dynamic = ("--hops.steps=dynamic", "--hops.max=2", "--hops.done_bias=1", "--hops.choose=expected-f1")
    fixed = ("--hops.steps=fixed", "--hops.max=3")
    ended = retriever_of("ended", *dynamic)
    assert ended == retriever_of("fixed", *fixed) != ""
    allowed = tmp_path / "allowed"
    allowed.write_text("\n".join(passage.id for passage in passages()))
    for n, other in enumerate(("--hops.chains=2", "--search.beams=3", f"--filter.allow={allowed}")):
        assert retriever_of(f"other{n}", *fixed, other) != ended
    capsys.readouterr()
    runs = [str(tmp_path / f"{name}.jsonl") for name in ("ended", "other0", "fixed", "other1")]
    assert main(["evaluate", *runs, f"--data={data}"]) == 0
    assert (
        capsys.readouterr().out.count(f"known: the first n passages of {runs[2]}, for n gold passages") == 1
    )


def test_a_price_that_cannot_be_is_refused_before_anything_is_scored(data, tmp_path, capsys):
    """The report was printed and then lost: its file was not written."""
    ended = write(tmp_path / "a", data, SHORT, retriever="one")
    again = write(tmp_path / "b", data, GOOD, retriever="one")
    for price, problem in (
        (again, "ends by itself, so it lacks the passages after its end"),
        (ended, "is the run itself"),
        (str(tmp_path / "none.jsonl"), "no such file"),
    ):
        assert main(["evaluate", ended, "--data", str(data), "--price", price]) == 1
        out, err = capsys.readouterr()
        assert problem in err
        assert not out
