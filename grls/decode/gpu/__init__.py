"""The search of :mod:`grls.decode.beam` on the device of the model.

``decision`` makes the decisions of one step, as a function of tensors only; ``search`` joins it with the
forward pass of the model, so that both can be compiled, and captures it as CUDA graphs.
"""
