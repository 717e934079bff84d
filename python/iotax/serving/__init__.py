"""One volume for anybody's clients: what is served, where, to whom, and how clients reach it."""
