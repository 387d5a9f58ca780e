"""Names of children in the stories, and copies of a story with other names.

A few thousand stories teach a model by heart who did what; copies in which the names are drawn anew, as often as each
name occurs, leave it the plot and the grammar.
"""

from __future__ import annotations

import collections
import random
import re

GIRLS = (
    "Lily Sue Mia Lucy Anna Sara Jane Sarah Daisy Sally Molly Amy Kitty Lila Jill Mary Jen Emma Jenny Bella Ella "
    "Susie Lisa Polly Elly Sandy Luna Lulu Rosie Emily Ann Lola Kate Cindy Sophie Julie Lilly Penny Mimi Dolly "
    "Michelle Tilly Rina Rachel Lizzie Alice Milly Tina Chloe Abby Liz Isabel Ruby Annie Claire Gina Ellie Betty "
    "Zara Nora Rita Betsy Julia Kelly Kayla Holly Jenna Jessica Anne Meg Lina Jasmine"
).split()
BOYS = (
    "Tim Tom Ben Max Sam Timmy Jack Bob John Joe Tommy Billy Jake Andy Leo Benny Bobby Jimmy Jim Alex Pete Remy "
    "Fred Jerry Sammy Teddy Bill James Henry Peter Dave Gary Frank Toby Danny George Lee Charlie Joey Ollie "
    "Oliver Ted Harry Rob Thomas Ralph Todd Stan Josh Chris Carl Gavin"
).split()

_WORD = re.compile(r"[A-Za-z]+")


class NameSwapper:
    """Draws new names for the children of a story, each from the names of the same kind."""

    def __init__(self, stories: list[str]) -> None:
        counts = collections.Counter(w for s in stories for w in set(_WORD.findall(s)))
        self._lists = [list(dict.fromkeys(names)) for names in (GIRLS, BOYS)]
        self._weights = [[counts[name] + 1 for name in names] for names in self._lists]
        self._kind = {name: kind for kind, names in enumerate(self._lists) for name in names}

    def names_in(self, story: str) -> list[str]:
        """The known names of a story, most frequent first."""
        counts = collections.Counter(w for w in _WORD.findall(story) if w in self._kind)
        return [name for name, _ in counts.most_common()]

    def __call__(self, story: str, rng: random.Random) -> str:
        """The story with every known name replaced, two by two different."""
        taken = {w for w in _WORD.findall(story) if w[0].isupper()}
        new: dict[str, str] = {}
        for name in self.names_in(story):
            kind = self._kind[name]
            drawn = rng.choices(self._lists[kind], self._weights[kind])[0]
            if drawn not in taken:
                new[name] = drawn
                taken.add(drawn)
        return _WORD.sub(lambda m: new.get(m[0], m[0]), story)
