#!/usr/bin/env python3
"""Tiny random models of real configuration classes, as GGUF files with the logits transformers computes.

    pip install torch transformers gguf sentencepiece
    LLAMA_CPP=checkout make_model_goldens.py [NAME...]      writes tests/goldens/models/NAME.gguf and NAME.golden.gguf

NAME.gguf is the model. NAME.golden.gguf holds, for each prompt i, `tokens.i` (I32 [n]) and `logits.i`
(F32 [n rows of vocab]): float32, eager attention, all positions in one pass.

MODELS below are variants of llama and its nearest kin, written here; the families of families.py are written by llama.cpp's
converter. The weights are rounded to the type they are stored in before transformers sees them. Their spread is wider than
a fresh model's, so that attention is far from uniform and a wrong angle, mask or head shows in the logits.
"""

import argparse
import math
import pathlib

from families import FAMILIES, PUBLISHED, published_class, to_gguf  # first: it chooses the gguf package

import gguf
import numpy as np
import torch
import transformers

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "models"
F32, F16, BF16 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.BF16

SMALL = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=64, max_position_embeddings=256, rms_norm_eps=1e-5)


def rope(kind, theta=10000.0, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=theta, **more))


LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
YARN = dict(factor=4.0, original_max_position_embeddings=64)

# name: (GGUF architecture, configuration class, its arguments, stored type, prompt lengths)
MODELS = {
    "llama_gqa": ("llama", transformers.LlamaConfig, SMALL, F32, [40, 5]),
    "llama_tied_mha": ("llama", transformers.LlamaConfig,
                       SMALL | dict(num_key_value_heads=4, tie_word_embeddings=True), F16, [40]),
    "llama_biases": ("llama", transformers.LlamaConfig, SMALL | dict(attention_bias=True, mlp_bias=True), BF16, [40]),
    "llama_odd_sizes": ("llama", transformers.LlamaConfig,
                        SMALL | dict(hidden_size=42, intermediate_size=50, num_hidden_layers=3, num_attention_heads=3,
                                     num_key_value_heads=1, head_dim=10, vocab_size=61, rms_norm_eps=1e-3)
                        | rope("default", theta=500.0), F16, [33]),
    "llama_linear": ("llama", transformers.LlamaConfig, SMALL | rope("linear", factor=2.5), F16, [80]),
    "llama_yarn": ("llama", transformers.LlamaConfig, SMALL | rope("yarn", **YARN), F16, [200]),
    "llama_yarn_options": ("llama", transformers.LlamaConfig,
                           SMALL | dict(head_dim=16)
                           | rope("yarn", beta_fast=2.0, beta_slow=1.2, attention_factor=1.3, **YARN), F16, [90]),
    "llama3": ("llama", transformers.LlamaConfig, SMALL | dict(head_dim=16) | rope("llama3", theta=500000.0, **LLAMA3),
               F16, [150]),
    "mistral_window": ("llama", transformers.MistralConfig, SMALL | dict(sliding_window=9), F16, [50]),
    "qwen2": ("qwen2", transformers.Qwen2Config, SMALL | rope("default", theta=1000000.0), F16, [40]),
    "qwen3": ("qwen3", transformers.Qwen3Config, SMALL | dict(head_dim=12, tie_word_embeddings=True), F16, [40]),
}

LAYER_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    stem, kind = name.removeprefix("model.").rsplit(".", 1)
    fixed = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
    if stem in fixed:
        return f"{fixed[stem]}.{kind}"
    _, layer, part = stem.split(".", 2)
    return f"blk.{layer}.{LAYER_NAMES[part]}.{kind}"


def randomize(model, generator):
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        if name.endswith("bias"):
            scaled = 0.5 * noise
        elif weight.dim() == 1:  # norms
            scaled = 1 + 0.3 * noise
        elif "embed_tokens" in name:
            scaled = noise
        else:
            gain = 1.6 if "q_proj" in name or "k_proj" in name else 1.0
            scaled = gain * noise / math.sqrt(weight.shape[1])
        weight.data.copy_(scaled)


