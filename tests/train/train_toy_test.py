"""The whole way at toy size: texts, tokens, another model's layers, stories written by a model, 20 steps with a
teacher, GGUF, a choice among answers. The programs compute the trained model's logits, split the held out text into the
tokens of the training, decode what the scripts read, and write the stories."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

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


def write_foreign(path: Path, tokenizer: dict[str, Any]) -> list[str]:
    """A llama of random weights whose vocabulary lacks every fifth of our longer tokens; returns it."""
    from export import tokenizer_metadata
    from gguf_writer import F16, F32, U32, write_gguf

    rng = np.random.default_rng(5)
    vocab = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    ours = [
        t for i, t in enumerate(vocab) if t == "<|endoftext|>" or (not t.startswith("<|") and (len(t) < 3 or i % 5))
    ]
    tokens = ["<|im_start|>", "<|im_end|>", "\u0120user", "\u0120assistant", *ours]
    merges = [m for m in tokenizer_metadata(tokenizer)["tokenizer.ggml.merges"]
              if {*m.split(" "), m.replace(" ", "")} <= set(tokens)]  # fmt: skip
    metadata = {
        "general.architecture": "llama", "general.name": "Foreign", "llama.block_count": U32(2),
        "llama.embedding_length": U32(256), "llama.feed_forward_length": U32(256), "llama.context_length": U32(512),
        "llama.attention.head_count": U32(8), "llama.attention.head_count_kv": U32(4), "llama.rope.freq_base": 10000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.vocab_size": U32(len(tokens)),
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges, "tokenizer.ggml.token_type": [1] * len(tokens),
        "tokenizer.ggml.bos_token_id": U32(4), "tokenizer.ggml.eos_token_id": U32(4),
    }  # fmt: skip
    shapes = {"token_embd": (len(tokens), 256), "output_norm": (256,)}
    for layer in ("blk.0", "blk.1"):
        shapes |= {f"{layer}.{n}_norm": (256,) for n in ("attn", "ffn")}
        shapes |= {f"{layer}.attn_{n}": (128, 256) for n in "kv"}
        shapes |= {f"{layer}.{n}": (256, 256) for n in ("attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down")}
    tensors = [(f"{name}.weight", rng.normal(0, 0.05, shape).astype(np.float32), F16 if len(shape) > 1 else F32)
               for name, shape in shapes.items()]  # fmt: skip
    write_gguf(path, metadata, tensors)
    return tokens


def check_reader(programs: Path, folder: Path, model: Path) -> None:
    """What the reader decodes is what the program decodes into a file of F32."""
    from gguf_reader import read_gguf

    for kind in ("Q4_1", "Q8_0"):
        run(programs / "llm-quantize", model, folder / "some.gguf", kind, "--pure", "-q", "--force")
        run(programs / "llm-quantize", folder / "some.gguf", folder / "plain.gguf", "F32", "-q", "--force")
        some, plain = (read_gguf(folder / f"{n}.gguf").tensors for n in ("some", "plain"))
        same = all(np.array_equal(array, plain[name]) for name, array in some.items())
        check(same and some.keys() == plain.keys(), f"{kind} is decoded as llm-quantize decodes it")


def check_transplant(folder: Path, data: Path, programs: Path) -> Path:
    """A checkpoint that begins with another model's layers: rows of its own for tokens that it has, else means."""
    import torch
    from gguf_reader import read_gguf

    tokenizer = json.loads((data / "tokenizer.json").read_text())
    tokens = write_foreign(folder / "foreign.gguf", tokenizer)
    check_reader(programs, folder, folder / "foreign.gguf")
    run(sys.executable, SCRIPTS / "transplant.py", folder / "foreign.gguf", "--tokenizer", data / "tokenizer.json",
        "--context", "64", "--out", folder / "writer.pt")  # fmt: skip
    table = read_gguf(folder / "foreign.gguf").tensors["token_embd.weight"]
    weights = torch.load(folder / "writer.pt", weights_only=True)["weights"]
    own = weights["token_embd.weight"].numpy()
    ours = tokenizer["model"]["vocab"]
    shared = [t for t in ours if t in tokens and not t.startswith("<|")]
    check(len(shared) > 300 and all(np.array_equal(own[ours[t]], table[tokens.index(t)]) for t in shared),
          f"{len(shared)} tokens keep their rows")  # fmt: skip
    lacking = next(t for t in ours if t not in tokens and len(t) == 3)
    parts = next(c for c in ([lacking[:i], lacking[i:]] for i in (1, 2)) if set(c) <= set(tokens))
    close = [np.allclose(own[ours[lacking]], table[[tokens.index(p) for p in c]].mean(0))
             for c in (parts, list(lacking), [lacking[:1], lacking[1:]], [lacking[:2], lacking[2:]])
             if set(c) <= set(tokens)]  # fmt: skip
    check(any(close), f"the row of {lacking!r}, which the model lacks, is the mean of its pieces")
    return folder / "writer.pt"


