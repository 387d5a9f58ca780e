"""Cells of benchmark tables, their models, and results that survive an interruption: for bench-cpu, bench-gpu and
compare-peer-all."""

import contextlib
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import family_shapes
from peer import ROOT


@dataclasses.dataclass(frozen=True)
class Cell:
    """One line of a table: one test on one model. goal: what the result is to be seen beside, by the table's own rule."""
    shape: str
    mix: str
    test: str
    goal: tuple
    layers: int = 0
    p: int = 0
    n: int = 0
    depth: int = 0
    parallel: int = 1
    cache: str = "f16"

    @property
    def model(self):
        return f"{self.shape}-{self.mix}" + (f"-{self.layers}L" if self.layers else "")

    @property
    def name(self):
        return f"{self.model}.{self.test}"


def prefill(shape, mix, goal, p=512, depth=0, layers=0):
    test = f"pp{p}" + (f"@d{depth}" if depth else "")
    return Cell(shape, mix, test, goal, layers=layers, p=p, depth=depth)


def decode(shape, mix, goal, depth=0, parallel=1, cache="f16", n=128):
    test = f"tg{n}" + (f"@d{depth}" if depth else "") + (f"-x{parallel}" if parallel > 1 else "")
    return Cell(shape, mix, test + ("" if cache == "f16" else f"-{cache}"), goal, n=n, depth=depth, parallel=parallel,
                cache=cache)


def start(shape, mix, goal):
    """From exec to the first token."""
    return Cell(shape, mix, "start", goal)


def add_options(parser, folder):
    """--cell, --list, --models, --synth, --results; models and results are under build/FOLDER unless told."""
    parser.add_argument("--cell", action="append", default=[], metavar="NAME",
                        help="only cells whose name contains NAME; may be repeated")
    parser.add_argument("--list", action="store_true", help="print the names of the cells")
    parser.add_argument("--table", action="store_true", help="only print the table of what has been measured")
    parser.add_argument("--models", type=Path, default=ROOT / f"build/{folder}/models", help="(default %(default)s)")
    parser.add_argument("--synth", type=Path, default=ROOT.parent / "shared/tools/synth_gguf.py",
                        help="the writer of random models (default %(default)s)")
    parser.add_argument("--vocab", type=Path, help="a GGUF file whose tokenizer random models get (default: llama-bpe "
                        "from ../shared/data/tokenizers/vocabs.tar.xz, 128,256 tokens)")
    parser.add_argument("--results", type=Path, default=ROOT / f"build/{folder}/results.jsonl",
                        help="(default %(default)s)")


def chosen(parser, a, cells):
    """Those that --cell names; None if they were to be listed only."""
    some = [c for c in cells if not a.cell or any(part in c.name for part in a.cell)]
    if not some:
        parser.error("no cell has such a name; --list prints them")
    if not a.list:
        return some
    print("\n".join(c.name for c in some))
    return None


def run(command, **options):
    command = [str(x) for x in command]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}\nended with {result.returncode}: {result.stderr.strip()}")
    return result.stdout


def model_file(a, cell):
    return a.models / f"{cell.model}.gguf"


@contextlib.contextmanager
def whole(path):
    """A name to write a file under: it gets its own when it is whole, and is deleted when it is not."""
    part = path.with_suffix(".part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def vocabulary(a):
    """The file of --vocab, or the usual one, unpacked beside the models."""
    if a.vocab:
        return a.vocab
    path = a.models / "ggml-vocab-llama-bpe.gguf"
    if not path.exists():
        with tarfile.open(a.synth.parent.parent / "data/tokenizers/vocabs.tar.xz") as archive, whole(path) as part:
            part.write_bytes(archive.extractfile(path.name).read())
    return path


def make_model(a, cell):
    path = model_file(a, cell)
    if path.exists():
        return
    if not a.synth.exists():
        raise RuntimeError(f"{path} is not there, and neither is {a.synth} to make it: give --models or --synth")
    a.models.mkdir(parents=True, exist_ok=True)
    print(f"making {path.name}", file=sys.stderr)
    with whole(path) as part:
        if cell.shape in family_shapes.SHAPES:
            family_shapes.write(a.synth, part, cell.shape, cell.mix, vocabulary(a), cell.layers)
            return
        layers = ["--layers", cell.layers] if cell.layers else []
        run([sys.executable, a.synth, "--shape", cell.shape, "--mix", cell.mix, "--vocab", vocabulary(a), *layers, part])


def bench(a, cell, *more):
    """llm-bench's object of a cell."""
    command = [a.bin / "llm-bench", "-m", model_file(a, cell), "-p", cell.p, "-n", cell.n, "-d", cell.depth,
               "--parallel", cell.parallel, "-o", "json", "-q", *more]
    if cell.cache != "f16":
        command += ["-ctk", cell.cache, "-ctv", cell.cache]
    row, = json.loads(run(command))
    return row


def first_token(a, cell, *more):
    """Seconds from exec to the end of one token, and the most resident bytes."""
    command = [a.bin / "llm-run", "-m", model_file(a, cell), "-no-cnv", "-p", "x", "-n", 1, "-c", 4096, "-q", *more]
    began = time.perf_counter()
    process = subprocess.Popen([str(x) for x in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    if status:
        raise RuntimeError(f"{command[0]} ended with status {status}")
    return {"s": seconds, "resident_gb": used.ru_maxrss * 1024 / 1e9,
            "file_gb": model_file(a, cell).stat().st_size / 1e9}


class Results:
    """Rounds kept as lines of JSON as soon as they are there; only those of these programs and this key count."""

    def __init__(self, path, programs, **key):
        contents = b"".join(Path(program).read_bytes() for program in programs)
        self.key = {"build": hashlib.sha256(contents).hexdigest()[:16], **key}
        self.path = path
        self.rounds = {}
        text = path.read_text() if path.exists() else ""
        self.cut = bool(text) and not text.endswith("\n")
        for number, line in enumerate(text.splitlines(), 1):
            try:
                row = json.loads(line)
            except ValueError:
                print(f"{path}:{number} is left out: it was not written to its end", file=sys.stderr)
                continue
            if all(row.get(k) == v for k, v in self.key.items()):
                self.rounds.setdefault(row["cell"], []).append(row)

    def add(self, name, row):
        row = {"cell": name, **self.key, **row}
        self.rounds.setdefault(name, []).append(row)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as f:
            f.write("\n" * self.cut + json.dumps(row) + "\n")
        self.cut = False

    def of(self, cell):
        return self.rounds.get(cell.name, [])

    def last(self, cell):
        return (self.of(cell) or [None])[-1]


def table(rows):
    """Markdown of rows of texts, the first of which are names."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rows = [rows[0], ["-" * w for w in widths], *rows[1:]]
    return "\n".join("| " + " | ".join(x.ljust(w) for x, w in zip(row, widths)) + " |" for row in rows)
