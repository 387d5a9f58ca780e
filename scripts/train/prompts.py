"""Prompts that the finished models are shown with. Nothing like them is trained on: wishes.py draws no wish that shares
two of their telling words, harvest.py drops stories that share a run of seven words."""

BEGINNINGS = (
    "Once upon a time, in a village between two rivers,",
    "One day, a small turtle found a golden key under a bridge.",
    "The old clock in the kitchen had stopped, and Grandma",
    "Nina and her brother wanted to build a boat out of",
    "It was raining, so Omar stayed inside and",
    "There was once a baker who made the best bread in",
    "A little hedgehog was looking for a place to sleep",
    "At the market, Priya saw a red umbrella that",
    "Leo did not want to share his new scooter. His sister",
    '"Who took my yellow boots?" asked the rabbit.',
)
WISHES = (
    "Tell me a story about a lighthouse and a whale.",
    "Tell me a story about a robot who wants to bake bread.",
    "Write a story about a boy named Oscar and a kite.",
    "Can you tell me a story about a penguin who lost a hat?",
    "Write a short story with the words violin, snow and grandfather.",
    "Hello!",
    "Tell me a story about two friends who build a boat.",
    "Please tell me a bedtime story about an owl who is afraid of the dark.",
)
