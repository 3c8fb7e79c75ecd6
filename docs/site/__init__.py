"""Makes the pages of the site that are not written by hand.

``hooks`` is what MkDocs calls; ``commands`` writes a page for each verb from its ``--help``; ``reference``
names the modules whose docstrings are pages; ``notebooks`` shows and runs the notebooks; ``navigation`` puts
unlisted pages where their folder is; ``roles`` turns the references in docstrings into code; ``options``
lists the fields of options. ``prose`` counts words and measures sentences. ``make docs`` builds the site.
"""
