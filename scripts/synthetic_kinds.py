"""Small GGUF files with random weights of families whose layers differ in more than synthetic_models.decoder() knows."""

import gguf
import numpy as np

from synthetic_models import (
    delta_layer, dense_ffn, latent_attention, lightning_indexer, of_experts, of_products, random_file)


def sizes(vocabulary):
    return len(gguf.GGUFReader(vocabulary).get_field("tokenizer.ggml.tokens").data)


def ends(n_vocab, d):
    return [("token_embd.weight", (n_vocab, d), 0.05, 0.0), ("output_norm.weight", (d,), 0.05, 1.0),
            ("output.weight", (n_vocab, d), 0.05, 0.0)]


def of_layers(blocks):
    return [(f"blk.{i}.{name}", *rest) for i, block in enumerate(blocks) for name, *rest in block]


def norms(d, *names):
    return [(name + ".weight", (d,), 0.1, 1.0) for name in names]


def windows(target, vocabulary, architecture, local, heads, kv_heads, head_dim=64, value_dim=64, gates=False,
            qk_norm=False, sinks=False, shared=0, d=512, d_ff=1024, experts=(32, 4, 128), keys=None, quantized=None,
            choice_bias=0.2):
    """Experts behind a dense layer, or none. `local`: flags of the layers; `heads`, `kv_heads`: by such a flag; `gates`:
    of each "head" or each "element" of its result; `sinks`: of layers with a window; `shared`: width of the expert of all
    tokens."""
    matrix = 0.02
    all_keys = {"block_count": len(local), "context_length": 4096, "embedding_length": d, "feed_forward_length": d_ff,
                "attention.head_count": [heads[x] for x in local],
                "attention.head_count_kv": [kv_heads[x] for x in local], "attention.key_length": head_dim,
                "attention.value_length": value_dim, "attention.layer_norm_rms_epsilon": 1e-6,
                "attention.sliding_window": 96, "attention.sliding_window_pattern": local, "rope.freq_base": 1e6,
                "rope.freq_base_swa": 1e4, "rope.dimension_count": head_dim}
    if experts:
        count, used, width = experts
        all_keys |= {"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": width}
    if shared:
        all_keys["expert_shared_feed_forward_length"] = shared
    blocks = []
    for i, flag in enumerate(local):
        q, k, v, out = (n * size for n, size in ((heads[flag], head_dim), (kv_heads[flag], head_dim),
                                                 (kv_heads[flag], value_dim), (heads[flag], value_dim)))
        block = norms(d, "attn_norm", "ffn_norm") + of_products(
            {"attn_q": (q, d, 3 * matrix), "attn_k": (k, d, 3 * matrix), "attn_v": (v, d, matrix),
             "attn_output": (d, out, matrix)}, ())
        if gates:
            n_gates = heads[flag] * (value_dim if gates == "element" else 1)
            block += of_products({"attn_gate": (n_gates, d, 3 * matrix)}, ())
        if qk_norm:
            block += [(f"attn_{x}_norm.weight", (head_dim,), 0.3, 1.5) for x in "qk"]
        if sinks and flag:
            block.append(("attn_sinks.weight", (heads[flag],), 2.0, 0.0))
        if i == 0 or not experts:
            block += of_products(dense_ffn(d, d_ff, matrix), ())
        else:
            block += of_experts(d, experts, matrix, (), choice_bias)
            if shared:
                block += of_products(dense_ffn(d, shared, matrix, suffix="_shexp"), ())
        blocks.append(block)
    random_file(target, vocabulary, architecture, all_keys | (keys or {}),
                ends(sizes(vocabulary), d) + of_layers(blocks), quantized)


def grok(target, vocabulary, keys=None, quantized=None, dense=True, d=512, d_ff=1024, heads=8, kv_heads=2, layers=3,
         experts=(8, 8, 256)):
    """All of a token's experts are used: the peer takes GELU from a table, which would let it choose others."""
    matrix, head_dim = 0.02, d // heads
    count, used, width = experts
    all_keys = {"block_count": layers, "context_length": 4096, "embedding_length": d, "feed_forward_length": d_ff,
                "attention.head_count": heads, "attention.head_count_kv": kv_heads,
                "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6, "rope.dimension_count": head_dim,
                "expert_count": count, "expert_used_count": used, "expert_feed_forward_length": width,
                "embedding_scale": 9.0, "logit_scale": 0.7, "attention.output_scale": 0.2,
                "attn_logit_softcapping": 6.0, "router_logit_softcapping": 0.0, "final_logit_softcapping": 8.0}
    block = norms(d, "attn_norm", "attn_output_norm", "ffn_norm", "post_ffw_norm") + of_products(
        {"attn_q": (heads * head_dim, d, 3 * matrix), "attn_k": (kv_heads * head_dim, d, 3 * matrix),
         "attn_v": (kv_heads * head_dim, d, matrix), "attn_output": (d, heads * head_dim, matrix)}, ())
    block += of_experts(d, experts, matrix, (), 0.0)
    if dense:
        block += of_products(dense_ffn(d, d_ff, matrix), ())
    random_file(target, vocabulary, "grok", all_keys | (keys or {}),
                ends(sizes(vocabulary), d) + of_layers([block] * layers), quantized)


