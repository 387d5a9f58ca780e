#!/usr/bin/env python3
"""Turns the text folder into what training reads: a tokenizer and arrays of token ids.

Writes into DATA:
  tokenizer.json       byte-level BPE in the format of the `tokenizers` library
  stories.npy          token ids (uint16), each document after <|endoftext|>; copies of each story with other names
  books.npy            the same for the books' chapters and the plays
  dialogue.npy         conversations, and dialogue_mask.npy: 1 where a token is the assistant's
  held_out.txt         stories kept out of training, one empty line between paragraphs and between stories; the pieces
                       that the file without capitals holds of a few of them are not recognised, and trained on
  held_out.npy, held_out_dialogue.npy, held_out_dialogue_mask.npy
  meta.json            counts
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from pathlib import Path

from augment import NameSwapper
from corpus import Corpus, read_corpus
from dialogue import DialogueMaker, Turn, tale_turns
from packages import packages

with packages():
    import numpy as np
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

BOS, USER, ASSISTANT, END = "<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"
SPECIALS = (BOS, USER, ASSISTANT, END)  # in this order they are the ids 0 to 3

# The expression that tokenizer.ggml.pre = "qwen2" stands for, as published with that tokenizer.
PRE_TOKENIZER = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(texts: list[str], vocab: int) -> Tokenizer:
    """A byte-level BPE vocabulary of `vocab` tokens, the special ones among them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENIZER), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != vocab:
        raise SystemExit(f"the text gives {tokenizer.get_vocab_size()} tokens only, {vocab} are wanted")
    return tokenizer


def special_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids of SPECIALS."""
    vocab = tokenizer.get_vocab()
    return [vocab[text] for text in SPECIALS]


def hold_out(corpus: Corpus, share: float) -> tuple[list[str], list[str]]:
    """(training stories, held out ones). Held out are stories as written, chosen by their hash: 2 % of all of them."""
    wanted = round(share * (len(corpus.cased) + len(corpus.recased)))
    by_hash = sorted(corpus.cased, key=lambda s: hashlib.sha256(s.encode()).hexdigest())
    held = by_hash[:wanted]
    kept = set(held)
    return [s for s in corpus.cased if s not in kept] + corpus.recased, held


def encode_documents(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    """All documents in one array, each after BOS."""
    bos = special_ids(tokenizer)[0]
    parts: list[int] = []
    for encoding in tokenizer.encode_batch(texts, add_special_tokens=False):
        parts.append(bos)
        parts.extend(encoding.ids)
    return np.array(parts, np.uint16)


def encode_dialogues(tokenizer: Tokenizer, talks: list[list[Turn]]) -> tuple[np.ndarray, np.ndarray]:
    """All conversations in one array in the form of the chat template, and which tokens the assistant says."""
    bos, user, assistant, end = special_ids(tokenizer)
    texts = [text for turns in talks for turn in turns for text in turn]
    encoded = iter(tokenizer.encode_batch(texts, add_special_tokens=False))
    ids: list[int] = []
    mask: list[int] = []
    for turns in talks:
        ids.append(bos)
        mask.append(1)  # that a conversation is over after an answer
        for _ in turns:
            wish, answer = next(encoded).ids, next(encoded).ids
            ids += [user, *wish, end, assistant, *answer, end]
            mask += [0] * (len(wish) + 3) + [1] * (len(answer) + 1)
    return np.array(ids, np.uint16), np.array(mask, np.uint8)


def is_whole(story: str) -> bool:
    """Whether a story begins as stories do; a few of the file without capitals were cut in two."""
    return len(story) >= 400 and story.startswith(("Once ", "One ", "There ", "Long ", "It was ", "In a ", "A ", "An "))


def copies_with_other_names(stories: list[str], names: NameSwapper, copies: int, rng: random.Random) -> list[str]:
    """The stories and copies - 1 versions of each, in random order."""
    out = list(stories)
    for _ in range(copies - 1):
        out += [names(story, rng) for story in stories]
    rng.shuffle(out)
    return out


def prepare(text: Path, out: Path, vocab: int, copies: int, seed: int) -> dict[str, int | str]:
    """Does it all; the counts that end up in meta.json."""
    rng = random.Random(seed)
    out.mkdir(parents=True, exist_ok=True)
    corpus = read_corpus(text)
    stories, held = hold_out(corpus, 0.02)
    tokenizer = train_tokenizer(stories + corpus.books[::3], vocab)
    tokenizer.save(str(out / "tokenizer.json"))

    names = NameSwapper(stories)
    maker = DialogueMaker(stories, names)
    told = copies_with_other_names(stories, names, copies, rng)
    talks = [maker.conversation(story, rng) for story in told if is_whole(story)]
    talks += [tale_turns(tale, rng) for tale in corpus.tales for _ in range(copies)]
    rng.shuffle(talks)
    arrays = {"stories": encode_documents(tokenizer, told), "books": encode_documents(tokenizer, corpus.books)}
    arrays["dialogue"], arrays["dialogue_mask"] = encode_dialogues(tokenizer, talks)
    held_talks = [maker.conversation(story, rng) for story in held]
    arrays["held_out_dialogue"], arrays["held_out_dialogue_mask"] = encode_dialogues(tokenizer, held_talks)
    held_text = "\n\n".join(held)
    (out / "held_out.txt").write_text(held_text + "\n")
    arrays["held_out"] = encode_documents(tokenizer, [held_text])
    for name, array in arrays.items():
        np.save(out / f"{name}.npy", array)

    meta: dict[str, int | str] = {
        "vocab": vocab,
        "stories": len(stories),
        "stories_as_written": len(corpus.cased) - len(held),
        "stories_recased": len(corpus.recased),
        "story_bytes": sum(map(len, stories)),
        "copies": copies,
        "held_out_stories": len(held),
        "held_out_bytes": len(held_text),
        "book_documents": len(corpus.books),
        "book_bytes": sum(len(b.encode()) for b in corpus.books),
        "dialogues": len(talks),
        **{f"{name}_tokens": int(a.size) for name, a in arrays.items() if not name.endswith("mask")},
    }
    (out / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
    (out / "dialogue_sample.txt").write_text(
        "\n\n".join(f"> {wish}\n{answer}" for turns in talks[:40] for wish, answer in turns) + "\n"
    )
    return meta


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, metavar="DIR", help="folder with the texts, plain or .xz")
    parser.add_argument("--out", type=Path, required=True, metavar="DATA", help="folder to write")
    parser.add_argument("--vocab", type=int, default=4096, help="tokens of the vocabulary (default 4096)")
    parser.add_argument("--copies", type=int, default=4, help="versions of each story, by names (default 4)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    meta = prepare(options.text, options.out, options.vocab, options.copies, options.seed)
    print(json.dumps(meta))


if __name__ == "__main__":
    main()
