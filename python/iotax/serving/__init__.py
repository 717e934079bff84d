"""One volume for anybody's clients: what is served, where, to which clients, and how they reach it."""
