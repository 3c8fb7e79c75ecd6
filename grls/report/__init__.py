"""A page that compares runs: tables in the form of arXiv 2204.13596, charts, proofs, significance.

- ``runs`` reads runs with their manifests, groups them by data set and refuses what does not belong together;
  ``measure`` scores each through ``grls.evaluation`` and keeps the values of every query.
- ``blocks`` holds the plain values a page consists of (tables, pictures, sections) and formats numbers.
- ``rows`` joins what several data sets hold of a run; ``tables`` makes the tables of the paper from it, and
  ``sections`` those of every other metric and of the manifests. ``compare`` makes those over pairs of runs
  (significance, similarity), ``charts`` the curves and histograms; ``proofs`` explains a RuleTaker-Open chain
  step by step and ``drawing`` draws it.
- ``page`` puts them in order; ``render`` writes HTML and Markdown with the templates ``page.html``
  (its rules: ``page.css``) and ``page.md``.

Three rules: no run is hidden, a query without an answer scores 0 and is counted on the page, and what does
not apply to a run is a dash. Nothing here retrieves, and nothing knows of models.
"""
