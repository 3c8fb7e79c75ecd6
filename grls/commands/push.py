"""``grls push``: a retriever folder to the model hub, with its model card."""

from __future__ import annotations


def push(folder: str, repository: str, *, private: bool = False) -> None:
    """Upload a copy of a retriever folder to the model hub, with its model card, and print the address.

    The copy needs nothing else: `grls search` and `grls.load` open it by the name of the repository. Log in
    with `hf auth login` first.

    Args:
        folder: The retriever folder, such as that of a run of `grls fit`.
        repository: Its name on the hub, as user/name. A missing one is made; files in it are replaced.
        private: Whether a new repository is private.
    """
    import grls

    print(grls.load(folder, device="cpu").push_to_hub(repository, private))
