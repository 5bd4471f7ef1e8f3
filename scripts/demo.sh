#!/usr/bin/env bash
# demo.sh: builds rdzvd and runs the demo against it; says why where it cannot run.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

if [ -e .venv/no-torch ]; then
    echo "The demo trains with PyTorch, which .venv lacks: $(cat .venv/no-torch)"
    echo "Put a python3.11 with venv on PATH, or name one: make demo PYTHON=/path/to/python3.11"
    exit 1
fi
heading "Building"
step "rdzvd: build" build daemon
exec .venv/bin/python examples/demo.py --rdzvd build/daemon/librdzv/rdzvd --out build/demo
