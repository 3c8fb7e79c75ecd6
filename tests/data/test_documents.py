"""Documents: kinds of files, passages by headings and sentences, links, and what is not read."""

import logging
import os
import zipfile
from pathlib import Path

import pandas as pd
import pytest
from failing import raises

from grls.data import documents as module
from grls.data.corpus import Corpus
from grls.data.inputs.entries import corpus_of, documents
from grls.data.types import Passage
from grls.errors import ConfigError, DataError


def folder(tmp_path: Path, **files: str | bytes) -> Path:
    """A folder of files; ``_md`` at the end of a name stands for ``.md``, ``__`` for a folder."""
    for name, content in files.items():
        stem, _, ending = name.rpartition("_")
        file = tmp_path / "docs" / (stem.replace("__", "/") + f".{ending}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path / "docs"


def rows(corpus: Corpus) -> list[tuple[str, str, str]]:
    return [(passage.id, passage.title, passage.text) for passage in corpus]


def pdf(*pages: str) -> bytes:
    """A PDF with a line of text a page."""
    kids = " ".join(f"{3 + 2 * n} 0 R" for n in range(len(pages)))
    objects = ["<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>"]
    font = "/Resources<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
    for n, text in enumerate(pages):
        objects.append(f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]{font}/Contents {4 + 2 * n} 0 R>>")
        stream = f"BT /F 12 Tf 50 700 Td ({text}) Tj ET" if text else ""
        objects.append(f"<</Length {len(stream)}>>stream\n{stream}\nendstream")
    written, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(written))
        written += f"{number} 0 obj{content}endobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    count = len(objects) + 1
    end = f"xref\n0 {count}\n0000000000 65535 f \n{table}trailer<</Size {count}/Root 1 0 R>>\n"
    return written + f"{end}startxref\n{len(written)}\n%%EOF".encode()


def docx(tmp_path: Path) -> bytes:
    """A Word document with a heading of level 1, one of level 2, and a text under each."""
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    paragraphs = [("Heading1", "Dens"), ("", "Where they live."), ("Heading2", "Holts"), ("", "Of otters.")]
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for style, text in paragraphs
    )
    types = "http://schemas.openxmlformats.org/package/2006/"
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    relation = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
    with zipfile.ZipFile(tmp_path / "x.docx", "w") as parts:
        parts.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{types}content-types"><Override PartName="/word/document.xml" '
            f'ContentType="{main}"/></Types>',
        )
        parts.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{types}relationships"><Relationship Id="r1" Type="{relation}" '
            'Target="word/document.xml"/></Relationships>',
        )
        parts.writestr(
            "word/document.xml", f'<w:document xmlns:w="{word}"><w:body>{body}</w:body></w:document>'
        )
    return (tmp_path / "x.docx").read_bytes()


MARKDOWN = """---
title: Otters
---
# Otters

An otter lives in a *holt*.

## Food

Fish, and `crabs`.

### In winter

| food | share |
|------|-------|
| eels | half  |

## See also
"""
HTML = (
    "<html><head><title>Herons - a site</title><style>p {}</style></head><body>\n"
    "<nav><a href='b.html'>all</a></nav>\n<h1>Herons<a href='#x'>¶</a></h1>\n"
    "<p>Herons &amp; egrets\n  wade.<p>They eat<br>fish.\n<h2 id=nests>Nests</h2>\n<pre>a\n  b</pre>"
    "<script>no</script><footer>end</footer>"
)


