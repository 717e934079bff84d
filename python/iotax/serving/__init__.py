"""Serves one volume to any client: the volume, its addresses, the admitted clients, and how they connect."""
