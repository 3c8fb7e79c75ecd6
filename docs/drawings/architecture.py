"""The way of the data, from raw files to answers."""

from docs.drawings.sketch import Sketch


def draw() -> str:
    """The drawing."""
    sketch = Sketch("The way of the data: raw files, data set, model and index, retriever folder, run", 456)
    sketch.box(16, 12, 428, ["raw files, lists, data frames"])
    sketch.arrow((230, 42), (230, 70))
    sketch.text(240, 60, "data_prep, grls.data", "small soft")
    sketch.box(16, 72, 428, ["corpus, queries, qrels"], "warm")
    sketch.arrow((110, 102), (110, 148))
    sketch.text(120, 130, "grls.train", "small soft")
    sketch.arrow((350, 102), (350, 148))
    sketch.text(336, 130, "grls.index", "small soft", "end")
    sketch.box(16, 150, 190, ["model"], "good")
    sketch.box(254, 150, 190, ["constraint index"], "good")
    sketch.arrow((110, 180), (110, 222))
    sketch.arrow((350, 180), (350, 222))
    sketch.text(230, 206, "grls.decode", "small soft", "middle")
    sketch.box(
        16, 224, 428, ["retriever folder: grls.json and its files", "kinds, hops, priors, fusion"], "warm"
    )
    sketch.arrow((110, 272), (110, 312))
    sketch.text(120, 298, "grls.retrieve", "small soft")
    sketch.arrow((350, 272), (350, 312))
    sketch.text(336, 298, "grls.api", "small soft", "end")
    sketch.box(16, 314, 190, ["run"], "good")
    sketch.box(254, 314, 190, ["hits in your program"], "good")
    sketch.arrow((110, 344), (110, 386))
    sketch.arrow((350, 344), (350, 386))
    sketch.box(16, 388, 190, ["evaluation, report,", "explain, fusion"])
    sketch.box(254, 388, 190, ["answer, serve,", "adapters"])
    return sketch.svg()
