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
    if value is None:  # a key of decoder() that the family has not
        return
    of = {bool: kinds.BOOL, int: kinds.UINT32, float: kinds.FLOAT32, str: kinds.STRING, np.uint64: kinds.UINT64}
    if isinstance(value, list):
        writer.add_key_value(key, value, kinds.ARRAY, sub_type=of[type(value[0])])
    else:
        writer.add_key_value(key, value, of[type(value)])


def padded(writer, field, more):
    """A field of a vocabulary with so many more tokens, which stand for nothing."""
    kinds = gguf.GGUFValueType
    of = {"tokenizer.ggml.tokens": (kinds.STRING, [f"<more_{i}>" for i in range(more)]),
          "tokenizer.ggml.scores": (kinds.FLOAT32, [-1e4] * more),
          "tokenizer.ggml.token_type": (kinds.INT32, [int(gguf.TokenType.UNUSED)] * more)}
    if not more or field.name not in of:
        return copy_field(writer, field)
    kind, values = of[field.name]
    writer.add_key_value(field.name, list(field.contents()) + values, kinds.ARRAY, sub_type=kind)


def random_file(target, vocabulary, architecture, keys, tensors, quantized=None, seed=1, given=(), more_tokens=0):
    """A file of random weights. `keys`: without "<architecture>."; `tensors`: (name, shape as numpy has it, deviation,
    mean); `quantized`: what makes the matrices' blocks, as quantizer() or RandomBlocks; `given`: (name, array);
    `more_tokens`: beside those of the vocabulary. A tensor's values depend on its name and the seed alone, so files that differ in a key have the same weights."""
    reader = gguf.GGUFReader(vocabulary)
    writer = gguf.GGUFWriter(target, architecture)
    writer.add_name("random")  # the peer takes some names for those of models whose vocabulary it corrects
    for key, value in keys.items():
        add_key(writer, key if key.startswith("xielu.") else f"{architecture}.{key}", value)
    for field in reader.fields.values():
        if field.name.startswith("tokenizer."):
            padded(writer, field, more_tokens)
    for name, shape, deviation, mean in tensors:
        def values():
            rng = np.random.default_rng([seed, *name.encode()])
            return rng.normal(mean, deviation, shape).astype(np.float32)
        is_float = any(part in name for part in ("ffn_gate_inp", "ssm_conv1d", "shortconv.conv", "ssm_a", "ssm_d",
                                                 "ssm_norm", ".bias", "time_mix_lerp", "time_mix_first",
                                                 "time_mix_decay", "time_mix_w", "time_mix_a", "time_mix_v1",
                                                 "time_mix_v2", "time_mix_g1", "time_mix_g2"))  # in every file
        if quantized is not None and len(shape) > 1 and not is_float:
            data, kind = quantized(name, shape, values)
            writer.add_tensor(name, data, raw_dtype=kind)
        else:
            writer.add_tensor(name, values())
    for name, data in given:
        writer.add_tensor(name, data)
    finish(writer)


def quantizer(kind):
    """Matrices of a gguf.GGMLQuantizationType that gguf can write."""
    return lambda name, shape, values: (gguf.quantize(values(), kind), kind)


