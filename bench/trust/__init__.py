"""How far the statistics can be trusted: real runs without any difference, or with a known cost injected."""