def test_each_kind_of_file(tmp_path: Path) -> None:
    files = folder(
        tmp_path,
        a_md=MARKDOWN,
        b_html=HTML,
        c_txt="Setts\n\nBadgers dig them.\n\nThey are old.\n",
        d_pdf=pdf("Owls fly at night.", "Mice hide."),
        e_docx=docx(tmp_path),
        sub__README_rst="No title here, for this line has no empty one behind it.\nMore.",
    )
    corpus = documents(files)
    assert rows(corpus) == [
        ("a.md:0", "Otters", "An otter lives in a holt."),
        ("a.md:1", "Otters", "Food\nFish, and crabs."),
        ("a.md:2", "Otters", "Food > In winter\nfood | share\neels | half"),
        ("a.md:3", "Otters", "See also"),
        ("b.html:0", "Herons", "Herons & egrets wade.\n\nThey eat\nfish."),
        ("b.html:1", "Herons", "Nests\na\n  b"),
        ("c.txt:0", "Setts", "Badgers dig them.\n\nThey are old."),
        ("d.pdf:0", "d.pdf", "Owls fly at night.\n\nMice hide."),
        ("e.docx:0", "Dens", "Where they live."),
        ("e.docx:1", "Dens", "Holts\nOf otters."),
        (
            "sub/README.rst:0",
            "sub/README.rst",
            "No title here, for this line has no empty one behind it.\nMore.",
        ),
    ]
    about = list(corpus.metadata())
    assert about[2] == {"file": "a.md", "line": 12, "heading": "Food > In winter"}
    assert about[5] == {"file": "b.html", "line": 6, "heading": "Nests"}
    assert about[7] == {"file": "d.pdf", "page": 1}
    assert about[9] == {"file": "e.docx", "heading": "Holts"}


def test_a_passage_of_a_pdf_names_its_page(tmp_path: Path) -> None:
    corpus = documents(folder(tmp_path, a_pdf=pdf("Owls fly at night.", "Mice hide.")), words=4)
    assert [(p.text, each["page"]) for p, each in zip(corpus, corpus.metadata(), strict=True)] == [
        ("Owls fly at night.", 1),
        ("Mice hide.", 2),
    ]


def test_passages_end_with_paragraphs_sentences_lines_or_words(tmp_path: Path) -> None:
    text = "One two three.\n\nFour five six. Seven eight nine. Ten.\n\na b c d e\nf g h i\n\n" + " ".join(
        f"w{n}" for n in range(11)
    )
    cut = [passage.text for passage in documents(folder(tmp_path, a_txt=text), words=6)]
    assert cut == [
        "One two three.\n\nFour five six.",
        "Seven eight nine. Ten.",
        "a b c d e",
        "f g h i\n\nw0 w1",
        "w2 w3 w4 w5 w6 w7",
        "w8 w9 w10",
    ]
    assert "".join(text.split()) == "".join("".join(cut).split())  # no word is lost, and none is there twice


def test_a_heading_stands_before_each_passage_of_its_section(tmp_path: Path) -> None:
    text = "# A\n## B\n" + "One two three four. " * 4 + "\n# C\n## D\ntext"
    assert rows(documents(folder(tmp_path, a_md=text), words=9)) == [
        ("a.md:0", "A", "B\nOne two three four. One two three four."),
        ("a.md:1", "A", "B\nOne two three four. One two three four."),
        ("a.md:2", "A", "C > D\ntext"),
    ]


def test_a_title_alone_is_a_passage(tmp_path: Path) -> None:
    corpus = documents(folder(tmp_path, a_md="# Alone", b_md="See [it](a.md)."))
    assert rows(corpus) == [("a.md:0", "Alone", "Alone"), ("b.md:0", "b.md", "See it.")]
    assert links(corpus) == {"b.md:0": ["a.md:0"]}


def links(corpus: Corpus) -> dict[str, list[str]]:
    found = zip((passage.id for passage in corpus), corpus.metadata(), strict=True)
    return {name: each["links"] for name, each in found if "links" in each}


