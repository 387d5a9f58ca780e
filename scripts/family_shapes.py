"""Shapes of published models of families that shared/tools/synth_gguf.py does not write, for the tables of
benchmarks: sizes as their configurations have them, weights of random blocks."""

from family_forms import with_form

GRANITE = {"logit_scale": 0.125, "embedding_scale": 12.0, "residual_scale": 0.22, "attention.scale": 0.0078125,
           "rope.scaling.finetuned": False}

# name: (architecture, arguments of the function that writes it: of synthetic_models.decoder, beside those of
# family_forms, or of RECURRENT's)
SHAPES = {
    "lfm2-1.2b": ("lfm2", {
        "layers": 16, "d": 2048, "d_ff": 8192, "heads": 32, "kv_heads": 8, "attends": (2, 5, 8, 10, 12, 14)}),
    "lfm2-8b-a1b": ("lfm2moe", {
        "layers": 24, "d": 2048, "d_ff": 7168, "heads": 32, "kv_heads": 8, "attends": (2, 6, 10, 14, 18, 21),
        "experts": (32, 4, 1792), "choice_bias": 0.1, "dense": (0, 1),
        "keys": {"expert_gating_func": 2, "leading_dense_block_count": 2}}),
    "granite-4.0-h-tiny": ("granitehybrid", {
        "layers": 40, "d": 1536, "d_ff": 512, "heads": 12, "kv_heads": 4, "head_dim": 128, "tied": True,
        "hybrid": {"mamba": (48, 64, 128, 1)}, "attends": (5, 15, 25, 35), "experts": (64, 6, 512), "d_shared": 1024,
        "keys": GRANITE | {"expert_feed_forward_length": None}}),
    "falcon-h1-1.5b": ("falcon-h1", {
        "layers": 24, "d": 2048, "d_ff": 4096, "heads": 8, "kv_heads": 2, "head_dim": 128,
        "hybrid": {"mamba": (48, 64, 256, 1), "ssm_norm": False}}),
    "nemotron-nano-9b-v2": ("nemotron_h", {
        "d": 4480, "d_ff": 15680, "heads": 40, "kv_heads": 8, "head_dim": 128,
        "hybrid": {"mamba": (128, 80, 128, 8)}, "keys": {"attention.layer_norm_epsilon": 1e-5},
        "kinds": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"}),
    "qwen3.5-4b": ("qwen35", {
        "layers": 32, "d": 2560, "d_ff": 9216, "heads": 16, "kv_heads": 4, "head_dim": 256,
        "delta": (16, 32, 128, 4), "tied": True,
        "keys": {"rope.dimension_count": 64, "rope.dimension_sections": [11, 11, 10, 0]}}),
    "gemma3-4b": ("gemma3", {
        "layers": 34, "d": 2560, "d_ff": 10240, "heads": 8, "kv_heads": 4, "head_dim": 256,
        "keys": {"attention.sliding_window": 1024}}),
    "gpt-oss-20b": ("gpt-oss", {
        "layers": 24, "d": 2880, "d_ff": 2880, "heads": 64, "kv_heads": 8, "experts": (32, 4, 2880),
        "keys": {"attention.sliding_window": 128}}),
    "phi-4-mini": ("phi3", {
        "layers": 32, "d": 3072, "d_ff": 8192, "heads": 24, "kv_heads": 8, "head_dim": 128, "tied": True}),
    "deepseek-v2-lite": ("deepseek2", {
        "layers": 27, "d": 2048, "d_ff": 10944, "heads": 16, "experts": (64, 6, 1408), "dense": (0,),
        "latent": {"query": 0, "kv": 512, "plain": 128, "rotated": 64, "value": 128, "cached": True},
        "keys": {"expert_shared_count": 2, "leading_dense_block_count": 1, "expert_weights_scale": 1.0}}),
    "rwkv6-3b": ("rwkv6", {"layers": 32, "d": 2560, "d_ff": 8960}),
    "rwkv7-2.9b": ("rwkv7", {"layers": 32, "d": 2560, "d_ff": 10240, "ranks": (96, 96, 64, 320)}),
}
RECURRENT = ("rwkv6", "rwkv7")  # functions of synthetic_kinds
EXPERTS_MIX = {"gpt-oss-20b": "MXFP4"}  # published files have theirs in it, whatever the others are


def write(generator, path, shape, mix, vocabulary, layers=0):
    """A file of one of SHAPES. `generator`: the path of synth_gguf.py; `layers`: fewer than it has, of those whose
    layers are alike."""
    import synthetic_kinds  # these need packages that the cells of other shapes do without
    import synthetic_models as synthetic
    architecture, sizes = SHAPES[shape]
    sizes = with_form(architecture, sizes)
    if layers:
        sizes = sizes | {"layers": layers}
    number = len(sizes["kinds"]) if "kinds" in sizes else sizes["layers"]
    blocks = synthetic.RandomBlocks(synthetic.load_generator(generator), mix, number, sizes.get("tied", False),
                                    EXPERTS_MIX.get(shape))
    if architecture in RECURRENT:
        getattr(synthetic_kinds, architecture)(path, vocabulary, quantized=blocks, **sizes)
    else:
        synthetic.decoder(path, vocabulary, architecture, quantized=blocks, **sizes)
