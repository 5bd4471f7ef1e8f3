# The front door: what a person types. The work is done by CMake, ctest, pytest and scripts/.
.DEFAULT_GOAL := help
.PHONY: help setup demo check check-full bench bench-store lint format clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: ## install what is missing: packages, .venv, the rallypoint package
	@scripts/setup.sh

demo: ## train on two nodes, kill one, see it come back: build/demo/timeline.png
	@scripts/setup.sh build libraries python
	@scripts/demo.sh

check: setup ## every suite with gcc, clang and the sanitizers
	@scripts/check.sh

check-full: setup ## check, the other presets, slow tests and FUZZ_SECONDS=600 of fuzzing
	@scripts/check.sh full

bench: setup ## run tests/bench, one JSON line each
	@scripts/bench.sh

bench-store: setup ## the store beside PyTorch's own server; QUICK=1 takes less than two minutes
	@tests/bench/store/run.sh

lint: setup ## clang-tidy, clang-format, mandoc, shellcheck; LINT=--changed for your changes only
	@scripts/lint.sh $(LINT)

format: setup ## let clang-format rewrite all C files
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean: ## remove build/ (.venv stays)
	@rm -rf build
