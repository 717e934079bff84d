"""How far the statistics can be trusted: real runs in which nothing differs, or in which a known cost was put in."""