def kimi_linear(target, vocabulary, keys=None, quantized=None, layers=5, d=256, d_ff=512, heads=4, head=64, kernel=4,
                experts=(32, 4, 128), ling=False, query=0, ahead=0):
    """Every fourth layer attends to latents, the others go by Kimi Delta Attention, with decays about 0.85. `ling`: of
    Ling 3.0, with decays to a floor and gates of heads; `query`: what queries are made from; `ahead`: layers behind
    these, for tokens further on."""
    architecture, matrix = "bailingmoe3" if ling else "kimi-linear", 0.02 * (512 / d) ** 0.5
    count, used, width = experts
    latent_keys, latent = latent_attention(d, heads, matrix, query=query, kv=128, plain=64, rotated=32, value=48,
                                           cached=True)
    attends = [i % 4 == 3 or i >= layers for i in range(layers + ahead)]
    all_keys = latent_keys | {
        "block_count": layers + ahead, "context_length": 4096, "embedding_length": d, "feed_forward_length": d_ff,
        "attention.head_count": heads, "attention.head_count_kv": [int(x) for x in attends],
        "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e4, "ssm.conv_kernel": kernel,
        "attention.value_length": 72, "kda.head_dim": head, "expert_count": count, "expert_used_count": used, "expert_feed_forward_length": width,
        "expert_shared_count": 1, "leading_dense_block_count": 1, "expert_weights_scale": 2.446,
        "expert_gating_func": 2}
    n = heads * head
    delta = of_products({f"attn_{x}": (n, d, 2 * matrix) for x in "qkv"}, ())
    delta += [(f"ssm_conv1d_{x}.weight", (1, n, 1, kernel), 0.5, 0.0) for x in "qkv"]
    low_rank = {"ssm_f_a": (head, d, matrix), "ssm_f_b": (n, head, 3 * matrix), "ssm_g_a": (head, d, matrix),
                "ssm_g_b": (n, head, 3 * matrix)}
    if ling:
        all_keys |= {"kda.safe_gate": True, "kda.gate_lower_bound": -5.0, "expert_weights_norm": True,
                     "expert_shared_feed_forward_length": 192}
        if ahead:
            all_keys["nextn_predict_layers"] = ahead
        low_rank = {"ssm_f_a": (n, d, 2 * matrix), "ssm_g_a": (n, d, 2 * matrix)}
        latent = latent + of_products({"attn_gate": (heads, d, 3 * matrix)}, ())
    delta += of_products(low_rank | {"ssm_beta": (heads, d, 2 * matrix), "attn_output": (d, n, matrix)}, ())
    # Of a floor of -5, decays are about 0.8 where a gate is -3.
    delta += [("ssm_a", (heads, 1), 0.2, 1.0), ("ssm_dt.bias", (n,), 0.5, -3.0)] if ling else [
        ("ssm_a", (heads, 1), 0.05, -0.2), ("ssm_dt.bias", (n,), 0.5, 0.0)]
    delta.append(("ssm_norm.weight", (head,), 0.1, 1.0))
    next_token = of_products({"nextn.eh_proj": (d, 2 * d, matrix)}, ()) + norms(d, "nextn.enorm", "nextn.hnorm",
                                                                               "layer_output_norm")
    blocks = []
    for i, attending in enumerate(attends):
        block = norms(d, "attn_norm", "ffn_norm") + (latent if attending else delta)
        if i == 0:
            block += of_products(dense_ffn(d, d_ff, matrix), ())
        else:
            block += of_experts(d, experts, matrix, (), 0.2)
            block += of_products(dense_ffn(d, 192 if ling else width, matrix, suffix="_shexp"), ())
        blocks.append(block if i < layers else block + next_token)
    random_file(target, vocabulary, architecture, all_keys | (keys or {}),
                ends(sizes(vocabulary), d) + of_layers(blocks), quantized)


def floored_delta(d, heads, head, kernel, matrix, whole_gates):
    """What a layer of Kimi Delta Attention with decays to a floor has in place of attention, of files whose ssm_a is below
    0. Decays are about 0.8 of a floor of -5. `whole_gates`: gates of results are made by one matrix."""
    n = heads * head
    products = {f"attn_{x}": (n, d, 2 * matrix) for x in "qkv"} | {
        "ssm_f_a": (head, d, matrix), "ssm_f_b": (n, head, 3 * matrix), "ssm_beta": (heads, d, 2 * matrix),
        "attn_output": (d, n, matrix)}
    products |= {"ssm_g": (n, d, 2 * matrix)} if whole_gates else {"ssm_g_a": (head, d, matrix),
                                                                  "ssm_g_b": (n, head, 3 * matrix)}
    return {"ssm.conv_kernel": kernel, "kda.head_dim": head, "kda.gate_lower_bound": -5.0}, of_products(products, ()) + [
        *((f"ssm_conv1d_{x}.weight", (1, n, 1, kernel), 0.5, 0.0) for x in "qkv"),
        ("ssm_a", (heads,), 0.2, -1.0), ("ssm_dt.bias", (n,), 0.5, -3.0), ("ssm_norm.weight", (head,), 0.1, 1.0)]


