"""What all trainings share.

``examples`` says what the two stages learn, ``passage_inputs`` what may be read of a passage that is
memorised, ``mixture`` adds other examples as shares of every epoch. ``batching`` orders examples and
resumes mid-epoch, ``collate`` makes tensors, ``datamodule`` ties these together; ``module`` is the
LightningModule. ``encoder_cache`` keeps the states of a frozen encoder. ``checkpoints`` and ``damage`` keep
checkpoints whole, ``finite`` ends a training whose numbers are not finite, ``lines`` reports progress where
there is no terminal, ``malloc_trim`` gives freed memory back.
"""
