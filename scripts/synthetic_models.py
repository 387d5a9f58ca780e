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


def add_key(writer, key, value):
    kinds = gguf.GGUFValueType
    if isinstance(value, list):
        kind = kinds.BOOL if isinstance(value[0], bool) else kinds.UINT32
        writer.add_key_value(key, value, kinds.ARRAY, sub_type=kind)
        return
    kind = {bool: kinds.BOOL, int: kinds.UINT32, float: kinds.FLOAT32, str: kinds.STRING}[type(value)]
    writer.add_key_value(key, value, kind)


def random_file(target, vocabulary, architecture, keys, tensors, quantized=None, seed=1, given=()):
    """A file of random weights. `keys`: without "<architecture>."; `tensors`: (name, shape as numpy has it, deviation,
    mean); `quantized`: a type of gguf.GGMLQuantizationType that gguf can write, for the matrices; `given`: (name,
    array). A tensor's values depend on its name and the seed alone, so files that differ in a key have the same
    weights."""
    reader = gguf.GGUFReader(vocabulary)
    writer = gguf.GGUFWriter(target, architecture)
    writer.add_name("random")  # the peer takes some names for those of models whose vocabulary it corrects
    for key, value in keys.items():
        add_key(writer, f"{architecture}.{key}", value)
    for field in reader.fields.values():
        if field.name.startswith("tokenizer."):
            copy_field(writer, field)
    for name, shape, deviation, mean in tensors:
        rng = np.random.default_rng([seed, *name.encode()])
        data = rng.normal(mean, deviation, shape).astype(np.float32)
        is_float = "ffn_gate_inp" in name or "ssm_conv1d" in name  # in every file
        if quantized is not None and len(shape) > 1 and not is_float:
            writer.add_tensor(name, gguf.quantize(data, quantized), raw_dtype=quantized)
        else:
            writer.add_tensor(name, data)
    for name, data in given:
        writer.add_tensor(name, data)
    finish(writer)


def delta_layer(architecture, d, key_heads, value_heads, length, matrix):
    """What a layer with the gated delta rule has in place of attention. Its decays are about 0.85."""
    keys, values = key_heads * length, value_heads * length
    tensors = [("attn_qkv.weight", (2 * keys + values, d), 2 * matrix, 0.0),
               ("attn_gate.weight", (values, d), 2 * matrix, 0.0), ("ssm_conv1d.weight", (2 * keys + values, 4), 0.5, 0.0),
               ("ssm_a", (value_heads,), 0.05, -0.2), ("ssm_dt.bias", (value_heads,), 0.5, 0.0),
               ("ssm_norm.weight", (length,), 0.1, 1.0), ("ssm_out.weight", (d, values), matrix, 0.0)]
    if architecture == "qwen3next":
        return tensors + [("ssm_ba.weight", (2 * value_heads, d), 2 * matrix, 0.0)]
    return tensors + [(f"ssm_{x}.weight", (value_heads, d), 2 * matrix, 0.0) for x in ("alpha", "beta")]


