"""What a user does with the dry run: read its command, and fill in its file of bounds."""

import json
import re
import shlex
from collections.abc import Callable
from typing import Any

from nrjax.datasets import Description
from nrjax.papers._settings import parsed_missing, parsed_read


def typed(description: Description, word: str = "?") -> dict[str, Any]:
    """Return the options of `from_file` that the printed command has, but the bounds.

    `word` is what stands for a missing value in numbers.
    """
    options: dict[str, list[str]] = {}
    for part in shlex.split(description.command)[2:]:
        if part.startswith("--"):
            options[part] = []
        else:
            options[list(options)[-1]].append(part)
    read = [each.replace("WORD", word) for each in options.get("--read", [])]
    return {
        "leave_out": options.get("--leave-out", []),
        "missing": parsed_missing(options.get("--missing", [])),
        "read": parsed_read(read),
    }


def filled(template: str, limits: Callable[[str], Any]) -> str:
    """Return a template with `limits` of each column in place of its placeholders."""
    lines = []
    for line in template.splitlines():
        key = re.match(r'("(\\.|[^"])*"|[\w-]+) = ', line)
        if key is not None:
            stated = limits(json.loads(key[1]) if line.startswith('"') else key[1])
            text = json.dumps(stated, ensure_ascii=False)
            if isinstance(stated, tuple):
                low, high = map(json.dumps, stated)
                text = f"{{ low = {low}, high = {high} }}"
            line = key[0] + text
        lines.append(line)
    return "\n".join(lines)
