"""What MkDocs calls while it builds the site: generated pages and the navigation.

The work is done in the other modules of this folder. MkDocs loads this file by its path, so the folder of the
repository is put where Python looks for modules.
"""

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from docs.site import commands, navigation, notebooks, reference  # noqa: E402


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation."""
    config.nav = navigation.complete(config.nav or [], Path(config.docs_dir))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and let ``llms.txt`` lead to pages of the site."""
    listed = files.src_uris["llms.txt"]
    files.remove(listed)
    files.append(File.generated(config, "llms.txt", content=listed.content_string.replace(".md)", ".html)")))
    for place, text in {**commands.pages(), **reference.pages(), **notebooks.pages()}.items():
        files.append(File.generated(config, place, content=text))
    return files
