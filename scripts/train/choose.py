#!/usr/bin/env python3
"""Pairs better and worse answers of a model: choose.py --text TEXT --data DATA --out PAIRS.npz WISHES.jsonl ANSWERS...

WISHES is what `wishes.py --versions N` drew, ANSWERS what the model itself answered to it. Of the answers to one wish
one that harvest.py would keep is paired with one that it would drop: one that goes in circles, forgets what it is about
or whom, makes up words, or does not end. prefer.py teaches the model to prefer the one to the other.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
from pathlib import Path

import words as w
from corpus import read_corpus
from harvest import Judge, Row, Story, read_answers, read_rows, verdicts
from packages import packages
from prepare import hold_out, special_ids

with packages():
    import numpy as np
    from tokenizers import Tokenizer

FAULTS = ("circles", "off topic", "invented words", "unfinished")
PAIRS = 2  # of one wish


def words_known(stories: list[str], books: list[str]) -> frozenset[str]:
    """Words of at least three documents, and those that wishes are made of."""
    counts = collections.Counter(
        word for text in (*stories, *books) for word in set(re.findall(r"[a-z']+", text.lower()))
    )
    listed = (w.GIRLS, w.BOYS, w.ANIMALS, w.PEOPLE, w.OBJECTS, w.VERBS, w.LOOKS, w.ADJECTIVES)
    own = {part for words in listed for phrase in words for part in phrase.lower().split()}
    endings = {word + ending for word in own for ending in ("s", "'s")}
    return frozenset(word for word, n in counts.items() if n >= 3) | own | endings


class Encoder:
    """Token ids of what was asked and of what was answered, in the form of the chat template or plain."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._bos, self._user, self._assistant, self._end = special_ids(tokenizer)

    def __call__(self, story: Story) -> tuple[list[int], list[int]]:
        chat = story.row.wish is not None
        asked = self._ids(story.row.wish or story.row.beginning)
        if chat:
            asked = [self._user, *asked, self._end, self._assistant]
        answer = self._ids(story.text[len(story.row.beginning) :])
        stop = [self._end if chat else self._bos] if story.finish == "stop" else []
        return [self._bos, *asked], [*answer, *stop]

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids


def pairs_of(stories: list[Story], faults: list[str | None]) -> list[tuple[Story, Story]]:
    """(better, worse) of one wish. A worse one is not much longer, lest the model learns to be brief."""
    pairs = []
    worse = [s for s, fault in zip(stories, faults) if fault in FAULTS]
    better = [s for s, fault in zip(stories, faults) if fault is None]
    for bad, good in zip(worse[:PAIRS], better):
        if bad.finish != "stop" or len(good.text) >= 0.6 * len(bad.text):
            pairs.append((good, bad))
    return pairs


def read_stories(wishes: Path, answers: list[Path]) -> dict[str, list[Story]]:
    """By the number of the draw, in the order of its versions."""
    rows: dict[str, Row] = read_rows(wishes)
    found = {
        number: Story(rows[number], rows[number].beginning + text.rstrip(), finish)
        for path in answers
        for number, text, finish in read_answers(path)
    }
    groups: dict[str, list[Story]] = collections.defaultdict(list)
    for number in rows:
        if number in found:
            groups[number.split(".")[0]].append(found[number])
    return groups


def encode_pairs(pairs: list[tuple[Story, Story]], encoder: Encoder, longest: int) -> dict[str, np.ndarray]:
    """ids [2 * pairs, longest], better and worse in turn; where the answer begins, and where it ends."""
    kept = []
    for pair in pairs:
        encoded = [encoder(story) for story in pair]
        if all(len(asked) + len(answer) <= longest for asked, answer in encoded):
            kept += encoded
    ids = np.zeros((len(kept), longest), np.uint16)
    for row, (asked, answer) in zip(ids, kept):
        row[: len(asked) + len(answer)] = asked + answer
    begin = np.array([len(asked) for asked, _ in kept], np.int32)
    return {"ids": ids, "begin": begin, "end": begin + np.array([len(answer) for _, answer in kept], np.int32)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, metavar="DIR", help="the folder that prepare.py was given")
    parser.add_argument("--data", type=Path, required=True, metavar="DATA", help="the folder that prepare.py wrote")
    parser.add_argument("--out", type=Path, required=True, metavar="PAIRS.npz")
    parser.add_argument("--longest", type=int, default=320, help="tokens, the wish included (default 320)")
    parser.add_argument("wishes", type=Path, metavar="WISHES.jsonl")
    parser.add_argument("answers", type=Path, nargs="+", metavar="ANSWERS.jsonl")
    options = parser.parse_args()
    corpus = read_corpus(options.text)
    stories, held = hold_out(corpus, 0.02)
    groups = read_stories(options.wishes, options.answers)
    written = [story for group in groups.values() for story in group]
    judge = Judge(held, words_known(stories, corpus.books))
    faults = dict(zip(map(id, written), verdicts(written, judge)))
    pairs = [p for group in groups.values() for p in pairs_of(group, [faults[id(story)] for story in group])]
    arrays = encode_pairs(pairs, Encoder(Tokenizer.from_file(str(options.data / "tokenizer.json"))), options.longest)
    np.savez_compressed(options.out, **arrays)
    greedy = collections.Counter(str(faults[id(group[0])]) for group in groups.values())
    print(json.dumps({"pairs": len(arrays["ids"]) // 2, "greedy answers": greedy}))


if __name__ == "__main__":
    main()