def test_links_between_files_are_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = folder(
        tmp_path,
        otter_md="An otter lives in a [holt](animals/dens.md#whats-a-holt).\n## More\nSee [[Fish]], not "
        "[the web](https://x.org/y.md). `[[Dens]]` ![[Fish]]",
        fish_md="Food of [otters](/otter.md 'a page') and [herons](<big birds.md>), [gone](gone.md).",
        animals__dens_md="# Burrows\nWhere animals live.\n## What's a holt?\nThe den of an "
        "[otter](../otter) and [[fish|food]]; [below](#my), [all](.), [out](../../x.md).\n"
        "## Setts { .x #my }\nOf badgers.\n",
        animals__index_html="<p>All: <a href='dens.md#my'>setts</a> <!-- <a href='../fish.md'>no</a> -->",
        copy_md="Food of [otters](/otter.md 'a page') and [herons](<big birds.md>), [gone](gone.md).",
    )
    (files / "big birds.md").write_text("Herons eat [fish](fish.md#unknown) and [more](copy.md).")
    assert links(documents(files)) == {
        "otter.md:0": ["animals/dens.md:1"],
        "otter.md:1": ["copy.md:0"],
        "copy.md:0": ["otter.md:0", "big birds.md:0"],
        "animals/dens.md:1": ["otter.md:0", "copy.md:0", "animals/dens.md:2", "animals/index.html:0"],
        "animals/index.html:0": ["animals/dens.md:2"],
        "big birds.md:0": ["copy.md:0"],
    }
    assert "1 link to files that are not there, such as copy.md: gone.md" in caplog.text
    assert "fish.md  the same text as copy.md" in caplog.text


def test_a_heading_that_is_there_again_has_a_number(tmp_path: Path) -> None:
    page = "# A\n\nOf a.\n\n## Usage\n\nOne.\n\n## Usage\n\nTwo.\n\n## Usage\n\nThree."
    link = "See [it{0}](a.md#usage{0})."
    files = folder(tmp_path, a_md=page, b_md=link.format("-1"), c_md=link.format("-2"), d_md=link.format(""))
    assert links(documents(files)) == {"b.md:0": ["a.md:2"], "c.md:0": ["a.md:3"], "d.md:0": ["a.md:1"]}


def test_a_wiki_link_prefers_the_page_beside_it(tmp_path: Path) -> None:
    files = folder(tmp_path, x__a_md="[[The_B]]", c_md="[[x/The b]] [[Why?]]", d_md="[[A]]")
    for name, text in {"x/the b.md": "of x", "a/the b.md": "of a", "why?.md": "So."}.items():
        (files / name).parent.mkdir(exist_ok=True)
        (files / name).write_text(text)
    assert links(documents(files)) == {
        "x/a.md:0": ["x/the b.md:0"],
        "c.md:0": ["x/the b.md:0", "why?.md:0"],
        "d.md:0": ["x/a.md:0"],
    }


def test_files_that_are_not_read_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    files = folder(
        tmp_path,
        good_txt="A text.",
        again_txt="A text.",
        bad_txt=b"\xff\xfa\xff",
        binary_txt=b"a\0b",
        empty_md="",
        large_txt="x " * (1 << 20),
        cut_pdf=pdf("Owls")[:200],
        scan_pdf=pdf(""),
        cut_docx=b"PK\3\4",
        a_png="",
        b_png="",
        _git__x_txt="hidden",
    )
    (files / ".hidden.txt").write_text("hidden")
    assert len(documents(files)) == 2
    for line in (
        "good.txt    the same text as again.txt",
        "bad.txt     no UTF-8 text",
        "binary.txt  no text, though its ending says so",
        "empty.md    no text",
        "large.txt   larger than 1 MB; split it",
        "cut.pdf     no PDF that can be read",
        "scan.pdf    no text (a scan?",
        "cut.docx    no DOCX that can be read",
        "2 files     of other kinds: 2 .png",
    ):
        assert line in caplog.text


def test_encodings(tmp_path: Path) -> None:
    files = folder(
        tmp_path,
        a_txt="\ufeffmarked".encode(),
        b_txt="Käfer".encode("utf-16"),
        c_html=b'<meta charset="iso-8859-1"><p>H\xe4her',
        d_txt=b"one\r\ntwo\rthree",
    )
    assert [text for _, _, text in rows(documents(files))] == ["marked", "Käfer", "Häher", "one\ntwo\nthree"]


def test_an_element_that_never_ends_takes_nothing_away(tmp_path: Path) -> None:
    (text,) = documents(folder(tmp_path, a_html="<nav>all<p>The text."))
    assert text.text == "all\n\nThe text."


