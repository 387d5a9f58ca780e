"""llama.cpp through llama-cpp-python's low-level interface: logits and speed. And what the scripts share: the folder of
our programs, which Python and packages they need.

As a program it measures one round of speed and prints one JSON object; see --help.
"""

import argparse
import contextlib
import ctypes
import importlib.machinery
import importlib.util
import json
import os
import random
import sys
import time
from pathlib import Path

GGML_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "iq4_nl": 20, "bf16": 30}
ROOT = Path(__file__).resolve().parent.parent
BIN = Path(os.environ.get("LLM_BIN") or ROOT / "build" / "release" / "bin")


def fail(text):
    sys.exit(f"{Path(sys.argv[0]).name}: {text}")


def wants_help():
    return not {"-h", "--help"}.isdisjoint(sys.argv[1:])


def use_peer_python():
    """Starts this program again under the Python that has llama-cpp-python, unless this one has it."""
    python = os.environ.get("LLM_PEER_PYTHON") or str(ROOT / ".venv-peer" / "bin" / "python")
    if os.environ.get("LLM_PEER_ENTERED") or wants_help():
        return
    if not os.access(python, os.X_OK):
        fail(f"{python} is not there: run scripts/setup-peer, or set LLM_PEER_PYTHON to a Python that has "
             "llama-cpp-python, numpy and gguf")
    os.environ["LLM_PEER_ENTERED"] = "1"
    os.execv(python, [python, *sys.argv])


@contextlib.contextmanager
def packages(remedy="scripts/setup-peer makes a Python that has it"):
    """Around imports of packages that a machine may lack; the help is printed without them."""
    try:
        yield
    except ModuleNotFoundError as e:
        if not wants_help():
            fail(f"{e}: {remedy}")


def require_programs(*paths):
    """Ends this program where one of those is not there."""
    for path in map(Path, paths):
        if not os.access(path, os.X_OK):
            built = path.resolve().parent.parent  # build/PRESET, if it is one of ours
            target = f"scripts/build {built.name} {path.name}" if built.parent == ROOT / "build" else "scripts/build"
            fail(f"{path} is not there: run {target}")