def round_to(dtype, weight):
    if weight.dim() == 1 or dtype == F32:
        return weight
    return weight.to(torch.float16 if dtype == F16 else torch.bfloat16).float()


def pair_neighbours(weight, heads):
    """Rows of a query or key projection from the halves order of transformers (i, i + n/2) to the neighbours
    order of llama-architecture files (2i, 2i + 1)."""
    dim = weight.shape[0] // heads
    return weight.reshape(heads, 2, dim // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def llama3_factors(config):
    """What the frequencies of Llama 3.1 scaling are divided by, per pair."""
    p = config.rope_parameters
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    freqs = p["rope_theta"] ** -(np.arange(0, dim, 2) / dim)
    factors = []
    for wavelength in 2 * math.pi / freqs:
        long, short = (p["original_max_position_embeddings"] / p[k] for k in ("low_freq_factor", "high_freq_factor"))
        if wavelength < short:
            factors.append(1.0)
        elif wavelength > long:
            factors.append(p["factor"])
        else:
            smooth = ((p["original_max_position_embeddings"] / wavelength - p["low_freq_factor"])
                      / (p["high_freq_factor"] - p["low_freq_factor"]))
            factors.append(1 / ((1 - smooth) / p["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def add_vocabulary(writer, size):
    tokens = ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581"] + [chr(c) for c in range(ord("a"), ord("z") + 1)]
    tokens += [a + b for a in "aeiou" for b in "bcdfghklmn"]
    tokens = tokens[:size]
    assert len(tokens) == size
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 4 + [-float(i) for i in range(size - 4)])
    writer.add_token_types([2, 3, 3, 6] + [1] * (size - 4))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def add_settings(writer, config):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if dim * config.num_attention_heads != config.hidden_size:
        writer.add_key_length(dim)
        writer.add_value_length(dim)
    writer.add_rope_dimension_count(dim)
    if config.model_type == "mistral" and config.sliding_window:
        writer.add_sliding_window(config.sliding_window)
    p = config.rope_parameters
    writer.add_rope_freq_base(p["rope_theta"])
    if p["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(p["factor"])
    if p["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(p["factor"])
        writer.add_rope_scaling_orig_ctx_len(p["original_max_position_embeddings"])
        if "beta_fast" in p:
            writer.add_rope_scaling_yarn_beta_fast(p["beta_fast"])
            writer.add_rope_scaling_yarn_beta_slow(p["beta_slow"])
        if "attention_factor" in p:  # GGUF's factor multiplies the paper's temperature, this one replaces it
            writer.add_rope_scaling_attn_factors(p["attention_factor"] / (0.1 * math.log(p["factor"]) + 1))


def add_weights(writer, architecture, model, config, dtype):
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = weight.numpy()
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            values = pair_neighbours(values, config.num_attention_heads if "q_proj" in name
                                     else config.num_key_value_heads)
        stored = F32 if values.ndim == 1 else dtype
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(np.ascontiguousarray(values), stored), raw_dtype=stored)
    if config.rope_parameters["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(config))


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def randomize_family(model, generator):
    """As randomize, for any model: norms spread around what they start from, whatever that means in the model."""
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        last = name.rsplit(".", 2)[-2]
        if name.endswith("bias") or "sinks" in name:
            scaled = 0.5 * noise
        elif weight.dim() == 1 or "norm" in last or "ln_" in last:
            scaled = weight.data + 0.3 * noise
        elif any(part in name for part in ("embed_tokens", "wte", "wpe", "embed_in", "word_embeddings", "shared.")):
            scaled = noise
        else:
            gain = 3.0 if last in ("gate", "router") else 1.6 if last in ("q_proj", "k_proj", "c_attn") else 1.0
            scaled = gain * noise / math.sqrt(min(weight.shape[-2:]) if weight.dim() == 3 else weight.shape[1])
        weight.data.copy_(scaled)
    for name, buffer in model.named_buffers():
        if name.endswith(("correction_bias", "expert_bias")):
            buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator))
        if name.endswith("layer_scalar"):
            buffer.add_(0.3 * torch.randn(buffer.shape, generator=generator))


def write_own(name, model, config, architecture, dtype):
    for weight in model.parameters():
        weight.data.copy_(round_to(dtype, weight.data))
    writer = gguf.GGUFWriter(OUT / f"{name}.gguf", architecture)
    writer.add_name(name)
    add_settings(writer, config)
    add_vocabulary(writer, config.vocab_size)
    add_weights(writer, architecture, model, config, dtype)
    finish(writer)


def kind_of(config):
    return type(config).__name__.removesuffix("Config")


def make_encoder_decoder(name, config, lengths, generator):
    """As make; beside `tokens`, the prompt, stands what the decoder reads, `decoder`, whose logits are kept."""
    model = transformers.T5ForConditionalGeneration(config).float().eval()
    if not config.scale_decoder_outputs:  # as published: an output layer of its own
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
        config.tie_word_embeddings = False
    randomize_family(model, generator)
    for key, weight in model.named_parameters():
        if "relative_attention_bias" in key:
            weight.data.copy_(torch.randn(weight.shape, generator=generator))
    to_gguf(model, config, OUT / f"{name}.gguf", add_vocabulary)
    golden = gguf.GGUFWriter(OUT / f"{name}.golden.gguf", "golden")
    golden.add_string("golden.source", f"transformers {transformers.__version__}, torch {torch.__version__}")
    for i, (prompt, length) in enumerate(lengths):
        tokens = torch.randint(3, config.vocab_size, (1, prompt), generator=generator)
        written = torch.randint(3, config.vocab_size, (1, length), generator=generator)
        written[0, 0] = config.decoder_start_token_id
        with torch.no_grad():
            logits = model(input_ids=tokens, decoder_input_ids=written, use_cache=False).logits[0]
        golden.add_tensor(f"tokens.{i}", tokens[0].to(torch.int32).numpy())
        golden.add_tensor(f"decoder.{i}", written[0].to(torch.int32).numpy())
        golden.add_tensor(f"logits.{i}", logits.numpy())
    finish(golden)
    print(name, (OUT / f"{name}.gguf").stat().st_size, (OUT / f"{name}.golden.gguf").stat().st_size,
          "logits", float(logits.abs().max()), float(logits.std()))


def make(name):
    family = name in FAMILIES
    if family:
        kind, arguments, lengths = FAMILIES[name]
        published = published_class(kind) if kind in PUBLISHED else None
        config_class = published.config_class if published else getattr(transformers, kind + "Config")
    else:
        architecture, config_class, arguments, dtype, lengths = MODELS[name]
        arguments = dict(tie_word_embeddings=False) | arguments
    config = config_class(**arguments, attn_implementation="eager")
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    if kind_of(config) == "T5":
        return make_encoder_decoder(name, config, lengths, generator)
    if family and published:
        model = published(config).float().eval()
    else:
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    if family:
        randomize_family(model, generator)
        to_gguf(model, config, OUT / f"{name}.gguf", add_vocabulary)
    else:
        randomize(model, generator)
        write_own(name, model, config, architecture, dtype)

    golden = gguf.GGUFWriter(OUT / f"{name}.golden.gguf", "golden")
    golden.add_string("golden.source", f"transformers {transformers.__version__}, torch {torch.__version__}")
    for i, length in enumerate(lengths):
        tokens = torch.randint(3, config.vocab_size, (1, length), generator=generator)
        tokens[0, 0] = 1
        with torch.no_grad():
            logits = model(tokens, use_cache=False).logits[0]
        golden.add_tensor(f"tokens.{i}", tokens[0].to(torch.int32).numpy())
        golden.add_tensor(f"logits.{i}", logits.numpy())
    finish(golden)
    print(name, (OUT / f"{name}.gguf").stat().st_size, (OUT / f"{name}.golden.gguf").stat().st_size,
          "logits", float(logits.abs().max()), float(logits.std()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="models to make (default: all)")
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    for name in parser.parse_args().names or [*MODELS, *FAMILIES]:
        make(name)


if __name__ == "__main__":
    main()
