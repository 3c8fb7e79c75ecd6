"""Demonstrate-search-predict (arXiv 2212.14024) on DSPy, its authors' successor of DSP.

DSPy gives examples, demonstrations, their selection, chain of thought and majority; what it lacks is here.
``needed`` imports it, or says how to install it (the extra ``dsp``). ``lm`` makes a language model of ours,
or an endpoint, a DSPy LM; ``lines`` is the paper's plain template for models that cannot keep to a format,
and ``patience`` asks again when a model fails. ``retrieval`` makes a Retriever of ours a DSPy module, ranks
candidates and fuses several queries; ``branch`` takes the majority of several pipelines. ``programs`` are the
paper's three, ``baselines`` what it compares with; ``demonstrate`` gives them demonstrations. ``run`` answers
queries, many at once: ``gather`` makes batches of what their threads ask, ``trace`` notes what each one did,
``heard`` every call of the model.
"""
