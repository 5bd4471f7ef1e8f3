"""Where the Python suites find the source tree, and in it the package under test."""
import os
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PACKAGE = TOP / "bindings" / "python" / "src"


def use_package():
    """The suites run against an installed package, or, with RALLYPOINT_LIB_DIR naming a build
    directory, against the source tree."""
    if os.environ.get("RALLYPOINT_LIB_DIR"):
        sys.path.insert(0, str(PACKAGE))
