#!/usr/bin/env python3
"""readme.py ROOT: each C block of README.md stands word for word in one of the examples."""
import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
examples = {path.name: path.read_text() for path in sorted((root / "examples").glob("*.c"))}
blocks = re.findall(r"^```c\n(.*?)^```", (root / "README.md").read_text(), re.DOTALL | re.MULTILINE)
if not blocks:
    sys.exit("README.md has no C block")
for block in blocks:
    if not any(block in text for text in examples.values()):
        sys.exit(f"this block of README.md is in none of {', '.join(examples)}:\n{block}")
print(f"{len(blocks)} of {len(blocks)} found")
