"""Measures the engine against other people's programs, in one run, in turns. README.md says how."""