@pytest.mark.parametrize(
    "page", ["<title>The text.", "<script>The text.", "<!-- The text.", "<nav>x</nav><style>The text."]
)
def test_nor_does_a_title_a_script_or_a_comment(tmp_path: Path, page: str) -> None:
    corpus = documents(folder(tmp_path, a_html=f"<title>T</title>{page}<h2>More</h2>"))
    assert [passage.text.split()[-1] for passage in corpus] == ["text.", "More"]


@pytest.mark.parametrize(
    "tag", ["nav", "title", "style", "template", "svg", "noscript", "footer", "script", "textarea"]
)
def test_a_tag_in_markdown_takes_nothing_away(tmp_path: Path, tag: str) -> None:
    files = folder(tmp_path, a_md=f"# A\nUse <{tag}> here.\n\n<{tag}>\nOf it.\n\n## Next\n\nMore <b>x</b>.")
    text = "\n".join(passage.text for passage in documents(files))
    assert f"Use <{tag}> here." in text
    assert "Of it." in text
    assert "More " in text


def test_scripts_and_drawings_in_markdown_are_left_out(tmp_path: Path) -> None:
    page = "<style>\np {}\n</style>\n\n<svg>\n<path d='M0'/></svg>\n\n<script src='x'></script>\n\nText."
    assert rows(documents(folder(tmp_path, a_md=page))) == [("a.md:0", "a.md", "Text.")]


def test_words_in_angle_brackets_stay(tmp_path: Path) -> None:
    page = "A List<String>, git clone <repository> to <your path>,<br>as <b>here</b>.\n\n<name>\n\n<i>x</i>"
    (text,) = documents(folder(tmp_path, a_md=page))
    assert text.text == ("A List<String>, git clone <repository> to <your path>,\nas here.\n\n<name>\n\nx")


def test_deep_lists(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def nested(depth: int) -> str:
        return "".join(f"{'  ' * n}- item {n}\n" for n in range(depth))

    (text,) = documents(folder(tmp_path, a_md=nested(30), b_md=nested(200)))
    assert "item 29" in text.text
    assert "b.md  lists or quotes 50 deep" in caplog.text


def test_a_rule_is_no_front_matter(tmp_path: Path) -> None:
    (text,) = documents(folder(tmp_path, a_md="---\nFirst slide.\n\n---\nSecond."))
    assert text.text == "First slide.\n\nSecond."
    assert module.document_of("a.md", "---\n# of the site\ntitle: T\n---\nText.").title == "T"


def test_what_a_folder_holds_beside_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = folder(tmp_path, a_txt="A.", sub__b_txt="B.", run__c_txt="C.", run__grls_json="{}")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "d.txt").write_text("D.")
    (files / "linked").symlink_to(tmp_path / "other")
    (files / "loop").symlink_to(files)
    (files / "dead.txt").symlink_to(files / "gone.txt")
    os.mkfifo(files / "pipe.txt")
    (files / "bad\udcff.txt").write_text("E.")
    assert [row[0] for row in rows(documents(files))] == ["a.txt:0", "linked/d.txt:0", "sub/b.txt:0"]
    for line in (
        r"bad\udcff.txt  a name that is no UTF-8",
        "dead.txt       cannot be read (No such file",
        "pipe.txt       no usual file",
        "loop           the same folder as .",
        "run            a folder that grls wrote",
    ):
        assert line in caplog.text


def test_equal_texts_with_other_titles_or_links_are_two(tmp_path: Path) -> None:
    files = folder(
        tmp_path,
        a_html="<title>A</title>Text.",
        b_html="<title>B</title>Text.",
        c_md="See [it](a.html).",
        d_md="See [it](b.html).",
    )
    assert len(documents(files)) == 4


