#!/usr/bin/env python3
"""Draws what the writer is asked for: wishes.py --rows N --out wishes.jsonl

Each line is a row of `llm-run --batch`: a wish in a conversation, or the beginning of a story. Its id lists, after the
row's number, the words that the story has to be about: harvest.py drops stories that are not.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from dataclasses import dataclass
from pathlib import Path

import prompts
import words as w
from dialogue import OPEN_WISHES, WISHES, WORD_WISHES, varied

COMMON = frozenset("a an and the of to in is was who with his her two me story tell about once one day time so".split())


@dataclass(frozen=True)
class Draw:
    """A text, and the words that what follows has to have."""

    text: str
    about: tuple[str, ...]


def telling_words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+", text.lower())) - COMMON


SHOWN = [telling_words(text) for text in (*prompts.BEGINNINGS, *prompts.WISHES)]


def is_like_a_prompt(text: str) -> bool:
    """Whether it shares two telling words with a prompt that the finished models are shown with."""
    found = telling_words(text)
    return any(len(found & shown) >= 2 for shown in SHOWN)


def article(phrase: str) -> str:
    return f"{'an' if phrase[0] in 'aeiou' else 'a'} {phrase}"


class Drawer:
    """Wishes and beginnings, from one random generator."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def one(self, items: list[str] | tuple[str, ...]) -> str:
        return self.rng.choice(items)

    def hero(self) -> str:
        draw = self.rng.random()
        return self.one(w.ANIMALS) if draw < 0.55 else self.one(w.PEOPLE) if draw < 0.9 else self.one(w.OBJECTS)

    def name(self) -> str:
        return self.one(w.GIRLS if self.rng.random() < 0.5 else w.BOYS)

    def child(self) -> tuple[str, str]:
        """A phrase and the name in it."""
        girl = self.rng.random() < 0.5
        name = self.one(w.GIRLS if girl else w.BOYS)
        return f"a {self.one(('', 'little ', 'young ', ''))}{'girl' if girl else 'boy'} named {name}", name

    def deed(self) -> Draw:
        """What follows "who"."""
        thing = self.one(w.OBJECTS)
        draw = self.rng.random()
        if draw < 0.35:
            return Draw(f"wants to {self.one(w.WANTS)}", ())
        if draw < 0.45:
            return Draw(f"is afraid of {self.one(w.FEARS)}", ())
        if draw < 0.55:
            return Draw(f"can not {self.one(w.CANNOTS)}", ())
        if draw < 0.7:
            return Draw(self.one(w.HABITS), ())
        verb = self.one(("lost", "found", "wants", "makes", "finds", "has", "breaks", "needs", "loves"))
        return Draw(
            f"{verb} {article(self.one(w.LOOKS) + ' ' + thing if self.rng.random() < 0.3 else thing)}", (thing,)
        )

    def topic(self) -> Draw:
        """What a story is wished to be about."""
        hero, thing, deed = self.hero(), self.one(w.OBJECTS), self.deed()
        a_hero = article(f"{self.one(w.ADJECTIVES)} {hero}" if self.rng.random() < 0.4 else hero)
        child, name = self.child()
        draw = self.rng.random()
        if draw < 0.22:
            return Draw(f"{a_hero} and {article(thing)}", (hero, thing))
        if draw < 0.46:
            return Draw(f"{a_hero} who {deed.text}", (hero, *deed.about))
        if draw < 0.56:
            return Draw(f"{child} who {deed.text}", (name, *deed.about))
        if draw < 0.66:
            return Draw(f"{child} and {article(thing)}", (name, thing))
        if draw < 0.74:
            other = self.one(w.ANIMALS)
            return Draw(f"{a_hero} and {article(other)}", (hero, other))
        if draw < 0.80:
            return Draw(f"{article(hero)} named {name}", (hero, name))
        if draw < 0.86:
            return Draw(f"{a_hero} {self.one(w.PLACES)}", (hero,))
        if draw < 0.90:
            return Draw(f"{name} and {self.name()}", (name,))
        if draw < 0.95:
            return Draw(a_hero, (hero,))
        return Draw(article(f"{self.one(w.LOOKS)} {thing}"), (thing,))

    def wish(self) -> Draw:
        draw = self.rng.random()
        if draw < 0.04:
            return Draw(self.one(OPEN_WISHES), ())
        if draw < 0.16:
            chosen = [self.one(w.OBJECTS + w.ANIMALS), self.one(w.VERBS), self.one(w.ADJECTIVES + w.ANIMALS)]
            self.rng.shuffle(chosen)
            text = self.one(WORD_WISHES).format(w=f"{chosen[0]}, {chosen[1]} and {chosen[2]}")
            return Draw(varied(text, self.rng), tuple(c for c in chosen if c not in w.VERBS))
        topic = self.topic()
        text = self.one(WISHES).format(x=topic.text, X=topic.text[0].upper() + topic.text[1:])
        return Draw(varied(text, self.rng), topic.about)

    def beginning(self) -> Draw:
        """The first words of a story."""
        rng = self.rng
        hero, thing, other = self.one(w.ANIMALS + w.PEOPLE), self.one(w.OBJECTS), self.one(w.ANIMALS)
        girl = rng.random() < 0.5
        name = self.one(w.GIRLS if girl else w.BOYS)
        she, her = ("she", "her") if girl else ("he", "his")
        look, place, mood, relative = (
            self.one(w.LOOKS),
            self.one(w.PLACES),
            self.one(w.ADJECTIVES),
            self.one(w.RELATIVES),
        )
        place_first = place[0].upper() + place[1:]
        a_hero, a_thing = article(f"{mood} {hero}"), article(f"{look} {thing}")
        day, want = self.one(w.WEATHER), self.one(w.WANTS)
        texts = (
            (f"Once upon a time, there was {a_hero} who", (hero,)),
            (f"Once upon a time, {a_hero} lived {place}.", (hero,)),
            (f"Once there was {a_hero} and {article(other)}.", (hero, other)),
            (f"One {day} day, {name} went outside and saw {a_thing}.", (name, thing)),
            (f"{name} had {a_thing}.", (name, thing)),
            (f"{name} and {her} {relative} were {place}.", (name,)),
            (f"{name} wanted to {want}, but", (name,)),
            (f"{name}'s {relative} gave {'her' if girl else 'him'} {a_thing}.", (name, thing)),
            (f"{place_first}, there lived {a_hero} named {name}.", (hero, name)),
            (f"{place_first}, {name} heard a strange sound.", (name,)),
            (f"The {hero} was very {mood} because", (hero,)),
            (f"The {other} and the {hero} were best friends.", (other, hero)),
            (f'"I want to {want}," said {name}.', (name,)),
            (f'"What is that?" said the {hero}. It was {a_thing}', (hero, thing)),
            (f'"Can you help me?" said the {other} to {name}.', (other, name)),
            (f"Every day, {name} and the {hero}", (name, hero)),
            (f"Long ago, a {hero} lost {a_thing}", (hero, thing)),
            (f"A {look} {thing} stood {place}.", (thing,)),
            (f"One night, {name} could not sleep, so {she}", (name,)),
            (f"{name} was {article(self.one(w.ADJECTIVES))} {'girl' if girl else 'boy'} who", (name,)),
            (f"On {her} birthday, {name} got {a_thing}", (name, thing)),
            (f"Far away, {place}, {a_hero}", (hero,)),
            (f"Nobody knew why the {hero} was so {mood}.", (hero,)),
            (f"It was a {day} day, and the {hero}", (hero,)),
        )
        return Draw(*rng.choice(texts))


