"""Turns stories into conversations: a wish that fits the story, the story as the answer, questions about it.

What a story is about is found without a parser: the words that introduce its hero ("a little girl named Lily") and its
nouns that are frequent here and rare elsewhere. A word is taken for a noun by where it stands in all the stories.
"""

from __future__ import annotations

import collections
import math
import random
import re
from dataclasses import dataclass

from augment import NameSwapper
from corpus import Tale

Turn = tuple[str, str]  # what the user says, what is answered

WISHES = (
    "Tell me a story about {x}.", "Tell me a short story about {x}.", "Can you tell me a story about {x}?",
    "Please tell me a story about {x}.", "Write a story about {x}.", "Write a short story about {x}.",
    "Can you write a story about {x}?", "I want to hear a story about {x}.", "I would like a story about {x}.",
    "Do you know a story about {x}?", "Could you tell me a story about {x}, please?", "Make up a story about {x}.",
    "A story about {x}, please.", "Tell a story about {x}", "Tell me about {x}.", "Let's have a story about {x}.",
    "Write me a bedtime story about {x}.", "Tell my child a story about {x}.", "story about {x}", "{X}",
)  # fmt: skip
WORD_WISHES = (
    "Write a story with the words {w}.", "Tell me a story with the words {w}.", "Use the words {w} in a story.",
    "Can you write a short story that uses the words {w}?",
)  # fmt: skip
OPEN_WISHES = (
    "Tell me a story.", "Tell me a story", "Can you tell me a story?", "I want to hear a story.",
    "Write a short story.", "Please tell me a bedtime story.", "Do you know a story?", "Another story, please.",
    "Tell me something nice.",
)  # fmt: skip
GO_ON = (
    "Go on with this story: {s}",
    "Continue the story: {s}",
    "How does this story go on? {s}",
    "What happens next? {s}",
)
TALE_WISHES = (
    "Tell me {x}.", "Tell me the story of {x}.", "Do you know the fable of {x}?", "Tell me the tale of {x}.",
    "Can you tell me a fable about {x}?",
)  # fmt: skip
WHO = ("Who is in the story?", "Who was the story about?", "What are their names?", "Who were they?")
ENDING = ("How does the story end?", "What happens at the end?", "And how did it end?", "Tell me the end again.")
GREETINGS = (
    "Hello!",
    "Hi!",
    "Hello",
    "Hi",
    "Hi there!",
    "Hey",
    "Good morning!",
    "Good evening!",
    "Hello, how are you?",
)
WELCOME = (
    "Hello! What should my story be about?", "Hello! I can tell you a story. What should it be about?",
    "Hi! Do you want to hear a story?", "Hello! I like to tell stories. Who should be in the next one?",
)  # fmt: skip
THANKS = ("Thank you!", "Thanks!", "Thank you, that was nice.", "That was a good story!", "I like that story.")
NOT_AT_ALL = (
    "You are welcome! Do you want another story?", "I am glad that you like it! What should the next one be about?",
    "You are welcome! Good night, and sweet dreams.",
)  # fmt: skip
ABOUT_ME = ("Who are you?", "What are you?", "What can you do?", "What is your name?", "Are you a person?")
I_AM = (
    "I am Fable, a small language model. I tell stories for children. What should my next story be about?",
    "My name is Fable. I am a small language model that tells stories. Tell me who should be in it!",
)  # fmt: skip

_WORD = re.compile(r"[a-z]+")
_HERO = re.compile(r"\b(?:a|an) (?:[a-z]+ ){1,3}(?:named|called) [A-Z][a-z]+\b")
# Nouns that say nothing about a story.
DULL = frozenset(
    "day time lot way thing things one end moment story while bit place idea something everyone it name kind side part "
    "lesson hurry size cross stand fair reminder minute night morning fun home good best world first next other more "
    "new same us".split()
)


@dataclass(frozen=True)
class Noun:
    """A noun of the stories: its article if it takes one, and in how many stories it is."""

    article: str
    stories: int


def find_nouns(stories: list[str]) -> dict[str, Noun]:
    """Words that follow an article and are followed by an end or by a verb or preposition, as a noun does."""
    text = "\n".join(stories)
    after = r"(?=[.,!?]|\s+(?:was|is|had|and|to|in|on|of|that|who|with|for|from|named|came|said)\b)"
    with_article = collections.Counter(re.findall(rf"\b(an?|the) ([a-z]{{3,}}){after}", text))
    shown: collections.Counter[str] = collections.Counter()
    articles: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for (article, word), n in with_article.items():
        shown[word] += n
        articles[word][article] += n
    total = collections.Counter(_WORD.findall(text))
    spread = collections.Counter(w for s in stories for w in set(_WORD.findall(s)))
    nouns = {}
    for word, n in shown.items():
        if n < 4 or n < 0.12 * total[word] or word in DULL or word.endswith(("ing", "ed", "ly", "est")):
            continue
        indefinite = articles[word]["a"] + articles[word]["an"]
        best = max(("a", "an"), key=lambda a: articles[word][a])
        nouns[word] = Noun(best if indefinite >= 0.1 * n else "the", spread[word])
    return nouns