def kimi_k3(target, vocabulary, keys=None, quantized=None, layers=6, d=256, d_ff=512, heads=4, head=64, kernel=4,
            experts=(32, 4, 128), inside=160, query=96):
    """Every fourth layer attends to latents, the others go by Kimi Delta Attention. `inside`: width of the rows that
    experts work on; `query`: what queries are made from."""
    matrix = 0.02 * (512 / d) ** 0.5
    count, used, width = experts
    latent_keys, latent = latent_attention(d, heads, matrix, query=query, kv=128, plain=64, rotated=32, value=48,
                                           cached=True)
    delta_keys, delta = floored_delta(d, heads, head, kernel, matrix, whole_gates=True)
    attends = [i % 4 == 3 for i in range(layers)]
    all_keys = latent_keys | delta_keys | {
        "block_count": layers, "context_length": 4096, "embedding_length": d, "feed_forward_length": d_ff,
        "attention.head_count": heads, "attention.head_count_kv": [int(x) for x in attends],
        "attention.layer_norm_rms_epsilon": 1e-6, "expert_count": count, "expert_used_count": used,
        "expert_feed_forward_length": width, "expert_shared_count": 2, "leading_dense_block_count": 1,
        "expert_weights_scale": 2.446, "expert_weights_norm": True, "expert_gating_func": 2,
        "expert_latent_length": inside, "attn_res.block_size": 2, "activation.situ_beta": 0.6,
        "activation.situ_linear_beta": 0.4}
    latent = latent + of_products({"attn_gate": (heads * 48, d, 3 * matrix)}, ())
    ffn = [("ffn_gate_inp.weight", (count, d), 6 * matrix, 0.0), ("exp_probs_b.bias", (count,), 0.2, 0.0),
           ("ffn_gate_exps.weight", (count, width, inside), 2 * matrix, 0.0),
           ("ffn_up_exps.weight", (count, width, inside), 2 * matrix, 0.0),
           ("ffn_down_exps.weight", (count, inside, width), matrix, 0.0), ("ffn_routed_norm.weight", (inside,), 0.1, 0.3)]
    ffn += of_products({"ffn_routed_down": (inside, d, 3 * matrix), "ffn_routed_up": (d, inside, matrix)}, ())
    ffn += of_products(dense_ffn(d, 2 * width, matrix, suffix="_shexp"), ())
    blocks = []
    for i, attending in enumerate(attends):
        block = norms(d, "attn_norm", "ffn_norm") + (latent if attending else delta)
        block += [(f"{x}_res_score.weight", (d,), 0.15, 0.0) for x in ("attn", "ffn")]
        blocks.append(block + (ffn if i else of_products(dense_ffn(d, d_ff, matrix), ())))
    tensors = ends(sizes(vocabulary), d) + [("output_res_score.weight", (d,), 0.15, 0.0)] + of_layers(blocks)
    random_file(target, vocabulary, "kimi-k3", all_keys | (keys or {}), tensors, quantized)


def glm5_next(target, vocabulary, keys=None, quantized=None, attends=(False, False, True, False, True, True),
              owns=(True, True, True, True, True, False), top_k=64, pool=4, d=256, d_ff=512, heads=4, head=64, kernel=4,
              experts=(8, 8, 128), query=96, streams=4, index=(32, 64), ahead=0):
    """`attends`, `owns`: flags of the layers that attend to selected latents, and of those that have an index; `pool`:
    positions that are selected together; `query`: what queries are made from; `index`: heads and their length; `ahead`:
    layers behind these, for tokens further on."""
    matrix = 0.02 * (512 / d) ** 0.5
    count, used, width = experts
    latent_keys, latent = latent_attention(d, heads, matrix, query=query, kv=128, plain=64, rotated=0, value=48,
                                           cached=True)
    delta_keys, delta = floored_delta(d, heads, head, kernel, matrix, whole_gates=False)
    index_keys, indexer = lightning_indexer(d, query, matrix, *index, top_k=top_k)
    indexer = indexer + [("indexer_compressor_gate.weight", (index[1], d), 3 * matrix, 0.0),
                         ("indexer_compressor_ape.weight", (pool, index[1]), 0.5, 0.0)]
    layers = len(attends)
    all_keys = latent_keys | delta_keys | index_keys | {
        "block_count": layers + ahead, "context_length": 4096, "embedding_length": d, "feed_forward_length": d_ff,
        "attention.head_count": heads, "attention.head_count_kv": [int(x) for x in attends] + [1] * ahead,
        "attention.layer_norm_rms_epsilon": 1e-6, "attention.layer_norm_epsilon": 1e-6,
        "attention.indexer.kpool": pool, "attention.indexer.kpool_select_tail": True,
        "attention.indexer.types": list(owns), "expert_count": count, "expert_used_count": used,
        "expert_feed_forward_length": width, "expert_shared_count": 1, "leading_dense_block_count": 1,
        "expert_weights_scale": 2.5, "expert_weights_norm": True, "hyper_connection.count": streams,
        "hyper_connection.sinkhorn_iterations": 20, "hyper_connection.epsilon": 1e-6,
        "swiglu_clamp_exp": [0.5] * (layers + ahead), "swiglu_clamp_shexp": [0.4] * (layers + ahead)}
    if ahead:
        all_keys["nextn_predict_layers"] = ahead
    mixing = (2 + streams) * streams
    connections = [tensor for name in ("hc_attn", "hc_ffn") for tensor in (
        (name + "_fn.weight", (mixing, streams * d), 1.5 * matrix, 0.0), (name + "_scale.weight", (3,), 0.2, 1.0),
        (name + "_base.weight", (mixing,), 0.5, 0.0))]
    blocks = []
    for i in range(layers + ahead):
        attending = i >= layers or attends[i]
        block = norms(d, "attn_norm", "ffn_norm") + (latent if attending else delta)
        if attending and (i >= layers or owns[i]):
            block += indexer
        if i == 0:
            block += of_products(dense_ffn(d, d_ff, matrix), ())
        else:
            block += of_experts(d, experts, matrix, (), 0.2)
            block += of_products(dense_ffn(d, width, matrix, suffix="_shexp"), ())
        if i < layers:
            block += connections
        else:
            block += of_products({"nextn.eh_proj": (d, 2 * d, matrix)}, ()) + norms(d, "nextn.enorm", "nextn.hnorm")
        blocks.append(block)
    random_file(target, vocabulary, "glm5-next", all_keys | (keys or {}), ends(sizes(vocabulary), d) + of_layers(blocks),
                quantized)