def load_compare_peer():
    """scripts/compare-peer as a module."""
    loader = importlib.machinery.SourceFileLoader("compare_peer", str(ROOT / "scripts" / "compare-peer"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module  # dataclasses look there
    loader.exec_module(module)
    return module


def positive(text):
    """An option's whole number above 0."""
    if (number := int(text)) < 1:
        raise ValueError
    return number


def default_threads():
    """One per physical core that this process may run on."""
    cores = set()
    for cpu in os.sched_getaffinity(0):
        try:
            siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text().strip()
        except OSError:
            siblings = str(cpu)
        cores.add(siblings)
    return max(1, len(cores))


class PeerError(Exception):
    """What the peer cannot do."""


def has_blas():
    """Whether this llama.cpp has its BLAS backend (scripts/setup-peer --blas)."""
    import llama_cpp
    return (Path(llama_cpp.__file__).parent / "lib" / "libggml-blas.so").exists()


class Peer:
    """One model with one context."""

    _log = None
    _errors = []

    def __init__(self, path, n_ctx, threads, cache="f16", flash_attention=None, sequences=1, n_ubatch=512,
                 settings=None):
        """settings: other fields of llama_context_params."""
        import llama_cpp as c
        self.c = c
        if Peer._log is None:
            Peer._log = c.llama_log_callback(Peer._keep_errors)
            c.llama_log_set(Peer._log, ctypes.c_void_p(0))
            c.llama_backend_init()
        Peer._errors.clear()
        params = c.llama_model_default_params()
        params.n_gpu_layers = 0
        params.use_extra_bufts = not has_blas()  # weights in an order of the processor's own would not go to BLAS
        self.model = c.llama_model_load_from_file(os.fspath(path).encode(), params)
        if not self.model:
            reasons = "".join(Peer._errors).splitlines() or ["no reason given"]
            raise PeerError(f"the peer cannot load {path}: {reasons[0]}")
        context = c.llama_context_default_params()
        context.n_ctx = n_ctx
        context.n_batch = max(512, min(n_ctx, 2048))
        context.n_ubatch = n_ubatch
        context.n_seq_max = sequences
        context.n_threads = context.n_threads_batch = threads
        context.no_perf = True
        context.type_k = context.type_v = GGML_TYPES[cache]
        if flash_attention is not None:
            context.flash_attn_type = (c.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash_attention
                                       else c.LLAMA_FLASH_ATTN_TYPE_DISABLED)
        for name, value in (settings or {}).items():
            setattr(context, name, value)
        self.context = c.llama_init_from_model(self.model, context)
        if not self.context:
            raise PeerError(f"the peer cannot make a context for {path}")
        self.vocab = c.llama_model_get_vocab(self.model)
        self.n_vocab = c.llama_vocab_n_tokens(self.vocab)
        self.batch = c.llama_batch_init(context.n_batch, 0, 1)
        self.n_batch = context.n_batch

    @staticmethod
    def _keep_errors(level, text, _):
        if level == 4:  # GGML_LOG_LEVEL_ERROR
            Peer._errors.append(text.decode(errors="replace"))

    def close(self):
        self.c.llama_batch_free(self.batch)
        self.c.llama_free(self.context)
        self.c.llama_model_free(self.model)

    def system_info(self):
        return self.c.llama_print_system_info().decode()

    def bos(self):
        """The token that a window starts with, or None where the vocabulary adds none."""
        return self.c.llama_vocab_bos(self.vocab) if self.c.llama_vocab_get_add_bos(self.vocab) else None

    def clear(self):
        self.c.llama_memory_clear(self.c.llama_get_memory(self.context), True)

    def decode(self, ids, first_position, want):
        """Evaluates ids at consecutive positions of sequence 0; want: "all", "last" or "none" of their logits."""
        last = len(ids) - 1
        self._evaluate((token, first_position + i, 0, want == "all" or (want == "last" and i == last))
                       for i, token in enumerate(ids))

    def _evaluate(self, rows):
        """One batch of (token, position, sequence, whether its logits are wanted)."""
        for i, (token, position, sequence, wanted) in enumerate(rows):
            self.batch.token[i] = token
            self.batch.pos[i] = position
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = sequence
            self.batch.logits[i] = wanted
            self.batch.n_tokens = i + 1
        if self.c.llama_decode(self.context, self.batch) != 0:
            raise PeerError("the peer's decode failed")

    def logits(self, ids):
        """float32 [len(ids), n_vocab]: the logits after each token, from an empty cache."""
        import numpy as np
        self.clear()
        out = np.empty((len(ids), self.n_vocab), np.float32)
        for at in range(0, len(ids), 512):
            part = ids[at:at + 512]
            self.decode(part, at, "all")
            for i in range(len(part)):
                row = self.c.llama_get_logits_ith(self.context, i)
                out[at + i] = np.ctypeslib.as_array(row, (self.n_vocab,))
        return out

    def greedy(self, ids, n):
        """The bytes of the n tokens that are likeliest one after the other, stopping at an end token."""
        import numpy as np
        self.clear()
        self.decode(ids, 0, "last")
        text = b""
        buffer = ctypes.create_string_buffer(256)
        for position in range(len(ids), len(ids) + n):
            row = self.c.llama_get_logits_ith(self.context, -1)
            token = int(np.ctypeslib.as_array(row, (self.n_vocab,)).argmax())
            if self.c.llama_vocab_is_eog(self.vocab, token):
                break
            length = self.c.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, False)
            text += buffer.raw[:length]
            self.decode([token], position, "last")
        return text

    # The two measurements follow llama-bench: random tokens, no sampling, one warm-up.

    def _random(self, n):
        return [random.randrange(self.n_vocab) for _ in range(n)]

    def _fill(self, ids, first_position):
        for at in range(0, len(ids), self.n_batch):
            self.decode(ids[at:at + self.n_batch], first_position + at, "last")

    def prefill_speed(self, n, depth=0):
        """Tokens per second of a prompt of n tokens after depth others."""
        def once():
            self.clear()
            ids = self._random(depth + n)
            if (bos := self.bos()) is not None:
                ids[0] = bos
            self._fill(ids[:depth], 0)
            self.c.llama_synchronize(self.context)
            began = time.perf_counter()
            self._fill(ids[depth:], depth)
            self.c.llama_synchronize(self.context)
            return n / (time.perf_counter() - began)

        if depth == 0:
            once()
        return once()

    def decode_speed(self, n, depth=0, sequences=1):
        """Tokens per second, all sequences together, of n steps after depth tokens."""
        self.clear()
        self._fill(self._random(depth), 0)
        memory = self.c.llama_get_memory(self.context)
        for s in range(1, sequences if depth else 1):
            self.c.llama_memory_seq_cp(memory, 0, s, -1, -1)

        def run(first, count):
            began = time.perf_counter()
            for position in range(first, first + count):
                self._evaluate((token, position, s, True) for s, token in enumerate(self._random(sequences)))
                self.c.llama_synchronize(self.context)
            return sequences * count / (time.perf_counter() - began)

        run(depth, 1)
        return run(depth + 1, n)


def main():
    use_peer_python()
    parser = argparse.ArgumentParser(description="One round of the peer's speed, as one JSON object.")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-p", type=int, default=512, help="tokens of prefill, 0 = not measured")
    parser.add_argument("-n", type=int, default=128, help="tokens of decode, 0 = not measured")
    parser.add_argument("-d", type=int, default=0, help="tokens in the cache before")
    parser.add_argument("-np", type=int, default=1, help="sequences that decode at once")
    parser.add_argument("-t", "--threads", type=int, default=default_threads())
    parser.add_argument("--cache", choices=GGML_TYPES, default="f16", help="type of the cache's keys and values")
    parser.add_argument("--flash", choices=("on", "off"), help="flash attention (default: as llama.cpp decides)")
    parser.add_argument("--ubatch", type=int, default=512, help="tokens evaluated at once")
    a = parser.parse_args()
    began = time.perf_counter()
    try:
        peer = Peer(a.model, (a.d + max(a.p, a.n) + 8) * a.np, a.threads, a.cache,
                    None if a.flash is None else a.flash == "on", a.np, a.ubatch)
    except PeerError as e:
        sys.exit(f"peer: {e}")
    peer.decode([0], 0, "last")
    result = {"threads": a.threads, "system": peer.system_info(), "first_token_s": time.perf_counter() - began}
    if a.p:
        result[f"pp{a.p}"] = peer.prefill_speed(a.p, a.d)
    if a.n:
        result[f"tg{a.n}"] = peer.decode_speed(a.n, a.d, a.np)
    peer.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
