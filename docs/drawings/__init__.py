"""The drawings of the pages, as SVG: ``python -m docs.drawings`` writes them into ``docs/pictures``.

``sketch`` draws boxes, texts and arrows. Each other module draws one picture: ``overview`` a question, the
beam over the trie, the passage and the next hop; ``trie`` the constraint index; ``scores`` both score modes
and early stop; ``beam`` a beam search; ``chains`` hops until DONE; ``architecture`` the way of the data.
"""
