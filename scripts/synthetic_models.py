"""Writes small GGUF files of each family with random weights, and variants of files, for scripts/compare-peer-all.

Random weights of the usual size give nearly flat attention and logits, which would hide an error of the rotary angles
or of a router: so the queries' and keys' and the output's weights are made larger here.
"""

import importlib.util
from pathlib import Path

import gguf
import numpy as np


def load_generator(path):
    """shared/tools/synth_gguf.py as a module."""
    spec = importlib.util.spec_from_file_location("synth_gguf", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # The peer takes the experts of a llama file to be feed_forward_length wide.
    module.SHAPES["mixtral-small"] = ("llama", 4, 256, 512, 8, 4, 32, (8, 2, 512), 1e4, False)
    # Shapes with all that a family has, small enough as F32.
    module.SHAPES["qwen3-small"] = ("qwen3", 3, 512, 1024, 8, 4, 64, None, 1e6, True)
    module.SHAPES["olmoe-small"] = ("olmoe", 3, 512, 256, 8, 8, 64, (16, 4, 256), 1e4, False)
    module.SHAPES["qwen3moe-small"] = ("qwen3moe", 3, 512, 1024, 8, 2, 128, (16, 4, 256), 1e6, False)
    return module


def copy_field(writer, field):
    key, types = field.name, field.types
    if key.startswith("GGUF.") or key == gguf.Keys.General.ARCHITECTURE:
        return
    if types[0] == gguf.GGUFValueType.ARRAY:
        writer.add_key_value(key, field.contents(), gguf.GGUFValueType.ARRAY, sub_type=types[-1])
    else:
        writer.add_key_value(key, field.contents(), types[0])


def rewrite(source, target, metadata=(), extra=(), scale=()):
    """Copies a GGUF file with other metadata (key, type, value), more F32 tensors (name, array), and F32 tensors
    multiplied: (part of the name, factor)."""
    reader = gguf.GGUFReader(source)
    architecture = reader.get_field(gguf.Keys.General.ARCHITECTURE).contents()
    writer = gguf.GGUFWriter(target, architecture)
    changed = {key for key, _, _ in metadata}
    for field in reader.fields.values():
        if field.name not in changed:
            copy_field(writer, field)
    for key, kind, value in metadata:
        writer.add_key_value(key, value, kind)
    for tensor in reader.tensors:
        data = np.asarray(tensor.data)
        if tensor.tensor_type == gguf.GGMLQuantizationType.F32:
            for part, factor in scale:
                if part in tensor.name:
                    data = data * np.float32(factor)
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    for name, data in extra:
        writer.add_tensor(name, np.asarray(data, np.float32))
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


SHARPER = [("attn_q.weight", 6.0), ("attn_k.weight", 6.0), ("ffn_gate_inp", 6.0)]


def yarn(architecture, original=64, factor=8.0):
    kinds = gguf.GGUFValueType
    return [(f"{architecture}.rope.scaling.type", kinds.STRING, "yarn"),
            (f"{architecture}.rope.scaling.factor", kinds.FLOAT32, factor),
            (f"{architecture}.rope.scaling.original_context_length", kinds.UINT32, original),
            (f"{architecture}.context_length", kinds.UINT32, int(original * factor))]


def linear(architecture, factor=4.0):
    kinds = gguf.GGUFValueType
    return [(f"{architecture}.rope.scaling.type", kinds.STRING, "linear"),
            (f"{architecture}.rope.scaling.factor", kinds.FLOAT32, factor)]


def llama3_factors(head_dim, base, original=64, factor=8.0, low=1.0, high=4.0):
    """The divisors of Llama 3.1's rotary frequencies, as its configuration defines them."""
    frequencies = base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    wavelengths = 2 * np.pi / frequencies
    smooth = np.clip((original / wavelengths - low) / (high - low), 0, 1)
    return [("rope_freqs.weight", 1 / ((1 - smooth) / factor + smooth))]


def qwen2(target, vocabulary, quantized=None, layers=3, d=512, d_ff=1024, heads=8, kv_heads=2, seed=1):
    """A qwen2 file: biases on queries, keys and values. `quantized`: a type of gguf.GGMLQuantizationType that gguf can
    write."""
    rng = np.random.default_rng(seed)
    reader = gguf.GGUFReader(vocabulary)
    n_vocab = len(reader.get_field("tokenizer.ggml.tokens").data)
    writer = gguf.GGUFWriter(target, "qwen2")
    writer.add_name("random qwen2")
    writer.add_block_count(layers)
    writer.add_context_length(4096)
    writer.add_embedding_length(d)
    writer.add_feed_forward_length(d_ff)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    for field in reader.fields.values():
        if field.name.startswith("tokenizer."):
            copy_field(writer, field)

    def add(name, shape, deviation=0.02, mean=0.0):
        data = rng.normal(mean, deviation, shape).astype(np.float32)
        if quantized is not None and len(shape) == 2:
            writer.add_tensor(name, gguf.quantize(data, quantized), raw_dtype=quantized)
        else:
            writer.add_tensor(name, data)

    head_dim = d // heads
    add("token_embd.weight", (n_vocab, d), 0.05)
    add("output_norm.weight", (d,), 0.05, 1.0)
    for i in range(layers):
        block = f"blk.{i}."
        add(block + "attn_norm.weight", (d,), 0.05, 1.0)
        for part, n in (("q", heads * head_dim), ("k", kv_heads * head_dim), ("v", kv_heads * head_dim)):
            add(f"{block}attn_{part}.weight", (n, d), 0.02 if part == "v" else 0.06)
            add(f"{block}attn_{part}.bias", (n,), 0.3)
        add(block + "attn_output.weight", (d, heads * head_dim))
        add(block + "ffn_norm.weight", (d,), 0.05, 1.0)
        add(block + "ffn_gate.weight", (d_ff, d))
        add(block + "ffn_up.weight", (d_ff, d))
        add(block + "ffn_down.weight", (d, d_ff))
    finish(writer)


def synthetic(generator, target, shape, mix, vocabulary, layers=None):
    """A file of shared/tools/synth_gguf.py, made by its own main()."""
    import contextlib
    import io
    import sys
    arguments = ["synth_gguf.py", "--shape", shape, "--mix", mix, "--vocab", str(vocabulary)]
    if layers:
        arguments += ["--layers", str(layers)]
    saved, sys.argv = sys.argv, [*arguments, str(target)]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            generator.main()
    finally:
        sys.argv = saved


def small_f32(generator, target, shape, vocabulary, metadata=(), extra=()):
    """An F32 file of a shape with sharper attention and router."""
    plain = Path(str(target) + ".plain")
    synthetic(generator, plain, shape, "F32", vocabulary)
    rewrite(plain, target, metadata, extra, SHARPER)
    plain.unlink()