class DialogueMaker:
    """Makes conversations of stories; what it draws comes from the generator that each call is given."""

    def __init__(self, stories: list[str], names: NameSwapper) -> None:
        self._nouns = find_nouns(stories)
        self._count = len(stories)
        self._names = names

    def nouns_of(self, story: str, most: int = 4) -> list[str]:
        """The nouns that set this story apart, most telling first."""
        counts = collections.Counter(w for w in _WORD.findall(story) if w in self._nouns)
        weight = {w: n * math.log(self._count / self._nouns[w].stories) for w, n in counts.items()}
        return sorted(weight, key=lambda w: -weight[w])[:most]

    def conversation(self, story: str, rng: random.Random) -> list[Turn]:
        """One to three turns about one story."""
        kind = rng.random()
        if kind < 0.07:
            turn = (rng.choice(OPEN_WISHES), story)
        elif kind < 0.15:
            turn = self._go_on(story, rng)
        elif kind < 0.27:
            turn = self._with_words(story, rng)
        else:
            turn = self._about(story, rng)
        return self.around(turn, story, rng)

    def around(self, turn: Turn, story: str, rng: random.Random) -> list[Turn]:
        """A wish and its story, at times with a greeting before or a question after."""
        turns = [turn]
        if rng.random() < 0.06:
            turns.insert(0, (rng.choice(GREETINGS), rng.choice(WELCOME)))
        if rng.random() < 0.02:
            turns.insert(0, (rng.choice(ABOUT_ME), rng.choice(I_AM)))
        follow = rng.random()
        names = self._names.names_in(story)
        if follow < 0.08 and names:
            turns.append((rng.choice(WHO), who_answer(names[:3])))
        elif follow < 0.13:
            turns.append((rng.choice(ENDING), story.split("\n\n")[-1]))
        elif follow < 0.20:
            turns.append((rng.choice(THANKS), rng.choice(NOT_AT_ALL)))
        return [(varied(wish, rng), answer) for wish, answer in turns]

    def _about(self, story: str, rng: random.Random) -> Turn:
        hero = _HERO.search(story[:400])
        nouns = self.nouns_of(story)
        names = self._names.names_in(story)
        topics = [self._phrase(w) for w in nouns[:3]]
        if len(nouns) > 1:
            topics.append(f"{self._phrase(nouns[0])} and {self._phrase(nouns[1])}")
        if hero:
            topics += [hero[0], hero[0]]
            topics += [f"{hero[0]} and {self._phrase(w)}" for w in nouns[:1]]
        if names:
            topics.append(names[0] if len(names) < 2 or rng.random() < 0.5 else f"{names[0]} and {names[1]}")
        if not topics:
            return rng.choice(OPEN_WISHES), story
        topic = rng.choice(topics)
        return rng.choice(WISHES).format(x=topic, X=topic[0].upper() + topic[1:]), story

    def _with_words(self, story: str, rng: random.Random) -> Turn:
        words = self.nouns_of(story, 6)
        if len(words) < 3:
            return self._about(story, rng)
        chosen = rng.sample(words, 3)
        marked = [f'"{w}"' for w in chosen] if rng.random() < 0.3 else chosen
        return rng.choice(WORD_WISHES).format(w=f"{marked[0]}, {marked[1]} and {marked[2]}"), story

    def _go_on(self, story: str, rng: random.Random) -> Turn:
        ends = [m.end() for m in re.finditer(r"[.!?] ", story[: len(story) // 2])]
        if not ends:
            return rng.choice(OPEN_WISHES), story
        cut = rng.choice(ends[:4])
        return rng.choice(GO_ON).format(s=story[:cut].strip()), story[cut:].strip()

    def _phrase(self, noun: str) -> str:
        return f"{self._nouns[noun].article} {noun}"


def who_answer(names: list[str]) -> str:
    """A sentence that says who is in the story."""
    if len(names) == 1:
        return f"The story is about {names[0]}."
    return f"The story is about {', '.join(names[:-1])} and {names[-1]}."


def varied(wish: str, rng: random.Random) -> str:
    """People type as they please: sometimes no capital, sometimes no full stop."""
    draw = rng.random()
    if draw < 0.12:
        wish = wish[0].lower() + wish[1:]
    if draw < 0.06 or draw > 0.94:
        wish = wish.rstrip(".")
    return wish


def tale_turns(tale: Tale, rng: random.Random) -> list[Turn]:
    """A classic tale, asked for by its title."""
    return [(varied(rng.choice(TALE_WISHES).format(x=tale.title), rng), tale.text)]
