"""Loads and makes models.

``sources`` finds the files: on the hub, in a folder, in a GGUF file, in an installed package. ``opening``
opens configs, tokenizers and weights, and refuses incomplete ones; ``sentence_folder`` does so for folders of
sentence-transformers. ``base_models`` tells which models there are to begin with. ``build`` makes generators:
pretrained, from scratch, or warm-started. ``language`` opens language models. ``settings`` compares the
settings in a folder with those of a manifest. ``kinds`` selects the adapter of a model. ``saving`` writes
weights. ``large`` holds options for large models in training.
"""
