"""Shared parts of all trainings.

``examples`` holds the form of a training pair and the gold chains of queries, ``passage_inputs`` the model
inputs of memorisation; ``mixture`` mixes in other examples as shares of every epoch. ``batching`` orders
examples and resumes mid-epoch, ``collate`` makes tensors, ``datamodule`` ties these together. ``module`` is
the base of the LightningModules, ``loss`` the loss over the tokens that the index allows.
``encoder_cache`` keeps the states of a frozen encoder. ``checkpoints`` and ``damage`` keep checkpoints whole.
``finite`` ends a training whose numbers are not finite, ``lines`` reports progress without a terminal.
``processes`` takes means over the examples of all processes, ``sharded`` divides a model among them.
``clock`` counts steps and time, ``time_limit`` ends a trainer whose time is up,
``malloc_trim`` returns freed memory to the system when there is much of it.
"""