def dots3note(target, vocabulary, keys=None, quantized=None, local=(True, True, False, True, False), d=512, d_ff=1024,
              query=192, rotated=32, experts=(16, 16, 128), top_k=64, ahead=0):
    """`local`: flags of layers that see a window, whose latents, heads and values are fewer and shorter; `ahead`: layers
    behind these, of the same kind, for tokens further on."""
    matrix = 0.02
    count, used, width = experts
    heads = {True: 4, False: 8}
    sizes_of = {True: {"kv": 64, "plain": 48, "value": 32}, False: {"kv": 128, "plain": 64, "value": 48}}
    made = {flag: latent_attention(d, heads[flag], matrix, query=query, rotated=rotated, cached=True, **sizes_of[flag])
            for flag in (True, False)}
    index_keys, index = lightning_indexer(d, query, matrix, heads=32, length=64, top_k=top_k)
    flags = list(local) + [True] * ahead
    all_keys = made[False][0] | index_keys | {
        "block_count": len(flags), "context_length": 4096, "embedding_length": d, "feed_forward_length": d_ff,
        "attention.head_count": [heads[x] for x in flags], "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.sliding_window": 96, "attention.sliding_window_pattern": list(local), "rope.freq_base": 1e6,
        "rope.freq_base_swa": 1e4, "attention.indexer.types": [not x for x in local], "expert_count": count,
        "expert_used_count": used, "expert_feed_forward_length": width, "expert_shared_count": 1,
        "leading_dense_block_count": 1, "expert_weights_scale": 2.5, "expert_weights_norm": True,
        "expert_gating_func": 2}
    for name in ("kv_lora_rank", "key_length", "value_length", "key_length_mla", "value_length_mla"):
        all_keys[f"attention.{name}_swa"] = made[True][0][f"attention.{name}"]
    if ahead:
        all_keys["nextn_predict_layers"] = ahead
    blocks = []
    for i, flag in enumerate(flags):
        block = norms(d, "attn_norm", "ffn_norm") + made[flag][1] + ([] if flag else index)
        block += of_products({"attn_gate": (heads[flag], d, 3 * matrix)}, ())
        block.append(("attn_k_norm.weight", (rotated,), 0.3, 1.5))
        if i == 0 or i >= len(local):
            block += of_products(dense_ffn(d, d_ff, matrix), ())
        else:
            block += of_experts(d, experts, matrix, (), 0.2)
            block += of_products(dense_ffn(d, width, matrix, suffix="_shexp"), ())
        if i >= len(local):
            block += of_products({"nextn.eh_proj": (d, 2 * d, matrix)}, ()) + norms(d, "nextn.enorm", "nextn.hnorm")
        blocks.append(block)
    random_file(target, vocabulary, "dots3note", all_keys | (keys or {}),
                ends(sizes(vocabulary), d) + of_layers(blocks), quantized)


def centered(rng, shape, deviation, axis):
    """Random values whose mean along an axis is 0."""
    data = rng.normal(0.0, deviation, shape)
    return (data - data.mean(axis=axis, keepdims=True)).astype(np.float32)


