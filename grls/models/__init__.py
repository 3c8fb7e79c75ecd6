"""Models, and the interface by which decoders use them. Nothing here knows an index.

Generators: ``base`` is the protocol: encode a batch, then step its beams. ``seq2seq/`` and ``causal/``
implement it for the two kinds of transformers models, each in a plain form and with slots; ``sessions/``
is the memory behind the slots. ``head`` computes logits of the allowed tokens only.

All models: ``load/`` opens models and tokenizers, ``precision`` moves them to a device (``option_names``:
names for options), ``lora`` adds adapters.

Encoders: ``biencoder`` embeds texts (``sentence_model`` opens its network), with the base
``text_encoder``; ``special_tokens`` keeps texts from spelling such tokens. ``cross_encoder`` reads a
query and a passage together; ``entailment`` decides whether a hypothesis follows.
"""
