"""Training: two stages over one module, and a third for quoting.

``examples`` says what a stage learns (memorise: front of a passage -> passage; retrieve: query and
evidence so far -> next passage, then DONE); ``batching`` orders examples by length, shards them over
processes and lets a killed run go on where it was; ``collate`` makes tensors, with the allowed children of
each target position where the loss wants them; ``data`` ties these into LightningDataModules; ``module``
is the LightningModule with its losses and optimizers; ``validation`` measures constrained recall on dev
and writes the best model; ``cli`` is the LightningCLI, and ``refusal`` its errors in one line.

``chains`` are the hops of a query together, with ``targets`` that are distributions over passages (of the
gold passages that are left, and of a ``teacher``; ``view_targets``: over views of them), ``decisions`` what
they say at every prefix of the trie; ``chain_data``, ``chain_collate`` and ``chain_module`` are the parts for
these, ``token_trees`` what lets a causal model read all hops at once; ``mining`` looks for what the search
finds wrongly. ``proposals`` draws passages that a generator learns to assess as a whole, by the loss of
``assessing``.

``loading`` is what all data modules share, ``encoder_cache`` keeps what a frozen encoder gives; ``heap``
keeps a long training on a CPU from growing.
``riches_data``, ``riches_examples``, ``riches_collate``, ``riches_module`` and ``riches_validation`` are the
same parts for a language model, causal or encoder-decoder, that learns to answer with quotes; what it is to
write is said in ``grls.programs.targets``.

``memorise_sources`` is what else than its front may be read of a passage; ``mixture`` makes pseudo-queries
and memorisation a share of what another stage learns. ``query_examples`` and ``query_data`` train the
generator of pseudo-queries; how it reads and writes is said in ``grls.programs.query_form``.

The bi-encoder is trained by sentence-transformers: ``biencoder`` sets its trainer up, ``biencoder_examples``
says what a hop teaches, ``biencoder_loss`` keeps gold passages out of the negatives, ``biencoder_trainer``
measures dev recall and makes batches as above.

The data modules use the constraint index (which tokens may follow is part of the training target); the
LightningModule never holds one, so a checkpoint loads without it.
"""