def poor_in_words(words: list[str]) -> str:
    """Different sentences of ever the same words."""
    rng = random.Random(1)
    plain = sorted({word.strip('".,!?') for word in words})
    return " ".join(" ".join(rng.sample(plain, 8)) + "." for _ in range(20))


def check_judge() -> None:
    """Each fault is found, and nothing is found in a story without one."""
    from harvest import Judge, Row, Story

    good = (
        "Once upon a time, there was a fox named Kai. Kai had a red drum. He played it every morning near the old "
        'mill. One day, the drum was gone! "Where is my drum?" asked Kai. He looked under his bed and behind the door. '
        "A mouse came out of the wall and smiled. She had only wanted to sleep in something round. Kai laughed and "
        "gave her a warm hat. Then he took his music back, and the two of them danced until night."
    )
    held = ["He played it every evening. " + good.split("! ")[1], "Another story altogether."]
    judge, strict = Judge(["Nothing in common with it."]), Judge([], frozenset(good.lower().split()))
    row = Row(None, "", ("fox", "drum"))
    again = (
        good
        + " The fox beat his old red drum. Then his fox beat his old red drum. All day the fox beat his old red drum."
    )
    any_row = Row(None, "", ())
    cases = [
        (judge, row, good.replace("Kai had", "The fox had"), "stop", None),
        (judge, row, good, "stop", "off topic"),
        (judge, Row(None, "", ("whale",)), good, "stop", "off topic"),
        (judge, any_row, good, "length", "unfinished"),
        (judge, any_row, good[:200], "stop", "length"),
        (judge, any_row, good + " #1.", "stop", "characters"),
        (judge, any_row, good + ' "Bye.', "stop", "quotes"),
        (judge, any_row, again, "stop", "circles"),
        (judge, any_row, good + " Kai was happy now. He slept. Kai was happy now.", "stop", "circles"),
        (judge, any_row, poor_in_words(good.split()[:30]), "stop", "circles"),
        (Judge(held), any_row, good, "stop", "held out"),
        (strict, any_row, good, "stop", "invented words"),
        (judge, any_row, good + " One day, a small turtle found a golden key.", "stop", "prompt"),
    ]
    for number, (which, asked, text, finish, wanted) in enumerate(cases):
        found = which(Story(asked, text, finish))
        check(found == wanted, f"story {number}: {wanted or 'nothing wrong'}, found {found}")


def check_stories(folder: Path, data: Path, programs: Path) -> None:
    """Stories that the sample model writes: those kept are about what was wished."""
    sample = SCRIPTS.parents[1] / "models" / "samples" / "fable-dense.gguf"
    wishes, answers = folder / "wishes.jsonl", folder / "answers.jsonl"
    run(sys.executable, SCRIPTS / "wishes.py", "--rows", "24", "--most", "260", "--out", wishes)
    run(programs / "llm-run", "-m", sample, "--batch", wishes, "-o", answers, "-q")
    run(sys.executable, SCRIPTS / "harvest.py", "--text", folder / "text", "--data", data, wishes, answers)
    counts = json.loads((data / "harvest.json").read_text())
    kept = [json.loads(line) for line in (data / "synthetic.jsonl").read_text().splitlines()]
    judged = sum(n for key, n in counts.items() if key != "bytes" and not key.endswith("_tokens"))
    check(judged == 24 and counts["kept"] == len(kept) >= 4, f"of 24 stories {len(kept)} were kept, each was judged")
    check(all(k["text"].startswith(k["beginning"]) and len(k["text"]) >= 350 for k in kept), "they are whole")
    masks = [np.load(data / f"{n}_mask.npy") for n in ("dialogue", "wishes")]
    check(
        np.load(data / "wishes.npy").shape == masks[1].shape and all(0 < m.mean() < 1 for m in masks),
        "answers are marked",
    )


