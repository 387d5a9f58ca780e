"""Reads the text folder and turns each file into clean documents: stories, book chapters, plays.

Owns what is particular to the files: their separators, typography, damaged characters, and one file that lost its
capitals. Knows nothing of tokens or models.
"""

from __future__ import annotations

import collections
import lzma
import re
from dataclasses import dataclass
from pathlib import Path

STORY_END = "<|endoftext|>"
SHORTEST_STORY = 150  # characters; shorter ones are fragments

# UTF-8 read as Windows-1252, in either case, then typographic characters that a 4,096 token vocabulary has no room for.
REPAIRS = (
    ("â€œ", '"'), ("â€™", "'"), ("â€˜", "'"), ("â€“", "-"), ("â€”", " - "), ("â€¦", "..."), ("â€", '"'),
    ("“", '"'), ("”", '"'), ("«", '"'), ("»", '"'), ("’", "'"), ("‘", "'"), ("…", "..."), ("—", "--"), ("–", "-"),
    ("\u00a0", " "), ("\ufeff", ""), ("\r", ""),
)  # fmt: skip
SPEECH = "said|asked|cried|shouted|replied|exclaimed|yelled|whispered|answered|laughed|called|thought|screamed|squeaked"


@dataclass(frozen=True)
class Tale:
    """A short piece that has a title: a fable, a fairy tale."""

    title: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """Everything in the folder. `cased` stories are as their authors wrote them, `recased` got their capitals back."""

    cased: list[str]
    recased: list[str]
    books: list[str]
    tales: list[Tale]


def read_text(path: Path) -> str:
    """The text of a plain or .xz file, with its typography repaired."""
    data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    text = data.decode("utf-8", errors="replace")
    for wrong, right in REPAIRS:
        text = text.replace(wrong, right)
    return text


def paragraphs(text: str) -> str:
    """One blank line between paragraphs, whatever the source has, and single spaces."""
    lines = (re.sub(r"\s+", " ", line).strip() for line in text.split("\n"))
    return "\n\n".join(line for line in lines if line)


def letters_of(text: str) -> str:
    """What two copies of a story have in common, whatever their case, spacing and punctuation."""
    return re.sub(r"[^a-z]+", "", text.lower())


def is_sound(story: str) -> bool:
    """Whether a story is long enough, ends like one and consists of plain characters."""
    return len(story) >= SHORTEST_STORY and story[-1] in ".!?\"'" and story.isascii()


def separated_stories(text: str) -> list[str]:
    """Stories of a file with a separator; the text after the last one was cut off by the sample's size."""
    return [s for s in map(paragraphs, text.split(STORY_END)[:-1]) if is_sound(s)]


def lowercase_stories(text: str) -> list[str]:
    """Stories of the file without capitals: single line feeds between stories, empty lines between paragraphs."""
    parts = re.split(r"(?<!\n)\n(?!\n)", text.replace(" \n", "\n"))
    return [s for s in map(paragraphs, parts[:-1]) if is_sound(s)]


class Recaser:
    """Gives capitals back: sentence starts by rule, names by how the cased stories write them."""

    def __init__(self, cased: list[str]) -> None:
        upper: collections.Counter[str] = collections.Counter()
        lower: collections.Counter[str] = collections.Counter()
        for word in re.findall(r"(?<=[a-z,] )[A-Za-z]+", "\n".join(cased)):
            (upper if word[0].isupper() else lower)[word.lower()] += 1
        self._names = {w for w, n in upper.items() if n >= 2 and n > lower[w]}
        self._common = {w for w, n in lower.items() if n >= 3}

    def __call__(self, story: str) -> str:
        names = self._names | self._introduced(story)
        story = re.sub(r"[a-z]+", lambda m: m[0].capitalize() if m[0] in names else m[0], story)
        story = re.sub(r"\bi\b", "I", story)
        story = re.sub(r"(^|\n|[.!?] +|[.]\" +|(?:^|[\s])[\"'])([a-z])", lambda m: m[1] + m[2].upper(), story)
        # After !" and ?" a new sentence starts, unless it is told who spoke.
        who = rf"(?:(?:he|she|it|they|the|his|her|my|their|a|an)\b[ \w]{{0,20}}?)?[A-Z]?\w* ?\b(?:{SPEECH})\b"
        return re.sub(rf"([!?]\" +)(?!{who})([a-z])", lambda m: m[1] + m[2].upper(), story)

    def _introduced(self, story: str) -> set[str]:
        found = re.findall(r"\b(?:named|name was|name is) ([a-z]+)", story)
        return {w for w in found if w not in self._common}


def book_sections(text: str) -> list[tuple[str, str, str]]:
    """(book, heading, text) of each chapter of the collection of books, which marks its headings by #."""
    sections: list[tuple[str, str, str]] = []
    for book in re.split(r"^# Title: *", text, flags=re.M)[1:]:
        name, _, rest = book.partition("\n")
        for part in re.split(r"^#{2,}(?= )", rest, flags=re.M)[1:]:
            heading, _, body = part.partition("\n")
            heading = heading.strip(" #-")
            if heading.startswith(("Author:", "Year:")) and len(body) < 400:
                continue
            body = re.sub(r"^[\s*\-_]+$|^\[.*\]$", "", body.replace("_", ""), flags=re.M)
            body = re.sub(r"[ \t]+$", "", body, flags=re.M)
            body = re.sub(r"\n{3,}", "\n\n", body).strip()
            if len(body) > SHORTEST_STORY:
                sections.append((name.strip(), heading, body))
    return sections


def tales_of(sections: list[tuple[str, str, str]], longest: int = 2500) -> list[Tale]:
    """Sections short enough to be an answer, from the books that collect tales with titles of their own."""
    collections_ = ("Aesop's Fables", "Grimms' Fairy Tales")
    tales = []
    for book, heading, body in sections:
        if book in collections_ and len(body) <= longest and re.fullmatch(r"[A-Z ,'\-]+", heading):
            tales.append(Tale(heading.lower().replace(",", ""), paragraphs(body)))
    return tales


def without_copies(stories: list[str], seen: set[str]) -> list[str]:
    """Stories whose letters, all of them or the first 120, are new; `seen` learns them."""
    kept = []
    for story in stories:
        letters = letters_of(story)
        if letters in seen or letters[:120] in seen:
            continue
        seen.update((letters, letters[:120]))
        kept.append(story)
    return kept


def read_corpus(folder: Path) -> Corpus:
    """All files of the folder, by what their names say they hold."""
    cased: list[str] = []
    lower: list[str] = []
    books: list[str] = []
    tales: list[Tale] = []
    for path in sorted(folder.iterdir()):
        if "tinystories" in path.name and "lowercase" in path.name:
            lower += lowercase_stories(read_text(path))
        elif "tinystories" in path.name:
            cased += separated_stories(read_text(path))
        elif "classic_books" in path.name:
            sections = book_sections(read_text(path))
            books += [f"{heading}\n\n{body}" for _, heading, body in sections]
            tales += tales_of(sections)
        elif "shakespeare" in path.name:
            text = read_text(path)
            books += [text[i : i + 20000] for i in range(0, len(text), 20000)]
    if not cased:
        raise SystemExit(f"{folder}: no tinystories file in it")
    seen: set[str] = set()
    cased = without_copies(cased, seen)
    recaser = Recaser(cased)
    return Corpus(cased, [recaser(s) for s in without_copies(lower, seen)], books, tales)