def phimoe(target, vocabulary, keys=None, d=512, d_ff=512, heads=8, kv_heads=2, layers=3, original=4096):
    """The peer does not subtract the mean in norms and has other weights of experts: here vectors have a mean of 0, and
    there is one expert. It has all biases."""
    matrix, head_dim, n_vocab = 0.02, d // heads, sizes(vocabulary)
    q, kv = heads * head_dim, kv_heads * head_dim
    all_keys = {"block_count": layers, "context_length": 4096, "embedding_length": d, "feed_forward_length": d_ff,
                "attention.head_count": heads, "attention.head_count_kv": kv_heads,
                "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6, "rope.dimension_count": head_dim,
                "rope.scaling.original_context_length": original, "rope.scaling.attn_factor": 1.19,
                "attention.sliding_window": 4096, "expert_count": 1, "expert_used_count": 1}
    tensors = [("output_norm.weight", (d,), 0.05, 1.0), ("output_norm.bias", (d,), 0.3, 0.0),
               ("output.weight", (n_vocab, d), 0.05, 0.0), ("output.bias", (n_vocab,), 0.3, 0.0)]
    block = norms(d, "attn_norm", "ffn_norm") + [(f"{x}_norm.bias", (d,), 0.3, 0.0) for x in ("attn", "ffn")]
    block += of_products({"attn_q": (q, d, 3 * matrix), "attn_k": (kv, d, 3 * matrix), "attn_v": (kv, d, matrix)},
                         ("attn_q", "attn_k", "attn_v"))
    block += [("ffn_gate_inp.weight", (1, d), 6 * matrix, 0.0), ("ffn_gate_exps.weight", (1, d_ff, d), matrix, 0.0),
              ("ffn_up_exps.weight", (1, d_ff, d), matrix, 0.0)]
    rng = np.random.default_rng(7)
    given = [("token_embd.weight", centered(rng, (n_vocab, d), 0.05, 1))]
    for i in range(layers):
        given += [(f"blk.{i}.attn_output.weight", centered(rng, (d, q), matrix, 0)),
                  (f"blk.{i}.attn_output.bias", centered(rng, (d,), 0.3, 0)),
                  (f"blk.{i}.ffn_down_exps.weight", centered(rng, (1, d, d_ff), matrix, 1))]
    given += [(f"rope_factors_{name}.weight", np.linspace(1, largest, head_dim // 2, dtype=np.float32))
              for name, largest in (("long", 12.0), ("short", 1.5))]
    random_file(target, vocabulary, "phimoe", all_keys | (keys or {}), tensors + of_layers([block] * layers),
                given=given)


def scan_layer(d, matrix, state, rank, kernel):
    """A layer of the first Mamba, without norms. The peer wants an inner width of 2 d."""
    inner = 2 * d
    return of_products({"ssm_in": (2 * inner, d, 3 * matrix), "ssm_x": (rank + 2 * state, inner, 2 * matrix),
                        "ssm_dt": (inner, rank, 2 * matrix), "ssm_out": (d, inner, matrix)}, ()) + [
        ("ssm_conv1d.weight", (inner, kernel), 0.5, 0.0), ("ssm_conv1d.bias", (inner,), 0.2, 0.0),
        ("ssm_dt.bias", (inner,), 0.5, 0.0), ("ssm_a", (inner, state), 0.1, -0.7), ("ssm_d", (inner,), 0.3, 1.0)]


def mamba(target, vocabulary, keys=None, layers=4, d=256, state=16, rank=64, kernel=4):
    matrix = 0.02 * (512 / d) ** 0.5
    all_keys = {"block_count": layers, "context_length": 4096, "embedding_length": d, "feed_forward_length": 0,
                "attention.head_count": 0, "attention.layer_norm_rms_epsilon": 1e-6, "ssm.conv_kernel": kernel,
                "ssm.inner_size": 2 * d, "ssm.state_size": state, "ssm.time_step_rank": rank}
    block = norms(d, "attn_norm") + scan_layer(d, matrix, state, rank, kernel)
    random_file(target, vocabulary, "mamba", all_keys | (keys or {}),
                ends(sizes(vocabulary), d) + of_layers([block] * layers))


def biased_norms(d, *names):
    return norms(d, *names) + [(name + ".bias", (d,), 0.3, 0.0) for name in names]


def lerps(d, *names):
    """Shares of the row before, about a half."""
    return [(name + ".weight", (d,), 0.3, 0.5) for name in names]


def channel_mix(d, d_ff, matrix, gated):
    """With squares of rectifiers. `gated`: as RWKV-6 has it."""
    tensors = of_products({"channel_mix_key": (d_ff, d, 2 * matrix), "channel_mix_value": (d, d_ff, matrix)}, ())
    tensors += lerps(d, "channel_mix_lerp_k")
    if gated:
        tensors += of_products({"channel_mix_receptance": (d, d, 3 * matrix)}, ()) + lerps(d, "channel_mix_lerp_r")
    return tensors


def rwkv_file(target, vocabulary, architecture, keys, blocks, d, d_ff, head, quantized):
    """`architecture` of Qwen: other norms, and a gated network, which `blocks` (of the layers) have not."""
    n_vocab, of_qwen, matrix = sizes(vocabulary), architecture in ("rwkv6qwen2", "arwkv7"), 0.02 * (512 / d) ** 0.5
    all_keys = {"block_count": len(blocks), "context_length": 4096, "embedding_length": d, "feed_forward_length": d_ff,
                "attention.head_count": 0, "wkv.head_size": head}
    tensors = ends(n_vocab, d)
    if of_qwen:
        all_keys |= {"attention.layer_norm_rms_epsilon": 1e-6, "token_shift_count": 1}
        before, behind = norms(d, "attn_norm", "ffn_norm"), of_products(dense_ffn(d, d_ff, matrix), ())
    else:
        all_keys |= {"attention.layer_norm_epsilon": 1e-5}
        before = biased_norms(d, "attn_norm", "attn_norm_2")
        behind = [("time_mix_ln.weight", (d,), 0.1, 1.0), ("time_mix_ln.bias", (d,), 0.3, 0.0)]
        tensors += biased_norms(d, "token_embd_norm") + [("output_norm.bias", (d,), 0.3, 0.0)]
    tensors += of_layers([before + block + behind for block in blocks])
    random_file(target, vocabulary, architecture, all_keys | keys, tensors, quantized)


def rwkv6(target, vocabulary, keys=None, quantized=None, layers=4, d=256, d_ff=512, head=64, kv_heads=0, apart=False):
    """`kv_heads`: of QRWKV6, in which heads share keys and values; `apart`: shares in tensors of their own, as the first
    converters wrote them. Decays are about 0.8."""
    matrix, of_qwen, mix, decay = 0.02 * (512 / d) ** 0.5, kv_heads > 0, 32, 64
    own = {"time_mix_extra_dim": mix, "time_decay_extra_dim": decay}
    if of_qwen:
        own["attention.head_count_kv"] = kv_heads
    width = (kv_heads or d // head) * head
    block = of_products({"time_mix_receptance": (d, d, 2 * matrix), "time_mix_key": (width, d, 2 * matrix),
                         "time_mix_value": (width, d, 2 * matrix), "time_mix_gate": (d, d, 3 * matrix),
                         "time_mix_output": (d, d, matrix), "time_mix_w1": (5 * mix, d, 2 * matrix),
                         "time_mix_decay_w1": (decay, d, 2 * matrix), "time_mix_decay_w2": (d, decay, 4 * matrix)},
                        ("time_mix_receptance", "time_mix_key", "time_mix_value") if of_qwen else ())
    block += [("time_mix_w2.weight", (5, d, mix), 0.1, 0.0), ("time_mix_decay.weight", (d,), 0.5, -1.5)]
    block += lerps(d, "time_mix_lerp_x")
    block += lerps(d, *(f"time_mix_lerp_{x}" for x in "wkvrg")) if apart else [
        ("time_mix_lerp_fused.weight", (5, 1, 1, d), 0.3, 0.5)]
    if not of_qwen:
        block += [("time_mix_first.weight", (d // head, head), 0.5, 0.3)] + channel_mix(d, d_ff, matrix, gated=True)
    rwkv_file(target, vocabulary, "rwkv6qwen2" if of_qwen else "rwkv6", own | (keys or {}), [block] * layers, d,
              d_ff, head, quantized)


def rwkv7(target, vocabulary, keys=None, quantized=None, layers=4, d=256, d_ff=512, head=64, of_qwen=False, gated=True,
          ranks=(32, 32, 32, 64)):
    """`of_qwen`: ARWKV, here without norms of heads; `gated`: what the mix gives; `ranks`: of decays, of learning rates
    in context, of shares of the first layer's values, of gates."""
    matrix, ranks = 0.02 * (512 / d) ** 0.5, dict(zip("wavg", ranks))
    own = {f"attention.{name}_lora_rank": ranks[kind] for kind, name in (
        ("w", "decay"), ("a", "iclr"), ("v", "value_residual_mix"))}
    own["attention.gate_lora_rank"] = ranks["g"] if gated else 0

    def block(layer):
        tensors = of_products({"time_mix_receptance": (d, d, 2 * matrix), "time_mix_key": (d, d, 2 * matrix),
                               "time_mix_value": (d, d, 2 * matrix), "time_mix_output": (d, d, matrix)}, ())
        for name in "wavg" if gated else "wav":
            rank = ranks["a" if name == "v" and layer == 0 else name]  # nobody reads it; files have the rates' rank
            tensors += of_products({f"time_mix_{name}1": (rank, d, 2 * matrix),
                                    f"time_mix_{name}2": (d, rank, 6 * matrix)}, ())
            if name != "g":
                tensors.append((f"time_mix_{name}0.weight", (d,), 0.7, -1.0 if name == "w" else 0.0))
        tensors += [("time_mix_lerp_fused.weight", (6 if gated else 5, 1, 1, d), 0.3, 0.5),
                    ("time_mix_k_k.weight", (d,), 0.1, 0.85), ("time_mix_k_a.weight", (d,), 0.1, 1.0),
                    ("time_mix_r_k.weight", (d,), 0.2, 0.0)]
        return tensors if of_qwen else tensors + channel_mix(d, d_ff, matrix, gated=False)

    rwkv_file(target, vocabulary, "arwkv7" if of_qwen else "rwkv7", own | (keys or {}),
              [block(i) for i in range(layers)], d, d_ff, head, quantized)


def jamba(target, vocabulary, keys=None, quantized=None, layers=6, d=256, d_ff=512, heads=4, kv_heads=2, state=16,
          rank=64, kernel=4, experts=(16, 2)):
    """The third layer of four attends; every second layer has experts. The peer wants an inner width of 2 d."""
    matrix, inner, head_dim = 0.02 * (512 / d) ** 0.5, 2 * d, d // heads
    attends = [i % 4 == 2 for i in range(layers)]
    all_keys = {"block_count": layers, "context_length": 4096, "embedding_length": d, "feed_forward_length": d_ff,
                "attention.head_count": heads, "attention.head_count_kv": [kv_heads if x else 0 for x in attends],
                "attention.layer_norm_rms_epsilon": 1e-6, "ssm.conv_kernel": kernel, "ssm.inner_size": inner,
                "ssm.state_size": state, "ssm.time_step_rank": rank, "expert_count": experts[0],
                "expert_used_count": experts[1]}
    attention = of_products({"attn_q": (heads * head_dim, d, 3 * matrix), "attn_k": (kv_heads * head_dim, d, 3 * matrix),
                             "attn_v": (kv_heads * head_dim, d, matrix), "attn_output": (d, heads * head_dim, matrix)},
                            ())
    scan = scan_layer(d, matrix, state, rank, kernel) + [
        ("ssm_dt_norm.weight", (rank,), 0.1, 1.0), ("ssm_b_norm.weight", (state,), 0.1, 1.0),
        ("ssm_c_norm.weight", (state,), 0.1, 1.0)]
    blocks = []
    for i in range(layers):
        block = norms(d, "attn_norm", "ffn_norm") + (attention if attends[i] else scan)
        if i % 2:
            block += of_experts(d, (*experts, d_ff), matrix, (), 0.0)
        else:
            block += of_products(dense_ffn(d, d_ff, matrix), ())
        blocks.append(block)
    random_file(target, vocabulary, "jamba", all_keys | (keys or {}), ends(sizes(vocabulary), d) + of_layers(blocks),
                quantized)


def qwen4exp(target, vocabulary, keys=None, quantized=None, ratios=(4, 4), top_k=60, hashed=1, layers=8, d=512, heads=8,
             kv_heads=2, head_dim=64, delta=(2, 6, 64), streams=4, rank=96, index=(32, 64), experts=(16, 4, 256),
             shared=384):
    """Every fourth layer attends. `ratios`: of these layers, how many keys are selected together, 0 to attend to all;
    `hashed`: the layer that embeddings of several tokens are added in front of, or None; `rank`: of what gates streams;
    `index`: heads and their length."""
    n_vocab, matrix, wide = sizes(vocabulary), 0.02 * (512 / d) ** 0.5, streams * d
    attends = [i % 4 == 3 for i in range(layers)]
    of_layer = iter(ratios)
    count, used, width = experts
    key_heads, value_heads, length = delta
    all_keys = {"block_count": layers, "context_length": 4096, "embedding_length": d, "attention.head_count": heads,
                "attention.head_count_kv": kv_heads, "attention.key_length": head_dim,
                "attention.value_length": head_dim, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 1e6,
                "rope.dimension_count": 32, "rope.dimension_sections": [6, 5, 5, 0], "ssm.conv_kernel": 4,
                "ssm.state_size": length, "ssm.group_count": key_heads, "ssm.time_step_rank": value_heads,
                "ssm.inner_size": value_heads * length, "full_attention_interval": 4, "expert_count": count,
                "expert_used_count": used, "expert_feed_forward_length": width,
                "expert_shared_feed_forward_length": shared, "hyper_connection.count": streams,
                "hyper_connection.low_rank": rank, "attention.indexer.head_count": index[0],
                "attention.indexer.key_length": index[1], "attention.indexer.top_k": top_k,
                "attention.compress_ratios": [next(of_layer) if x else 0 for x in attends]}
    wide_norm = lambda name: (name + ".weight", (wide,), 0.2, 1.0)
    mixing = lambda name: [wide_norm(name + "_norm"), *of_products(
        {name + "_down": (rank, wide, 3 * matrix), name + "_up": (wide, rank, 30 * matrix)}, ())]
    injecting = lambda name: mixing(name) + of_products({name + "_inject": (streams, wide, 3 * matrix)}, ())
    attention = of_products({"attn_q": (2 * heads * head_dim, d, 3 * matrix), "attn_k": (kv_heads * head_dim, d, 3 * matrix),
                             "attn_v": (kv_heads * head_dim, d, matrix), "attn_output": (d, heads * head_dim, matrix),
                             "indexer.q_proj": (index[0] * index[1], d, 3 * matrix),
                             "indexer.k_proj": (index[1], d, 3 * matrix)}, ())
    attention += [(f"attn_{x}_norm.weight", (head_dim,), 0.3, 1.5) for x in "qk"]
    attention += [(f"indexer.{x}_norm.weight", (index[1],), 0.3, 1.5) for x in "qk"]
    ffn = of_experts(d, experts, matrix, (), 0.0) + of_products(dense_ffn(d, shared, matrix, suffix="_shexp"), ())
    ffn.append(("ffn_gate_inp_shexp.weight", (d,), 2 * matrix, 0.0))
    blocks = [injecting("hc_attn") + injecting("hc_ffn") + ffn + (attention if x else delta_layer(
        "qwen4exp", d, *delta, matrix)) for x in attends]
    tensors = [("token_embd.weight", (n_vocab, d), 0.05, 0.0), ("output.weight", (n_vocab, d), 0.05, 0.0),
               *mixing("output_hc")]
    if hashed is not None:
        of_hash, table = hashed_embedding(n_vocab, d, hashed)
        all_keys |= of_hash
        tensors.append(table)
        blocks[hashed] += of_products({"ple_key": (wide, d, 3 * matrix), "ple_value": (d, d, 2 * matrix)}, ())
        blocks[hashed] += [wide_norm("ple_norm_" + x) for x in ("key", "query")]
        blocks[hashed].append(("ple_norm_conv.weight", (wide,), 0.03, 0.1))
        blocks[hashed].append(("ple_conv1d.weight", (wide, 4), 0.5, 0.0))
    random_file(target, vocabulary, "qwen4exp", all_keys | (keys or {}), tensors + of_layers(blocks), quantized)


def hashed_embedding(n_vocab, d, layer, tokens=3, of_each=2):
    """Keys and the table of embeddings that hashes of the last 2 to `tokens` tokens name. The table has a few rows more."""
    heads = (tokens - 1) * of_each
    rows = [101 + 6 * h for h in range(heads)]
    offsets = [sum(rows[:h]) for h in range(heads)]
    rng = np.random.default_rng(5)
    as_u64 = lambda numbers: [np.uint64(n) for n in numbers]
    keys = {"ple.layers": [layer], "ple.ngram_size": tokens, "ple.heads_per_ngram": of_each, "ple.conv_kernel": 4,
            "ple.eos_token_id": 5, "embedding_length_per_layer_input": d // heads,
            "ple.layer_multipliers": as_u64(rng.integers(1 << 44, 1 << 45, tokens)), "ple.head_offsets": as_u64(offsets),
            "ple.head_vocab_sizes": as_u64(rows)}
    return keys, ("per_layer_token_embd.weight", (sum(rows) + 3, d // heads), 0.1, 0.0)


def deepseek4(target, vocabulary, keys=None, quantized=None, ratios=(0, 4, 128, 4, 128), top_k=24, hashed=2, window=40,
              d=256, heads=8, head_dim=64, query=128, groups=2, rank=96, streams=4, index=(32, 64), experts=(16, 4, 128)):
    """`ratios`: of each layer, how many positions a key stands for, 0 for none of these; `hashed`: layers whose experts a
    table gives; `query`: what queries are made from; `groups`, `rank`: of the output; `index`: heads and their length."""
    n_vocab, matrix, layers = sizes(vocabulary), 0.02 * (512 / d) ** 0.5, len(ratios)
    count, used, width = experts
    all_keys = {"block_count": layers, "context_length": 4096, "embedding_length": d, "attention.head_count": heads,
                "attention.head_count_kv": 1, "attention.key_length": head_dim, "attention.value_length": head_dim,
                "attention.layer_norm_rms_epsilon": 1e-6, "attention.sliding_window": window, "rope.freq_base": 1e4,
                "rope.dimension_count": 16, "attention.compress_rope_freq_base": 4e4, "attention.q_lora_rank": query,
                "attention.output_group_count": groups, "attention.output_lora_rank": rank,
                "attention.compress_ratios": list(ratios), "attention.indexer.head_count": index[0],
                "attention.indexer.key_length": index[1], "attention.indexer.top_k": top_k,
                "hyper_connection.count": streams, "hyper_connection.sinkhorn_iterations": 20,
                "hyper_connection.epsilon": 1e-6, "hash_layer_count": hashed, "expert_count": count,
                "expert_used_count": used, "expert_feed_forward_length": width, "expert_shared_count": 1,
                "expert_gating_func": 4, "expert_weights_norm": True, "expert_weights_scale": 1.5,
                "swiglu_clamp_exp": [0.5] * layers}
    mixing = (2 + streams) * streams

    def connection(name, n, scales):
        return of_products({name + "_fn": (n, streams * d, 1.5 * matrix)}, ()) + [
            (name + "_scale.weight", (scales,), 0.2, 1.0), (name + "_base.weight", (n,), 0.5, 0.0)]

    def compressor(name, n, ratio):
        wide = 2 * n if ratio == 4 else n
        return of_products({name + "_kv": (wide, d, 2 * matrix), name + "_gate": (wide, d, 3 * matrix)}, ()) + [
            (name + "_ape.weight", (ratio, wide), 0.5, 0.0), (name + "_norm.weight", (n,), 0.2, 1.0)]

    blocks, given = [], []
    rng = np.random.default_rng(3)
    for i, ratio in enumerate(ratios):
        block = norms(d, "attn_norm", "ffn_norm") + connection("hc_attn", mixing, 3) + connection("hc_ffn", mixing, 3)
        block += of_products({"attn_q_a": (query, d, 2 * matrix), "attn_q_b": (heads * head_dim, query, 2 * matrix),
                              "attn_kv": (head_dim, d, 2 * matrix),
                              "attn_output_a": (groups * rank, heads * head_dim // groups, matrix),
                              "attn_output_b": (d, groups * rank, 2 * matrix)}, ())
        block += [("attn_q_a_norm.weight", (query,), 0.1, 1.0), ("attn_kv_a_norm.weight", (head_dim,), 0.2, 1.0),
                  ("attn_sinks.weight", (heads,), 2.0, 0.0)]
        if ratio:
            block += compressor("attn_compressor", head_dim, ratio)
        if ratio == 4:
            block += compressor("indexer_compressor", index[1], ratio) + of_products(
                {"indexer.proj": (index[0], d, 3 * matrix), "indexer.attn_q_b": (index[0] * index[1], query, 2 * matrix)}, ())
        block += of_experts(d, experts, matrix, (), 0.2 if i >= hashed else 0.0)
        block += of_products(dense_ffn(d, width, matrix, suffix="_shexp"), ())
        blocks.append(block)
        if i < hashed:
            table = np.array([rng.permutation(count)[:used] for _ in range(n_vocab)], np.int32)
            given.append((f"blk.{i}.ffn_gate_tid2eid.weight", table))
    tensors = ends(n_vocab, d) + connection("output_hc", streams, 1) + of_layers(blocks)
    random_file(target, vocabulary, "deepseek4", all_keys | (keys or {}), tensors, quantized, given=given)
