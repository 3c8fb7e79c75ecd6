"""Models as decoders drive them.

``base`` is the protocol: encode a batch, then step its beams. ``seq2seq/`` and ``causal/`` fulfil it for
the two kinds of transformers models, each plainly and by slots; ``sessions/`` is the memory behind the slots.
``head`` computes logits of the allowed tokens only. ``load/`` opens models and tokenizers, ``precision``
moves them to a device (``precision_names`` are for options), ``lora`` adds adapters, ``turns`` gives a model
to one thread at a time, ``positions`` says how many tokens it has room for.
``biencoder`` embeds texts (``biencoder_kinds`` are for options, ``sentence_model`` makes its model,
``encoder_input`` what it reads), ``st5`` by an encoder-decoder; ``text_encoder`` is what it shares with
encoders whose output is no single vector. ``cross_encoder`` reads a query and a passage together;
``entailment`` judges whether a hypothesis follows.
``rescore_spec`` says how much of a passage a generator reads to rescore it. Nothing here knows what an index
is.
"""