def check_preference(folder: Path, data: Path, checkpoint: Path) -> None:
    """After a few steps the better answers are the likelier ones."""
    import torch
    from choose import Encoder, encode_pairs, pairs_of
    from harvest import Row, Story
    from tokenizers import Tokenizer

    row = Row("A dog", "", ())
    good, bad = Story(row, "The dog ran home.", "stop"), Story(row, "The the the the the.", "stop")
    endless = Story(row, "The the the the the the", "length")
    check(
        pairs_of([bad, good, endless], ["circles", None, "unfinished"]) == [(good, bad)], "better and worse are paired"
    )
    arrays = encode_pairs(
        [(good, bad), (good, endless)] * 20, Encoder(Tokenizer.from_file(str(data / "tokenizer.json"))), 40
    )
    end = [int(arrays["ids"][i, arrays["end"][i] - 1]) for i in (0, 1, 3)]
    check(end[:2] == [3, 3] and end[2] != 3, "finished answers have their end")
    np.savez(folder / "pairs.npz", **arrays)
    prefer = (sys.executable, SCRIPTS / "prefer.py", checkpoint, "--pairs", folder / "pairs.npz", "--data", data)
    how = ("--device", "cpu", "--rows", "8", "--epochs", "2", "--lr", "1e-3", "--rise", "1")
    run(*prefer, "--out", folder / "preferred", *how)
    log = json.loads((folder / "preferred" / "fable-toy-prefer.json").read_text())
    first, last = log["evaluations"][0], log["evaluations"][-1]
    check(abs(first["margin"]) < 0.01 and last["margin"] > 1 and last["preferred"] == 1,
          f"the margin grows from {first['margin']:.5f} to {last['margin']:.2f} in {last['step']} steps")  # fmt: skip
    saved = [torch.load(p, weights_only=True)["weights"] for p in (checkpoint, folder / "preferred" / "fable-toy.pt")]
    check(any(not torch.equal(saved[0][n], saved[1][n]) for n in saved[0]), "and the weights are others")


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

        check_judge()
        check_stories(folder, data, programs)
        writer = check_transplant(folder, data, programs)
        small = ("--set", "phase.0.steps=2", "--set", "phase.1.steps=2", "--set", "name='fable-writer'")
        dense = ("--set", "model.experts=0", "--set", "model.experts_used=0")
        train = (sys.executable, SCRIPTS / "train.py", SCRIPTS / "toy.toml", "--data", data, "--device", "cpu")
        run(*train, "--out", folder, "--init", writer, *small, *dense)
        begun, learned = (torch.load(p, weights_only=True)["weights"] for p in (writer, folder / "fable-writer.pt"))
        moved = max(float((begun[n] - learned[n]).abs().max()) for n in begun)
        check(
            0 < moved < 0.05,
            f"training goes on from the transplanted weights: {moved:.3f} is the farthest that one went",
        )

        run(*train, "--out", folder, "--teacher", folder / "fable-writer.pt")
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

        check_preference(folder, data, checkpoint)

        text = (data / "held_out.txt").read_bytes().removesuffix(b"\n")
        ids = json.loads(run(programs / "llm-inspect", "tokenize", model, "--stdin", "--ids", stdin=text))
        check(ids == held.tolist(), f"the same {len(held)} tokens as in training")

        run(sys.executable, SCRIPTS / "export.py", checkpoint, *tokenizer, "--type", "Q8_0", "--out", model)
        error = relative_error(program_logits(programs, model, windows, folder), wanted)
        check(error < 0.05, f"logits of the Q8_0 file, relative error {error:.1e}")


if __name__ == "__main__":
    main()
