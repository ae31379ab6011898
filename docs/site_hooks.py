"""Makes pages of the site from what is written to be read in the repository, too."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath
from typing import Any

_CODE = re.compile(r"`[^`\n]+`")
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Turns links to files of the repository outside `docs/` into their names.

    The site has no such pages; in the repository the links work. In code within tables, a bar has a
    backslash for the repository's pages, which the site's would show.
    """
    folder = PurePosixPath("docs") / PurePosixPath(page.file.src_uri).parent

    def replaced(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        if ":" in target:
            return match[0]
        path = os.path.normpath(folder / target)
        if path.startswith("docs/"):
            return match[0]
        return text if path in text else f"{text} (`{path}`)"

    plain = _CODE.sub(lambda code: code[0].replace(r"\|", "|"), markdown)
    return _LINK.sub(replaced, plain)
