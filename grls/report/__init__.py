"""The tables and the page of an experiment; the tables have the form of arXiv 2204.13596.

- ``systems`` makes the table of an experiment: means, differences, spread over seeds, cost, quoted rows.
- ``stress`` makes the tables of a growing corpus and of perturbed queries.
- ``runs`` reads runs with their manifests, groups them by data set and refuses runs that cannot be
  compared.
- ``blocks`` scores each run through ``grls.evaluation``, keeps the values of every query, holds the plain
  values of a page (tables, pictures, sections) and formats numbers.
- ``tables`` makes the tables of the paper, joins the rows of a run over several data sets, and compares
  pairs of runs (significance, similarity).
- ``page`` draws curves and histograms, puts all in order, with the tables of all other metrics and
  of the manifests, and writes HTML with the template ``page.html`` and the styles of ``page.css``.

There are three rules: no run is hidden, a query without an answer scores 0 and is counted, and a metric that
does not apply to a run is a dash. The package does not know of models; only ``stress`` retrieves.
"""
