"""The parts of examples/demo.py: processes, scenes, report and picture."""
