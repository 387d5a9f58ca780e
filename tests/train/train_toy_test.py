"""The whole way at toy size: texts, tokens, 20 steps, GGUF. The programs compute the trained model's logits and split
the held out text into the tokens of the training."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import tempfile
from pathlib import Path

from common import SCRIPTS, bin_folder, check, np, program_logits, relative_error, run, scored

PLACES = "park forest garden beach house kitchen river hill school shop barn lake".split()
THINGS = "ball kite cake boat book hat drum apple stone box bell lamp flower key".split()
BEASTS = "dog cat bird fox frog bear mouse duck fish rabbit owl horse".split()
DEEDS = "found lost saw hid made fixed painted shared carried dropped".split()
NAMES = "Lily Tim Tom Sue Ben Mia Max Anna Sam Lucy".split()


def invented_story(rng: random.Random) -> str:
    """English of a kind, so that names, nouns and openings are where the scripts look for them."""
    a, b = rng.sample(NAMES, 2)
    beast, place, thing, deed = (rng.choice(words) for words in (BEASTS, PLACES, THINGS, DEEDS))
    middle = " ".join(
        f"{rng.choice([a, b])} {rng.choice(DEEDS)} the {rng.choice(THINGS)} and the {rng.choice(BEASTS)} in the "
        f"{rng.choice(PLACES)}." for _ in range(rng.randint(4, 8))
    )  # fmt: skip
    return (
        f"Once upon a time, there was a little {beast} named {a}. {a} lived in a {place}.\n"
        f'{middle}\n"Look," said {a} to {b}, "I {deed} a {thing}!" It\'s {rng.randint(2, 99)} years old.\n'
        f"{a} and {b} were happy with the {thing}. The end."
    )


def write_texts(folder: Path, rng: random.Random) -> None:
    """Files named and laid out like those of the real folder."""
    stories = [invented_story(rng) for _ in range(700)]
    (folder / "tinystories.txt").write_text("\n<|endoftext|>\n".join(stories[:500] + [""]))
    lower = [s.lower().replace("\n", "\n\n") for s in stories[400:]]
    (folder / "tinystories_lowercase.txt").write_text("\n".join([*lower, ""]))
    chapters = "\n\n".join(f"## CHAPTER {i}\n\n" + "\n\n".join(stories[i * 20 : i * 20 + 20]) for i in range(20))
    (folder / "classic_books.md.txt").write_text(
        f"# Title: A Book\n\n## Author: Nobody\n\n## Year: 1900\n\n-------\n\n{chapters}"
    )


def main() -> None:
    missing = [m for m in ("torch", "tokenizers") if importlib.util.find_spec(m) is None]
    if missing:
        print(f"SKIPPED: no {' and no '.join(missing)}")
        return
    programs = bin_folder()
    import torch
    from train import load_model

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text").mkdir()
        write_texts(folder / "text", random.Random(3))
        data = folder / "data"
        run(sys.executable, SCRIPTS / "prepare.py", "--text", folder / "text", "--out", data, "--vocab", "400")
        meta = json.loads((data / "meta.json").read_text())
        check(meta["stories_as_written"] + meta["held_out_stories"] == 500, "all stories with capitals are used")
        check(195 <= meta["stories_recased"] <= 200, "copies without capitals are left out, the others used")

        run(
            sys.executable,
            SCRIPTS / "train.py",
            SCRIPTS / "toy.toml",
            "--data",
            data,
            "--out",
            folder,
            "--device",
            "cpu",
        )
        log = json.loads((folder / "fable-toy.json").read_text())
        first, last = log["evaluations"][0]["loss"], log["final"]["loss"]
        check(log["evaluations"][-1]["step"] == 20, "20 steps")
        check(
            last < first < np.log(400), f"the held out loss falls: {np.log(400):.2f} (uniform), {first:.2f}, {last:.2f}"
        )

        checkpoint, model = folder / "fable-toy.pt", folder / "fable-toy.gguf"
        tokenizer = ("--tokenizer", data / "tokenizer.json")
        run(sys.executable, SCRIPTS / "export.py", checkpoint, *tokenizer, "--type", "F16", "--out", model)
        trained = load_model(checkpoint, torch.device("cpu"))
        for parameter in trained.parameters():
            if parameter.ndim > 1 and parameter.shape[0] != trained.c.experts or parameter.ndim > 2:
                parameter.copy_(parameter.half().float())
        held = np.load(data / "held_out.npy").astype(np.int64)
        windows = held[: 4 * 64].reshape(4, 64).copy()
        windows[:, 0] = 0
        wanted = scored(trained(torch.from_numpy(windows))[0].numpy())
        error = relative_error(program_logits(programs, model, windows, folder), wanted)
        check(error < 1e-3, f"logits of the exported model, relative error {error:.1e}")

        text = (data / "held_out.txt").read_bytes().removesuffix(b"\n")
        ids = json.loads(run(programs / "llm-inspect", "tokenize", model, "--stdin", "--ids", stdin=text))
        check(ids == held.tolist(), f"the same {len(held)} tokens as in training")

        run(sys.executable, SCRIPTS / "export.py", checkpoint, *tokenizer, "--type", "Q8_0", "--out", model)
        error = relative_error(program_logits(programs, model, windows, folder), wanted)
        check(error < 0.05, f"logits of the Q8_0 file, relative error {error:.1e}")


if __name__ == "__main__":
    main()
