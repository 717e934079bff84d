"""Compares the engine with third-party programs, in one run, in turns. README.md describes the method."""