class RandomBlocks:
    """Matrices of random blocks, made at once whatever their size: for files whose speed is measured, not their text.
    `generator`: shared/tools/synth_gguf.py, whose mixes these are; `experts`: the mix of experts, if it is another."""

    def __init__(self, generator, mix, layers, tied, experts=None):
        self.generator, self.mix, self.layers, self.tied, self.experts = generator, mix, layers, tied, experts
        self.rng = generator.random.Random(1)
        self.pools = {}

    def __call__(self, name, shape, values):
        parts = name.split(".")
        layer = int(parts[1]) if parts[0] == "blk" else None
        mix = self.experts if self.experts and "_exps" in name else self.mix
        kind = self.generator.pick_type(mix, parts[-2] if layer is not None else name, layer, self.layers, shape[-1],
                                        self.tied)
        number, weights, size, _ = self.generator.TYPES[kind]
        if kind not in self.pools:
            blocks = self.generator.random_blocks(self.rng, kind, name, 65537 if weights == 1 else 16411)
            self.pools[kind] = np.frombuffer(blocks, np.uint8)
        start = self.rng.randrange(len(self.pools[kind]) // size) * size
        row = shape[-1] // weights * size
        data = np.resize(np.roll(self.pools[kind], -start), (*shape[:-1], row))
        of_floats = {"F32": np.float32, "F16": np.float16}
        if kind in of_floats:
            return data.view(of_floats[kind]), None
        return data, gguf.GGMLQuantizationType(number)


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


def mixing_layer(d, matrix, conv=None, mamba=None, ssm_norm=True, plamo=None):
    """Keys and tensors of a layer that remembers. `conv`: width of a gated short convolution; `mamba`: heads, their
    length, state of an element, groups of Mamba-2. Its decays are about 0.6. `plamo`: of PLaMo 2, the same but for
    groups."""
    if plamo:
        heads, length, state = plamo
        inner, rank = heads * length, max(64, d // 16)
        keys = {"ssm.conv_kernel": 4, "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": heads,
                "ssm.group_count": 0}
        return keys, of_products({"ssm_in": (2 * inner, d, 3 * matrix), "ssm_x": (rank + 2 * state, inner, 2 * matrix),
                                  "ssm_dt": (heads, rank, 2 * matrix), "ssm_out": (d, inner, matrix)}, ()) + [
            ("ssm_conv1d.weight", (inner, 4), 0.5, 0.0), ("ssm_dt.bias", (heads,), 0.5, 0.0),
            ("ssm_a", (heads,), 0.1, -0.7), ("ssm_d", (heads,), 0.3, 1.0), ("ssm_dt_norm", (rank,), 0.1, 1.0),
            ("ssm_b_norm", (state,), 0.1, 1.0), ("ssm_c_norm", (state,), 0.1, 1.0)]
    if conv:
        return {"shortconv.l_cache": conv}, [
            ("shortconv.in_proj.weight", (3 * d, d), 2 * matrix, 0.0), ("shortconv.conv.weight", (d, conv), 0.6, 0.0),
            ("shortconv.out_proj.weight", (d, d), matrix, 0.0)]
    heads, length, state, groups = mamba
    inner, channels = heads * length, heads * length + 2 * groups * state
    keys = {"ssm.conv_kernel": 4, "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": heads,
            "ssm.group_count": groups}
    tensors = [("ssm_in.weight", (inner + channels + heads, d), 3 * matrix, 0.0),
               ("ssm_conv1d.weight", (channels, 4), 0.5, 0.0), ("ssm_conv1d.bias", (channels,), 0.2, 0.0),
               ("ssm_dt.bias", (heads,), 0.5, 0.0), ("ssm_a", (heads, 1), 0.1, -0.7), ("ssm_d", (heads, 1), 0.3, 1.0),
               ("ssm_out.weight", (d, inner), matrix, 0.0)]
    if ssm_norm:
        tensors.append(("ssm_norm.weight", (groups, inner // groups), 0.1, 1.0))
    return keys, tensors


def decoder(target, vocabulary, architecture, keys=None, quantized=None, layers=3, d=512, d_ff=1024, heads=8,
            kv_heads=2, head_dim=64, norms=("attn_norm", "ffn_norm"), qk_norm=None, biases=(), experts=None, d_shared=0,
            tied=False, fused=(), ungated=False, sinks=False, factors=(), dense=(), choice_bias=0.0, shared_gate=False,
             latent=None, delta=None, predicting=0, predicting_ends=False, gated=False, hybrid=None, attends=None, kinds="",
             final_norm="output_norm", positions=False, embed_norm=False, indexer=None, indexed=None, beside=False, more=(),
            embedding=True, blocks=None, more_tokens=0):
    """A file of the usual layers. `norms`: the vectors of width d; `qk_norm`: "heads" or "whole", what q and k are
    normalised over, or "each" for weights of each head's own; `biases`: the products and norms that have one, experts
    and their router among them; `experts`: (how many, how many of them are used, width); `fused`: "qkv", q, k and v are
    one matrix, "ffn", gate and up are one, "experts", those of experts are; `ungated`: there is no gate; `factors`: (tensor, largest), divisors of the
    rotary frequencies from 1 on; `dense`: layers without experts; `choice_bias`: the deviation of exp_probs_b;
    `shared_gate`: the shared expert has a gate of its own; `latent`: what attention is of instead, the sizes of
    latent_attention(); `delta`: (key heads, value heads, their length, every how many layers one attends), the others go
    by the gated delta rule; `predicting`: layers behind these, for tokens ahead; `predicting_ends`: they have
    an embedding, a norm and a head of their own; `gated`: what attention
    gives has a gate, attn_gate; `hybrid`: what mixing_layer() is given, for
    the layers that are not in `attends`, or without that beside attention in every layer; `kinds`: each layer is one of
    M (hybrid), * (attention) and - (no such); `final_norm`: of the output, None if it has no weights; `positions`:
    have embeddings; `embed_norm`: a norm of the embedding; `indexer`: beside `latent`, the sizes of lightning_indexer();
    `indexed`: the layers that have one, if not all; `beside`: the dense network is beside the experts; `more`: tensors of
    each layer beside these; `embedding`: the file has token_embd; `blocks`: the sizes of block_index(), of the layers
    that are not in `dense`; `more_tokens`: beside those of the vocabulary."""
    n_vocab = len(gguf.GGUFReader(vocabulary).get_field("tokenizer.ggml.tokens").data) + more_tokens
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
    mixer = []
    if kinds:
        layers, attends = len(kinds), [i for i, kind in enumerate(kinds) if kind == "*"]
        all_keys |= {"block_count": layers,
                     "feed_forward_length": [(experts[2] if experts else d_ff) if kind == "-" else 0 for kind in kinds]}
    if hybrid:
        mixing_keys, mixer = mixing_layer(d, 0.02 * (512 / d) ** 0.5, **hybrid)
        all_keys |= mixing_keys
    if attends is not None:
        all_keys["attention.head_count_kv"] = [kv_heads if i in attends else 0 for i in range(layers)]
    if predicting:
        all_keys |= {"block_count": layers + predicting, "nextn_predict_layers": predicting}
    all_keys |= keys or {}
    matrix = 0.02 * (512 / d) ** 0.5  # of the same effect for any width
    products = {"attn_q": (q, d, 3 * matrix), "attn_k": (kv, d, 3 * matrix), "attn_v": (kv, d, matrix)}
    if "qkv" in fused:
        products = {"attn_qkv": (q + 2 * kv, d, 2 * matrix)}
    if delta:  # each head of q with its gate
        products["attn_q"] = (2 * q, d, 3 * matrix)
    products["attn_output"] = (d, q, matrix)
    if gated:
        products["attn_gate"] = (q, d, 3 * matrix)
    # The peer wants this one of falcon-h1 without the end of its name, as converters write it.
    bare = {"ffn_norm"} if architecture == "falcon-h1" else set()
    block_norms = [(name if name in bare else name + ".weight", (d,), 0.1, 1.0) for name in norms]
    block_norms += [(name + ".bias", (d,), 0.3, 0.0) for name in biases if name in norms]
    attention = of_products(products, biases)
    if sinks:
        attention.append(("attn_sinks.weight", (heads,), 2.0, 0.0))
    if qk_norm:  # weights around 1 would give attention that is nearly flat
        shapes = {"heads": ((head_dim,), (head_dim,)), "whole": ((q,), (kv,)),
                  "each": ((heads, head_dim), (kv_heads, head_dim))}[qk_norm]
        attention += [(f"attn_{x}_norm.weight", shape, 0.3, 1.5) for x, shape in zip("qk", shapes)]
    if latent:
        latent_keys, products = latent_attention(d, heads, matrix, **latent)
        all_keys = all_keys | latent_keys | (keys or {})
        attention = products
    selecting = []
    if indexer:
        index_keys, selecting = lightning_indexer(d, latent["query"], matrix, **indexer)
        all_keys = index_keys | all_keys
    block_keys, choosing = block_index(d, kv_heads, matrix, **blocks) if blocks else ({}, [])
    all_keys = block_keys | all_keys
    ffn = dense_ffn(d, d_ff, matrix, "ffn" in fused)
    if ungated:
        del ffn["ffn_gate"]
    ffn = of_products(ffn, biases)
    moe = ffn
    if experts:
        moe = of_experts(d, experts, matrix, biases, choice_bias, "experts" in fused, gated=not ungated,
                         latent=all_keys.get("moe_latent_size", 0))
    if beside:
        moe = moe + ffn
    if experts and (d_shared or "expert_shared_count" in all_keys):
        shared = dense_ffn(d, d_shared or width * all_keys["expert_shared_count"], matrix, False, "_shexp")
        if ungated:
            del shared["ffn_gate_shexp"]
        moe += of_products(shared, ())
    if shared_gate:
        moe.append(("ffn_gate_inp_shexp.weight", (d,), 2 * matrix, 0.0))
    recurrent = delta_layer(architecture, d, key_heads, value_heads, length, matrix) if delta else []
    tensors = [("token_embd.weight", (n_vocab, d), 0.05, 0.0)] if embedding else []
    if final_norm:
        tensors.append((final_norm + ".weight", (d,), 0.05, 1.0))
    if embed_norm:
        tensors += [("token_embd_norm.weight", (d,), 0.1, 1.0), ("token_embd_norm.bias", (d,), 0.1, 0.0)]
    if positions:
        tensors.append(("position_embd.weight", (all_keys["context_length"], d), 0.05, 0.0))
    if "output_norm" in biases:
        tensors.append(("output_norm.bias", (d,), 0.3, 0.0))
    if not tied:
        tensors.append(("output.weight", (n_vocab, d), 0.05, 0.0))
    if "output" in biases:
        tensors.append(("output.bias", (n_vocab,), 0.3, 0.0))
    for i in range(layers):
        mixing = recurrent if delta and (i + 1) % interval else attention
        feeding = ffn if i in dense else moe
        if attends is not None and i not in attends:
            mixing = mixer
        elif hybrid and attends is None:
            mixing = attention + mixer
        if indexed is None or i in indexed:
            mixing = mixing + selecting
        if i not in dense:
            mixing = mixing + choosing
        if kinds:
            mixing, feeding = ([], feeding) if kinds[i] == "-" else (mixing, [])
        tensors += [(f"blk.{i}.{name}", *rest) for name, *rest in block_norms + mixing + feeding + list(more)]
    ahead = [("nextn.eh_proj.weight", (d, 2 * d), matrix, 0.0), ("nextn.enorm.weight", (d,), 0.1, 1.0),
             ("nextn.hnorm.weight", (d,), 0.1, 1.0)]
    if predicting_ends:
        ahead += [("nextn.embed_tokens.weight", (n_vocab, d), 0.05, 0.0), ("nextn.shared_head_norm.weight", (d,), 0.1, 1.0),
                  ("nextn.shared_head_head.weight", (n_vocab, d), 0.05, 0.0)]
    for i in range(layers, layers + predicting):
        tensors += [(f"blk.{i}.{name}", *rest) for name, *rest in block_norms + attention + selecting + moe + ahead]
    divisors = [(f"{name}.weight", np.linspace(1, largest, head_dim // 2, dtype=np.float32)) for name, largest in factors]
    random_file(target, vocabulary, architecture, all_keys, tensors, quantized, given=divisors, more_tokens=more_tokens)


def latent_attention(d, heads, matrix, query, kv, plain, rotated, value, cached):
    """Keys and tensors of multi-head latent attention. `query`: what queries are made from, 0 for the input itself;
    `cached`: the newer form, whose cache holds what keys and values are made from."""
    key = plain + rotated
    keys = {"attention.kv_lora_rank": kv, "rope.dimension_count": rotated,
            "attention.head_count_kv": 1 if cached else heads,
            "attention.key_length": kv + rotated if cached else key, "attention.value_length": kv if cached else value}
    if cached:
        keys |= {"attention.key_length_mla": key, "attention.value_length_mla": value}
    sharp = 3 * matrix * d ** 0.5  # of what a product makes of a normalised input
    block = [("attn_kv_a_mqa.weight", (kv + rotated, d), 3 * matrix, 0.0), ("attn_kv_a_norm.weight", (kv,), 0.1, 1.0),
             ("attn_output.weight", (d, heads * value), matrix, 0.0)]
    if query:
        keys["attention.q_lora_rank"] = query
        block += [("attn_q_a.weight", (query, d), matrix, 0.0), ("attn_q_a_norm.weight", (query,), 0.1, 1.0),
                  ("attn_q_b.weight", (heads * key, query), sharp / query ** 0.5, 0.0)]
    else:
        block.append(("attn_q.weight", (heads * key, d), 3 * matrix, 0.0))
    if cached:
        block += [("attn_k_b.weight", (heads, kv, plain), sharp / kv ** 0.5, 0.0),
                  ("attn_v_b.weight", (heads, value, kv), sharp / 3 / kv ** 0.5, 0.0)]
    else:
        block.append(("attn_kv_b.weight", (heads * (plain + value), kv), sharp / 2 / kv ** 0.5, 0.0))
    return keys, block


def lightning_indexer(d, query, matrix, heads, length, top_k):
    """Keys and tensors of what selects the keys that are attended to. `query`: what its queries are made from."""
    keys = {"attention.indexer.head_count": heads, "attention.indexer.key_length": length,
            "attention.indexer.top_k": top_k}
    sharp = 3 * matrix * d ** 0.5
    return keys, [("indexer.attn_q_b.weight", (heads * length, query), sharp / query ** 0.5, 0.0),
                  ("indexer.attn_k.weight", (length, d), 3 * matrix, 0.0), ("indexer.k_norm.weight", (length,), 0.1, 1.0),
                  ("indexer.k_norm.bias", (length,), 0.3, 0.0), ("indexer.proj.weight", (heads, d), 3 * matrix, 0.0)]


def block_index(d, heads, matrix, length, block, top_k, local=1):
    """Keys and tensors of what selects blocks of keys for each head of keys. `top_k`: in blocks."""
    keys = {"attention.indexer.head_count": heads, "attention.indexer.key_length": length,
            "attention.indexer.block_size": block, "attention.indexer.top_k": top_k,
            "attention.indexer.local_blocks": local}
    block = of_products({"indexer.q_proj": (heads * length, d, 3 * matrix), "indexer.k_proj": (length, d, 3 * matrix)}, ())
    return keys, block + [(f"indexer.{x}_norm.weight", (length,), 0.3, 1.5) for x in "qk"]


def of_products(products, biases):
    """Tensors of {name: (rows, row length, deviation)}."""
    block = [(name + ".weight", (n, k), deviation, 0.0) for name, (n, k, deviation) in products.items()]
    return block + [(name + ".bias", (products[name][0],), 0.3, 0.0) for name in biases if name in products]


def dense_ffn(d, d_ff, matrix, fused=False, suffix=""):
    if fused:
        return {"ffn_up": (2 * d_ff, d, matrix), "ffn_down": (d, d_ff, matrix)}
    return {f"ffn_gate{suffix}": (d_ff, d, matrix), f"ffn_up{suffix}": (d_ff, d, matrix),
            f"ffn_down{suffix}": (d, d_ff, matrix)}


def of_experts(d, experts, matrix, biases, choice_bias, fused=False, gated=True, latent=0):
    """`latent`: what experts read and give, if it is not as wide as what the router reads."""
    count, _, width = experts
    inside = latent or d
    both = [("ffn_gate_up_exps", 2 * width)] if fused else [("ffn_gate_exps", width), ("ffn_up_exps", width)]
    if not gated:
        both = [("ffn_up_exps", width)]
    block = [("ffn_gate_inp.weight", (count, d), 6 * matrix, 0.0),
             *((f"{name}.weight", (count, n, inside), matrix, 0.0) for name, n in both),
             ("ffn_down_exps.weight", (count, inside, width), matrix, 0.0)]
    if inside != d:
        block += [("ffn_latent_down.weight", (inside, d), matrix, 0.0), ("ffn_latent_up.weight", (d, inside), matrix, 0.0)]
    shapes = {"ffn_gate_inp": (count,), "ffn_gate_exps": (count, width), "ffn_up_exps": (count, width),
              "ffn_down_exps": (count, d)}
    block += [(name + ".bias", shapes[name], 0.3, 0.0) for name in biases if name in shapes]
    if choice_bias:
        block.append(("exp_probs_b.bias", (count,), choice_bias, 0.0))
    return block


def gemma4(target, vocabulary, keys=None, own_values=True, d_per_layer=0, shared=0, experts=None, fused=True, d=512,
           d_ff=1024, heads=8):
    """Of six layers every other one sees all, by wider and fewer heads of keys. `own_values`: those layers have values
    of their own; `d_per_layer`: width of a layer's part of the second embeddings; `shared`: the last layers, which keep
    no keys and are twice as wide; `experts`: as decoder() has it; `fused`: their gate and up are one matrix."""
    n_vocab = len(gguf.GGUFReader(vocabulary).get_field("tokenizer.ggml.tokens").data)
    layers, dim, kv = 6, {True: 64, False: 128}, {True: 4, False: 2}  # by whether a layer is local
    local = [i % 2 == 0 for i in range(layers)]
    widths = [d_ff if i < layers - shared else 2 * d_ff for i in range(layers)]
    all_keys = {"block_count": layers, "context_length": 4096, "embedding_length": d, "feed_forward_length": widths,
                "attention.head_count": heads, "attention.head_count_kv": [kv[x] for x in local],
                "attention.key_length": dim[False], "attention.value_length": dim[False],
                "attention.key_length_swa": dim[True], "attention.value_length_swa": dim[True],
                "attention.layer_norm_rms_epsilon": 1e-6, "attention.sliding_window": 96,
                "attention.sliding_window_pattern": local, "attention.shared_kv_layers": shared,
                "embedding_length_per_layer_input": d_per_layer, "rope.dimension_count": dim[False],
                "rope.dimension_count_swa": dim[True], "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4,
                "final_logit_softcapping": 8.0}
    matrix = 0.02
    tensors = [("token_embd.weight", (n_vocab, d), 0.05, 0.0), ("output_norm.weight", (d,), 0.05, 1.0)]
    if d_per_layer:
        tensors += [("per_layer_token_embd.weight", (n_vocab, layers * d_per_layer), 0.1, 0.0),
                    ("per_layer_model_proj.weight", (layers * d_per_layer, d), 1.0, 0.0),
                    ("per_layer_proj_norm.weight", (d_per_layer,), 0.1, 1.0)]
    if experts:
        count, used, width = experts
        all_keys |= {"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": width}
    for i, is_local in enumerate(local):
        h = dim[is_local]
        block = [(f"{name}.weight", (d,), 0.1, 1.0)
                 for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")]
        block += [("attn_q.weight", (heads * h, d), matrix, 0.0), ("attn_output.weight", (d, heads * h), matrix, 0.0),
                  ("attn_q_norm.weight", (h,), 0.1, 0.5), ("layer_output_scale.weight", (1,), 0.2, 0.8)]
        if i < layers - shared:
            block += [("attn_k.weight", (kv[is_local] * h, d), matrix, 0.0), ("attn_k_norm.weight", (h,), 0.1, 0.5)]
            if own_values or is_local:
                block.append(("attn_v.weight", (kv[is_local] * h, d), matrix, 0.0))
        block += [("ffn_gate.weight", (widths[i], d), matrix, 0.0), ("ffn_up.weight", (widths[i], d), matrix, 0.0),
                  ("ffn_down.weight", (d, widths[i]), matrix, 0.0)]
        if d_per_layer:
            block += [("inp_gate.weight", (d_per_layer, d), matrix, 0.0), ("proj.weight", (d, d_per_layer), 0.1, 0.0),
                      ("post_norm.weight", (d,), 0.1, 1.0)]
        if experts:
            block += [(f"{name}.weight", (d,), 0.1, 1.0)
                      for name in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2")]
            block += [("ffn_gate_inp.weight", (count, d), 2.0, 0.0), ("ffn_gate_inp.scale", (d,), 0.3, 1.0),
                      ("ffn_down_exps.weight", (count, d, width), matrix, 0.0), ("ffn_down_exps.scale", (count,), 0.3, 1.0)]
            both = [("ffn_gate_up_exps", 2 * width)] if fused else [("ffn_gate_exps", width), ("ffn_up_exps", width)]
            block += [(f"{name}.weight", (count, n, d), matrix, 0.0) for name, n in both]
        tensors += [(f"blk.{i}.{name}", *rest) for name, *rest in block]
    turned = dim[False] // 8  # of half a head: a quarter of the pairs
    divisors = np.array([1.0] * turned + [1e30] * (dim[False] // 2 - turned), np.float32)
    random_file(target, vocabulary, "gemma4", all_keys | (keys or {}), tensors, given=[("rope_freqs.weight", divisors)])


def layered(target, vocabulary, architecture, sizes, fused=False, qk_norm=False, tied=False, d=512, h=64):
    """Each layer has `sizes` of its own: heads, heads of keys, width of the feed-forward network, 0 for none. With heads
    but none of keys there is a product in place of attention."""
    n_vocab = len(gguf.GGUFReader(vocabulary).get_field("tokenizer.ggml.tokens").data)
    heads, kv_heads, widths = (list(x) for x in zip(*sizes))
    keys = {"block_count": len(sizes), "context_length": 4096, "embedding_length": d, "feed_forward_length": widths,
            "attention.head_count": heads, "attention.head_count_kv": kv_heads, "attention.key_length": h,
            "attention.value_length": h, "attention.layer_norm_rms_epsilon": 1e-6, "rope.dimension_count": h,
            "rope.freq_base": 1e6}
    matrix = 0.02
    tensors = [("token_embd.weight", (n_vocab, d), 0.05, 0.0), ("output_norm.weight", (d,), 0.05, 1.0)]
    if not tied:
        tensors.append(("output.weight", (n_vocab, d), 0.05, 0.0))
    for i, (q, kv, width) in enumerate(sizes):
        block = [("attn_norm.weight", (d,), 0.1, 1.0)] if q else []
        products = {"attn_output": (d, q * h, matrix)} if q else {}
        if kv and fused:
            products["attn_qkv"] = ((q + 2 * kv) * h, d, 2 * matrix)
        elif kv:
            products |= {"attn_q": (q * h, d, 3 * matrix), "attn_k": (kv * h, d, 3 * matrix), "attn_v": (kv * h, d, matrix)}
        if kv and qk_norm:
            block += [("attn_q_norm.weight", (h,), 0.3, 1.5), ("attn_k_norm.weight", (h,), 0.3, 1.5)]
        if width:
            block.append(("ffn_norm.weight", (d,), 0.1, 1.0))
            products |= dense_ffn(d, width, matrix)
        tensors += [(f"blk.{i}.{name}", *rest) for name, *rest in block + of_products(products, ())]
    random_file(target, vocabulary, architecture, keys, tensors)


def gemma3n(target, vocabulary, keys=None, d=256, d_ff=512, heads=4, h=64, layers=22):
    """The peer takes the sizes of AltUp, LAuReL and the second embeddings to be those of the published models, the first
    20 layers to keep keys and the first 10 to be sparse. Gates are so large that nearly none is looked up in the peer's
    table of half floats."""
    n_vocab = len(gguf.GGUFReader(vocabulary).get_field("tokenizer.ggml.tokens").data)
    narrow, streams, per_layer, kv = 64, 4, 256, 2
    all_keys = {"block_count": layers, "context_length": 4096, "embedding_length": d, "feed_forward_length": d_ff,
                "attention.head_count": heads, "attention.head_count_kv": kv, "attention.key_length": h,
                "attention.value_length": h, "attention.layer_norm_rms_epsilon": 1e-6, "attention.sliding_window": 96,
                "attention.sliding_window_pattern": [i % 5 != 4 for i in range(layers)],
                "attention.shared_kv_layers": layers - 20, "embedding_length_per_layer_input": per_layer,
                "altup.num_inputs": streams, "altup.active_idx": 0, "rope.dimension_count": h, "rope.freq_base": 1e6,
                "activation_sparsity_scale": [1.6448533535003662] * 10 + [float("-inf")] * (layers - 10)}
    matrix = 0.03
    tensors = [("token_embd.weight", (n_vocab, d), 0.05, 0.0), ("output_norm.weight", (d,), 0.05, 1.0),
               ("altup_proj.weight", (streams - 1, d, d), 0.06, 0.0),
               ("altup_unembd_proj.weight", (streams - 1, d, d), 0.06, 0.0),
               ("per_layer_token_embd.weight", (n_vocab, layers * per_layer), 0.1, 0.0),
               ("per_layer_model_proj.weight", (layers * per_layer, d), 1.0, 0.0),
               ("per_layer_proj_norm.weight", (per_layer,), 0.1, 1.0)]
    norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "altup_router_norm", "laurel_post_norm",
             "post_norm", "altup_correct_scale")
    block = [(f"{name}.weight", (d,), 0.1, 1.0) for name in norms]
    block += [("attn_q.weight", (heads * h, d), matrix, 0.0), ("attn_k.weight", (kv * h, d), matrix, 0.0),
              ("attn_v.weight", (kv * h, d), matrix, 0.0), ("attn_output.weight", (d, heads * h), matrix, 0.0),
              ("attn_q_norm.weight", (h,), 0.1, 0.5), ("attn_k_norm.weight", (h,), 0.1, 0.5),
              ("ffn_gate.weight", (d_ff, d), 100.0, 0.0), ("ffn_up.weight", (d_ff, d), matrix, 0.0),
              ("ffn_down.weight", (d, d_ff), matrix, 0.0), ("inp_gate.weight", (per_layer, d), 100.0, 0.0),
              ("proj.weight", (d, per_layer), 0.1, 0.0), ("altup_router.weight", (streams, d), 10.0, 0.0),
              ("altup_predict_coef.weight", (streams * streams, streams), 0.1, 0.0),
              ("altup_correct_coef.weight", (streams, streams), 0.3, 0.0),
              ("laurel_l.weight", (narrow, d), matrix, 0.0), ("laurel_r.weight", (d, narrow), 0.1, 0.0)]
    tensors += [(f"blk.{i}.{name}", *rest) for i in range(layers) for name, *rest in block]
    random_file(target, vocabulary, "gemma3n", all_keys | (keys or {}), tensors)


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
