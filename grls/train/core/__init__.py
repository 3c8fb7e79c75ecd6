"""Shared parts of all trainings.

``examples`` holds the training pairs of the two stages, ``passage_inputs`` the model inputs of memorisation;
``mixture`` mixes in other examples as shares of every epoch. ``batching`` orders examples and resumes
mid-epoch, ``collate`` makes tensors, ``datamodule`` ties these together; ``module`` is the LightningModule.
``encoder_cache`` keeps the states of a frozen encoder. ``checkpoints`` and ``damage`` keep checkpoints whole.
``finite`` ends a training whose numbers are not finite, ``lines`` reports progress without a terminal,
``malloc_trim`` returns freed memory to the system.
"""