def rows(number: int, drawer: Drawer, options: argparse.Namespace) -> list[dict[str, object]]:
    """The lines for one draw: in a share of them a wish, else a beginning. Of several versions the first is greedy."""
    rng = drawer.rng
    draw = rng.random()
    is_wish = draw < options.wishes
    while True:
        drawn = drawer.wish() if is_wish else drawer.beginning() if draw < 0.97 else Draw("Once upon a time", ())
        if not is_like_a_prompt(drawn.text):
            break
    ask: dict[str, object] = {"prompt": drawn.text}
    if is_wish:
        ask = {"messages": [{"role": "user", "content": drawn.text}]}
    about = "".join(f"/{word}" for word in drawn.about)
    out = []
    for version in range(options.versions):
        greedy = options.greedy or (options.versions > 1 and version == 0)
        temperature = 0 if greedy else rng.choice((0.6, 0.7, 0.8, 0.9))
        place = f"{number}.{version}" if options.versions > 1 else str(number)
        out.append({"id": place + about, **ask, "max_tokens": options.most, "temperature": temperature})
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, required=True, metavar="N", help="how many to draw")
    parser.add_argument("--versions", type=int, default=1, help="lines for each, the first greedy (default 1)")
    parser.add_argument("--wishes", type=float, default=0.68, help="share of wishes (default 0.68)")
    parser.add_argument("--most", type=int, default=440, help="tokens of an answer at most (default 440)")
    parser.add_argument("--greedy", action="store_true", help="every line at temperature 0, to judge a model")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, metavar="wishes.jsonl")
    options = parser.parse_args()
    drawer = Drawer(random.Random(options.seed))
    with options.out.open("w") as file:
        for number in range(options.rows):
            for row in rows(number, drawer, options):
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
