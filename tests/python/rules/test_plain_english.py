"""Phrases that readers stumbled over are kept out of pages, studies, reports, commands and comments."""

import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[3]
READ = (
    "*.md",
    "docs/**/*.md",
    "bench/*.md",
    "bench/page.py",
    "bench/table.py",
    "examples/*.yaml",
    "pyproject.toml",
    "python/iotax/__init__.py",
    *(f"python/iotax/{package}/**/*.{ext}" for package in ("cli", "report", "wording") for ext in ("py", "html")),
    "python/iotax/design/*.py",
    "python/iotax/study/*.py",
    "python/iotax/studies/*.yaml",
)
"""What users read, and the sources of such text."""
COMPARED = r"(longer|more|less|fewer|larger|smaller|finer|earlier|later|other|different|better|such|need|room|way)\b"
"""Words that may follow "is no"."""
AVOIDED = {
    r"\b(CPU|µs|time|bytes|instructions|sleeps) an I/O\b|\b(CPU|CPU time|price) of an I/O\b": "CPU per I/O, µs per I/O",
    r"\bcharged? for\b|\bcharges for\b": "what each I/O costs",
    r"\b(not|be) told (from|apart)\b|\btold from zero\b": "no significant difference from",
    r"\b(dearer|dearest|cheaper|cheapest)\b": "more, less CPU per I/O",
    r"\bbegun\b": "started",
    r"\bfor instance\b": "e.g.",
    r"\bmakes? it again\b|\bmade again\b": "reproduce",
    r"\bnot simply good\b": "findings",
    r"\bnot end well\b": "failed or interrupted",
    r"\bseen \d+ times in \d+\b": "minimum detectable difference (90 % power)",
    r"\bthere already\b": "already exists",
    r"\bcarry what drifts\b|\bwhat drifts\b": "include drift between blocks",
    r"\bmay know whom\b": "which module may depend on which",
    r"\bnone of us wrote\b|\bother people's\b": "third-party",
    r"\bcompletes in no time\b": "must be more than 0",
    r"\basks it for nothing\b": "no effect here",
    r"\bcannot tell \S+ main effects\b": "too few runs to estimate",
    r"\bdiffer by their seeds\b": "differ only by random seed",
    r"\bhang on what\b|\bhow far \w+ ratios hang\b": "how sensitive … are to",
    r"\bThe output's by its name\b": "from the extension of --output",
    r"\btold apart, never\b": "listed separately and not compared",
    r"\bat whose like\b": "with the protocol that ended the previous group",
    r"\bthat none or several could be\b": "if no worker, or more than one, matches",
    r"\b(world|setup)s? that cannot be\b": "impossible setups are rejected",
    r"\bwhat is full still takes\b": "a full buffer still accepts data",
    r"\bwhom a device knows\b": "how a device identifies",
    r"\bwhere it keeps equal ones once\b": "deduplication ratio",
    r"\bgo on with one sequential stream\b": "all workers share one sequential stream",
    r"\bby what each machine makes of them\b": "vary by machine",
    r"\bsettles less\b": "more comparisons are inconclusive",
    r"\bflattered\b|\bwithout a word\b": "plain words",
    r"\b(is|are) meant\b(?! (to|for))": "is expected",
    rf"(?<!there )\b(is|are|was|were) no (?!{COMPARED})[a-z]\w+": "is not a …",
}
"""Phrase → what to write in its place."""
AVOIDED_BY_USERS_PAGES = {
    r"\bdo(es)? without load\b": "the background without load",
    r"\bdisks that turn\b|\bturns a minute\b": "rotating disks, revolutions per minute",
    r"\b(shared|dealt) out among\b": "distributed over",
    r"\bfor want of\b": "because there is no …",
    r"\basked for whole\b": "allocated exclusively",
    r"\bless what\b": "minus …",
    r"\bwhat is aliased with what\b": "the aliases",
    r"\bas ever\b": "still",
    r"\bare two ends\b": "are bounds",
}
"""Further phrases for what users read; comments in the code may still contain them."""
AVOIDED_BY_COMMENTS = {
    r"\bNone where nobody\b": "None where it was not …",
    r"\bnobody('s business| is left to)\b": "name what is gone, or no longer matters",
    r"\bis somebody's too\b|\bsomebody's target\b": "name the owner",
    r"\b(be|are) dealt with\b": "handled",
    r"\bhears no line\b|\bhave heard by then\b|\bhas heard by then\b": "receives",
    r"\bwould not heed\b": "would ignore",
    r"\band whom it wants\b|\bwhom they are for\b": "name the receiver",
}
"""Further phrases for comments and docstrings."""


def avoided(text: str, phrases: dict[str, str] = AVOIDED) -> list[tuple[str, str]]:
    """Phrases found, each with its replacement; a phrase may span two lines."""
    words = re.sub(r"\s+", " ", text)
    return [(found[0], better) for phrase, better in phrases.items() for found in re.finditer(phrase, words, re.I)]


def test_what_users_read_is_plain_english() -> None:
    pages = sorted({path for pattern in READ for path in ROOT.glob(pattern)})
    assert len(pages) > 100
    found = [
        f"{page.relative_to(ROOT)}: {phrase!r}: write {better!r}"
        for page in pages
        for phrase, better in avoided(page.read_text(), AVOIDED | AVOIDED_BY_USERS_PAGES)
    ]
    assert not found, "\n".join(found)


def comments(path: Path) -> str:
    """Comments and docstrings; each line of code between them becomes an empty line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".rs":
        return "\n".join(
            line.strip().lstrip("/!") if line.strip().startswith("//") else "" for line in text.splitlines()
        )
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    kept = [
        token.string.strip("#")
        for token in tokens
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""'))
    ]
    return "\n\n".join(kept)


def test_what_maintainers_read_is_plain_english() -> None:
    code = sorted({path for pattern in ("python/iotax/**/*.py", "crates/*/src/**/*.rs") for path in ROOT.glob(pattern)})
    assert len(code) > 500
    texts = {path: comments(path) for path in code} | {
        path: path.read_text() for path in ROOT.glob("crates/**/README.md")
    }
    found = [
        f"{path.relative_to(ROOT)}: {phrase!r}: write {better!r}"
        for path, text in texts.items()
        for phrase, better in avoided(re.sub(r"`[^`]*`", "", text), AVOIDED | AVOIDED_BY_COMMENTS)
    ]
    assert not found, "\n".join(found)


def test_phrases_are_found_over_line_ends_and_in_any_case() -> None:
    assert [phrase for phrase, _ in avoided("Not told\nfrom iSCSI; 3 µs an I/O. For instance.")] == [
        "µs an I/O",
        "Not told from",
        "For instance",
    ]
    assert not avoided("No significant difference; CPU per I/O; an I/O that waits.")