def decoder(target, vocabulary, architecture, keys=None, quantized=None, layers=3, d=512, d_ff=1024, heads=8,
            kv_heads=2, head_dim=64, norms=("attn_norm", "ffn_norm"), qk_norm=None, biases=(), experts=None, d_shared=0,
            tied=False, fused=False, sinks=False, factors=(), delta=None, predicting=0):
    """A file of the usual layers. `norms`: the vectors of width d; `qk_norm`: "heads" or "whole", what q and k are
    normalised over; `biases`: the products that have one, experts and their router among them; `experts`: (how many,
    how many of them are used, width); `fused`: q, k and v are one matrix, gate and up another; `factors`: (tensor,
    largest), divisors of the rotary frequencies from 1 on; `delta`: (key heads, value heads, their length, every how
    many layers one attends), the others go by the gated delta rule; `predicting`: layers behind these, for tokens
    ahead."""
    n_vocab = len(gguf.GGUFReader(vocabulary).get_field("tokenizer.ggml.tokens").data)
    q, kv = heads * head_dim, kv_heads * head_dim
    all_keys = {"block_count": layers, "context_length": 4096, "embedding_length": d, "feed_forward_length": d_ff,
                "attention.head_count": heads, "attention.head_count_kv": kv_heads, "attention.key_length": head_dim,
                "attention.value_length": head_dim, "attention.layer_norm_rms_epsilon": 1e-6,
                "rope.dimension_count": head_dim, "rope.freq_base": 1e6}
    if experts:
        count, used, width = experts
        all_keys |= {"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": width}
    if d_shared:
        all_keys["expert_shared_feed_forward_length"] = d_shared
    if delta:
        key_heads, value_heads, length, interval = delta
        all_keys |= {"ssm.conv_kernel": 4, "ssm.state_size": length, "ssm.group_count": key_heads,
                     "ssm.time_step_rank": value_heads, "ssm.inner_size": value_heads * length,
                     "full_attention_interval": interval}
    if predicting:
        all_keys |= {"block_count": layers + predicting, "nextn_predict_layers": predicting}
    matrix = 0.02 * (512 / d) ** 0.5  # of the same effect for any width
    products = {"attn_q": (q, d, 3 * matrix), "attn_k": (kv, d, 3 * matrix), "attn_v": (kv, d, matrix),
                "attn_output": (d, q, matrix)}
    if delta:  # each head of q with its gate
        products["attn_q"] = (2 * q, d, 3 * matrix)
    if not experts:
        products |= {"ffn_gate": (d_ff, d, matrix), "ffn_up": (d_ff, d, matrix), "ffn_down": (d, d_ff, matrix)}
    if fused:
        products = {"attn_qkv": (q + 2 * kv, d, 2 * matrix), "attn_output": products["attn_output"],
                    "ffn_up": (2 * d_ff, d, matrix), "ffn_down": products["ffn_down"]}
    if d_shared:
        products |= {"ffn_gate_shexp": (d_shared, d, matrix), "ffn_up_shexp": (d_shared, d, matrix),
                     "ffn_down_shexp": (d, d_shared, matrix)}
    block = [(name + ".weight", (d,), 0.1, 1.0) for name in norms]
    block += [(name + ".weight", (n, k), deviation, 0.0) for name, (n, k, deviation) in products.items()]
    block += [(name + ".bias", (products[name][0],), 0.3, 0.0) for name in biases if name in products]
    if sinks:
        block.append(("attn_sinks.weight", (heads,), 2.0, 0.0))
    if qk_norm:  # weights around 1 would give attention that is nearly flat
        widths = {"heads": (head_dim, head_dim), "whole": (q, kv)}[qk_norm]
        block += [(f"attn_{x}_norm.weight", (width,), 0.3, 1.5) for x, width in zip("qk", widths)]
    if experts:
        block += [("ffn_gate_inp.weight", (count, d), 6 * matrix, 0.0),
                  ("ffn_gate_exps.weight", (count, width, d), matrix, 0.0),
                  ("ffn_up_exps.weight", (count, width, d), matrix, 0.0),
                  ("ffn_down_exps.weight", (count, d, width), matrix, 0.0)]
        shapes = {"ffn_gate_inp": (count,), "ffn_gate_exps": (count, width), "ffn_up_exps": (count, width),
                  "ffn_down_exps": (count, d)}
        block += [(name + ".bias", shapes[name], 0.3, 0.0) for name in biases if name in shapes]
    if delta and d_shared:
        block.append(("ffn_gate_inp_shexp.weight", (d,), 6 * matrix, 0.0))
    attention = ("attn_q.", "attn_k.", "attn_v.", "attn_output.", "attn_q_norm.", "attn_k_norm.")
    recurrent = [b for b in block if not b[0].startswith(attention)]
    if delta:
        recurrent += delta_layer(architecture, d, key_heads, value_heads, length, matrix)
    tensors = [("token_embd.weight", (n_vocab, d), 0.05, 0.0), ("output_norm.weight", (d,), 0.05, 1.0)]
    if not tied:
        tensors.append(("output.weight", (n_vocab, d), 0.05, 0.0))
    for i in range(layers):
        tensors += [(f"blk.{i}.{name}", *rest)
                    for name, *rest in (recurrent if delta and (i + 1) % interval else block)]
    ahead = [("nextn.eh_proj.weight", (d, 2 * d), matrix, 0.0), ("nextn.enorm.weight", (d,), 0.1, 1.0),
             ("nextn.hnorm.weight", (d,), 0.1, 1.0)]
    for i in range(layers, layers + predicting):
        tensors += [(f"blk.{i}.{name}", *rest) for name, *rest in block + ahead]
    divisors = [(f"{name}.weight", np.linspace(1, largest, head_dim // 2, dtype=np.float32)) for name, largest in factors]
    random_file(target, vocabulary, architecture, all_keys | (keys or {}), tensors, quantized, given=divisors)


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