def test_entries_without_a_text(caplog: pytest.LogCaptureFixture) -> None:
    entries = [
        {"id": "a", "text": "", "title": "Only this"},
        {"id": "b.html", "text": "<p>", "title": "B"},
        {"id": "c", "text": "C."},
    ]
    assert [row[0] for row in rows(documents(entries))] == ["a:0", "c:0"]
    assert "b.html  no text" in caplog.text


def test_a_file_without_ending(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("Otters eat fish.")
    (tmp_path / "corpus").write_text('{"_id": "a", "text": "Owls."}\n')
    assert rows(corpus_of(str(tmp_path / "README"))) == [("README:0", "README", "Otters eat fish.")]
    assert [passage.id for passage in corpus_of(str(tmp_path / "corpus"))] == ["a"]


def test_lines_of_code_and_html(tmp_path: Path) -> None:
    code = "".join(f"x{n} = {n}\n" for n in range(4))
    cells = "".join(f"<tr><td>cell {n}</td></tr>\n" for n in range(3))
    files = folder(
        tmp_path,
        a_md=f"```py\n{code}```\n",
        b_md="".join(f"    y{line}\n" for line in code.splitlines()),
        c_md=f"Text of it.\n\n<table>\n{cells}</table>\n",
        d_html=f"\n<pre>{code}x4 = 4</pre>",
    )
    lines: dict[str, list[int]] = {}
    for about in documents(files, words=3).metadata():
        lines.setdefault(about["file"], []).append(about["line"])
    assert lines == {
        "a.md": [1, 3, 4, 5],
        "b.md": [1, 2, 3, 4],
        "c.md": [1, 3, 3, 3],
        "d.html": [2, 3, 4, 5, 6],
    }


def test_blocks_of_html_part_words(tmp_path: Path) -> None:
    page = "<details><summary>One</summary>two</details><center>three</center><option>four<option>five"
    (text,) = documents(folder(tmp_path, a_html=page))
    assert text.text.split() == ["One", "two", "three", "four", "five"]


def test_an_anchor_before_a_heading_leads_to_it(tmp_path: Path) -> None:
    page = "<p>First text <a name='x'></a><h2>Section</h2><p>More."
    corpus = documents(folder(tmp_path, a_html=page, b_md="See [it](a.html#x)."))
    assert links(corpus) == {"b.md:0": ["a.html:1"]}


def test_documents_from_python(tmp_path: Path) -> None:
    files = folder(tmp_path, a_md="# A\nSee [b](sub/b.md).", sub__b_md="# B\nText.")
    paths = [files / "sub" / "b.md", files / "a.md"]
    both = documents(paths)
    assert rows(both) == [("sub/b.md:0", "B", "Text."), ("a.md:0", "A", "See b.")]
    assert links(both) == {"a.md:0": ["sub/b.md:0"]}
    assert rows(corpus_of(paths)) == rows(both)
    assert {row[0] for row in rows(corpus_of(files))} == {"a.md:0", "sub/b.md:0"}
    assert rows(documents(files / "a.md")) == [("a.md:0", "A", "See b.")]
    frame = pd.DataFrame({"id": ["x", "y.html"], "text": ["Plain <b>.", "<b>Bold</b>."], "title": ["X", "Y"]})
    assert rows(documents(frame)) == [("x:0", "X", "Plain <b>."), ("y.html:0", "Y", "Bold.")]
    assert corpus_of([Passage("a", "x")])[0].id == "a"


def test_refusals(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    raises(DataError, "there is no file here; expected corpus.jsonl", documents, tmp_path / "none")
    raises(DataError, "gone.*no such file or folder", documents, tmp_path / "gone")
    raises(DataError, "no document gave a passage.\n  a.txt  no text", documents, folder(tmp_path, a_txt=" "))
    raises(ConfigError, "words must be at least 1", documents, tmp_path, words=0)


def test_an_extra_that_is_missing_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pypdf", "mammoth"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with caplog.at_level(logging.WARNING):
        documents(folder(tmp_path, a_txt="x", b_pdf=pdf("x"), c_docx=docx(tmp_path)))
    assert caplog.text.count("needs an extra: `pip install 'grls[documents]'`") == 2
