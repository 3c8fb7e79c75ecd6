"""Models, and the interface by which decoders use them.

Generators: ``base`` is the protocol: encode a batch, then step its beams; it also says how many tokens a
model reads, and what it calls its cache. ``seq2seq/`` and ``causal/`` implement it for the two kinds of
transformers models, each in a plain form and with slots; ``sessions/`` is the memory behind the slots.
``head`` computes logits of the allowed tokens only, and says how much of a passage a generator reads to
rescore it.

All models: ``load/`` opens models and tokenizers, ``precision`` moves them to a device
(``option_names``: their names for options, and those of bi-encoders), ``lora`` adds adapters.

Encoders: ``biencoder`` embeds texts (``sentence_model`` opens its
network, also one of an encoder-decoder). ``text_encoder`` is the common base of the bi-encoder and of
encoders with other outputs than a single vector; ``special_tokens`` keeps texts from spelling such tokens.
``cross_encoder`` reads a query and a passage together; ``entailment`` decides whether a hypothesis follows.

Nothing here knows an index.
"""
