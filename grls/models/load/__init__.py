"""Where models come from.

``sources`` finds the files: a hub, a folder, a GGUF file, an installed package. ``opening`` opens configs,
tokenizers and weights and refuses what lacks something; ``sentence_folder`` does so for the folders of
sentence-transformers. ``build`` makes generators: pretrained, from scratch, or warm-started; ``language``
opens language models. ``settings`` holds a folder's settings against those that were written. ``kinds`` says
which adapter drives a model.
"""
