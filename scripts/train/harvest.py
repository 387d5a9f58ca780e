#!/usr/bin/env python3
"""Keeps the clean ones of the stories that the writer wrote: harvest.py --text TEXT --data DATA WISHES.jsonl ANSWERS...

ANSWERS are what `llm-run --batch WISHES.jsonl` wrote, in parts as it may be. A story is kept if it came to its own end,
has the words that it was to be about, goes in no circles, consists of plain characters, is no copy of another one, and
shares no run of words with what is held out or with the prompts that the models are shown with.

Writes into DATA, beside what prepare.py wrote there:
  synthetic.jsonl      the stories kept, with their wishes
  synthetic.npy        their token ids, each after <|endoftext|>
  wishes.npy           conversations, and wishes_mask.npy: 1 where a token is the assistant's
  harvest.json         how many were dropped, and why
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import prompts
from augment import NameSwapper
from corpus import letters_of, paragraphs, read_corpus
from dialogue import GO_ON, DialogueMaker, Turn
from packages import packages
from prepare import encode_dialogues, encode_documents, hold_out

with packages():
    import numpy as np
    from tokenizers import Tokenizer

SHORTEST, LONGEST = 350, 2000  # characters
RUN = 16  # words that a story may not share with a held out one
PROMPT_RUN = 7  # nor with a prompt
_WORD = re.compile(r"[a-z']+")


@dataclass(frozen=True)
class Row:
    """What was asked: a wish, or a beginning that the story includes."""

    wish: str | None
    beginning: str
    about: tuple[str, ...]


@dataclass(frozen=True)
class Story:
    """What was made of a row, and why it ended there."""

    row: Row
    text: str
    finish: str


def read_rows(path: Path) -> dict[str, Row]:
    rows = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        wish = row["messages"][0]["content"] if "messages" in row else None
        rows[row["id"]] = Row(wish, row.get("prompt", ""), tuple(row["id"].split("/")[1:]))
    return rows


def runs(words: list[str], length: int) -> Iterator[tuple[str, ...]]:
    return zip(*(words[i:] for i in range(length)))


def runs_of(texts: Iterable[str], length: int) -> set[tuple[str, ...]]:
    return {run for text in texts for run in runs(_WORD.findall(text.lower()), length)}


def is_circling(text: str, words: list[str]) -> bool:
    """Whether sentences or turns of phrase come back too often."""
    sentences = collections.Counter(s for s in re.split(r"(?<=[.!?])[\"']?\s+", text) if len(s) > 12)
    if sentences and sentences.most_common(1)[0][1] > 1:
        return True
    six = collections.Counter(runs(words, 6))
    if six.most_common(1)[0][1] > 2:
        return True
    # However simple a story is, 100 words in a row seldom have so few different ones.
    return any(len(set(words[i : i + 100])) < 48 for i in range(0, max(1, len(words) - 99), 25)) and len(words) >= 100


class Judge:
    """Says what is wrong with a story by itself, None if nothing is."""

    def __init__(self, held: list[str], known: frozenset[str] | None = None) -> None:
        """`known` are the words that may be used; any, where it is not given."""
        self._held = runs_of(held, RUN)
        self._known = known
        self._prompts = runs_of((*prompts.BEGINNINGS, *prompts.WISHES), PROMPT_RUN)

    def __call__(self, story: Story) -> str | None:
        text = story.text
        words = _WORD.findall(text.lower())
        if story.finish != "stop":
            return "unfinished"
        if not SHORTEST <= len(text) <= LONGEST:
            return "length"
        if not text.isascii() or re.search(r"[^A-Za-z0-9\s.,!?'\":;-]", text) or text[-1] not in ".!?\"'":
            return "characters"
        if text.count('"') % 2:
            return "quotes"
        if any(self._count(text, word) < (2 if i == 0 else 1) for i, word in enumerate(story.row.about)):
            return "off topic"
        if is_circling(text, words):
            return "circles"
        if self._known is not None and not self._known.issuperset(words):
            return "invented words"
        if self._held.intersection(runs(words, RUN)):
            return "held out"
        if self._prompts.intersection(runs(words, PROMPT_RUN)):
            return "prompt"
        return None

    @staticmethod
    def _count(text: str, word: str) -> int:
        stem = word[:-1] if word[-1] in "ys" and len(word) > 3 else word
        return len(re.findall(rf"\b{re.escape(stem)}", text, flags=re.I))


def read_answers(path: Path) -> Iterator[tuple[str, str, str]]:
    """(id, text, why it ended) of each row that was answered. A last line that was cut off is left out."""
    for line in path.read_text().splitlines():
        try:
            result = json.loads(line)
        except json.JSONDecodeError:
            continue
        if result["response"]:
            choice = result["response"]["body"]["choices"][0]
            text = choice["message"]["content"] if "message" in choice else choice["text"]
            yield result["custom_id"], text, choice["finish_reason"]


def conversation(story: Story, maker: DialogueMaker, rng: random.Random) -> list[Turn]:
    """Around the wish that the story answers; a story that was only begun gets a wish made of it."""
    if story.row.wish is not None:
        return maker.around((story.row.wish, story.text), story.text, rng)
    rest = story.text[len(story.row.beginning) :].strip()
    if rng.random() < 0.3:
        return maker.around((rng.choice(GO_ON).format(s=story.row.beginning), rest), story.text, rng)
    return maker.conversation(story.text, rng)


_judge: Judge  # of a worker process


def _hire(judge: Judge) -> None:
    global _judge
    _judge = judge


def _verdict(story: Story) -> str | None:
    return _judge(story)


def verdicts(stories: list[Story], judge: Judge) -> list[str | None]:
    """What is wrong with each, by as many processes as there are processors."""
    with multiprocessing.Pool(initializer=_hire, initargs=(judge,)) as pool:
        return list(pool.imap(_verdict, stories, chunksize=200))


def harvest(stories: list[Story], judge: Judge) -> tuple[list[Story], dict[str, int]]:
    """The stories kept, and counts."""
    counts: collections.Counter[str] = collections.Counter()
    seen: set[str] = set()
    kept = []
    for story, wrong in zip(stories, verdicts(stories, judge)):
        start = letters_of(story.text)[:100]
        if not wrong and start in seen:
            wrong = "copy"
        counts[wrong or "kept"] += 1
        if not wrong:
            seen.add(start)
            kept.append(story)
    return kept, dict(counts)


def write(data: Path, kept: list[Story], maker: DialogueMaker, rng: random.Random) -> dict[str, int]:
    tokenizer = Tokenizer.from_file(str(data / "tokenizer.json"))
    with (data / "synthetic.jsonl").open("w") as file:
        for story in kept:
            file.write(
                json.dumps({"wish": story.row.wish, "beginning": story.row.beginning, "text": story.text}) + "\n"
            )
    arrays: dict[str, np.ndarray] = {"synthetic": encode_documents(tokenizer, [s.text for s in kept])}
    talks = [conversation(story, maker, rng) for story in kept]
    arrays["wishes"], arrays["wishes_mask"] = encode_dialogues(tokenizer, talks)
    for name, array in arrays.items():
        np.save(data / f"{name}.npy", array)
    return {"bytes": sum(len(s.text) for s in kept), **{f"{n}_tokens": int(a.size) for n, a in arrays.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, metavar="DIR", help="the folder that prepare.py was given")
    parser.add_argument("--data", type=Path, required=True, metavar="DATA", help="the folder that prepare.py wrote")
    parser.add_argument("wishes", type=Path, metavar="WISHES.jsonl")
    parser.add_argument("answers", type=Path, nargs="+", metavar="ANSWERS.jsonl")
    options = parser.parse_args()
    stories, held = hold_out(read_corpus(options.text), 0.02)
    rows = read_rows(options.wishes)
    written = [
        Story(rows[number], paragraphs(rows[number].beginning + text), finish)
        for path in options.answers
        for number, text, finish in read_answers(path)
    ]
    kept, counts = harvest(written, Judge(held))
    if not kept:
        raise SystemExit(f"no story was kept: {counts}")
    maker = DialogueMaker(stories, NameSwapper(stories))
    counts |= write(options.data, kept, maker, random.Random(1))
    (options.data / "harvest.json").write_text(json.dumps(counts, indent=1) + "\n")
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
