#!/usr/bin/env python3
"""Tiny Hugging Face folders of real configuration classes, with what llama.cpp's converter makes of them.

    pip install torch transformers sentencepiece protobuf xxhash
    PYTHONPATH=FOLDER/gguf-py make_convert_goldens.py --llama-cpp FOLDER [NAME...]     FOLDER: a checkout of llama.cpp

writes tests/goldens/convert/NAME/: config.json and *.safetensors as transformers saves them; expected.json, the
metadata and tensors (type, shape, XXH64 of the bytes) of the file that convert_hf_to_gguf.py writes;
logits.gguf, `tokens` (I32 [n]) and `logits` (F32 [n rows of vocab]) as transformers computes them in float32.
Tokenizers are shared: tests/goldens/convert/tokenizers, written by make_convert_tokenizers.py.

Weights are BF16 and their spread is wider than a fresh model's, so that a wrong permutation, angle or mask shows.
"""

import argparse
import importlib
import json
import math
import pathlib
import shutil
import sys
import tempfile

import gguf
import numpy as np
import torch
import transformers
import xxhash

from families import DEEPSEEK, LING, PUBLISHED, as_published, gptj_writer, published_class

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "convert"

BASE = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=256, vocab_size=288, tie_word_embeddings=False, bos_token_id=280, eos_token_id=281,
            pad_token_id=None)
SPM = dict(vocab_size=360, bos_token_id=1, eos_token_id=2)
GPT2 = dict(n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=288, bos_token_id=280, eos_token_id=280)
MOE = dict(num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True)


def rope(kind="default", theta=10000.0, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=theta, **more))


LLAMA3 = rope("llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
LONG = rope("longrope", long_factor=[1.0, 1.5, 2.0, 4.0], short_factor=[1.0, 1.1, 1.2, 1.3])
SCORED = dict(n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=2, n_group=1, topk_group=1, norm_topk_prob=True,
              first_k_dense_replace=1, moe_intermediate_size=24, routed_scaling_factor=1.5, num_hidden_layers=3)
GROUPED = SCORED | dict(n_routed_experts=8, n_group=4, topk_group=2)
LATENT = dict(num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10)
MSCALE = rope("yarn", factor=4.0, original_max_position_embeddings=8, mscale=1.0, mscale_all_dim=1.0, beta_fast=32.0,
              beta_slow=1.0)
GPT_OSS = dict(num_local_experts=4, num_experts_per_tok=2, head_dim=12) | rope(
    "yarn", 150000.0, factor=4.0, original_max_position_embeddings=64, beta_fast=32.0, beta_slow=1.0, truncate=False)
LAYERS = dict(num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
              sliding_window=6)

ENCODER = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=288,
               max_position_embeddings=64, pad_token_id=0)
MODERN = ENCODER | dict(num_hidden_layers=4, local_attention=6, global_attn_every_n_layers=3, bos_token_id=280,
                        eos_token_id=281, cls_token_id=280, sep_token_id=281, pad_token_id=282)
NOMIC = dict(n_embd=32, n_inner=48, n_head=4, n_layer=2, n_positions=8192, max_trained_positions=2048, rotary_emb_base=1000.0,
             activation_function="swiglu", causal=False, qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False,
             prenorm=False, rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None)

OLD = {key: value for key, value in BASE.items() if key not in ("num_key_value_heads", "intermediate_size")}

KIND_LAYERS = [kind + "_attention" for kind in ("sliding", "full", "sliding", "sliding", "full")]
KINDS = dict(rope_parameters={"sliding_attention": dict(rope_type="default", rope_theta=10000.0),
                              "full_attention": dict(rope_type="default", rope_theta=100000.0)})
GEMMA4 = dict(head_dim=8, global_head_dim=16, sliding_window=6, tie_word_embeddings=True,
              rope_parameters={"sliding_attention": dict(rope_type="default", rope_theta=10000.0),
                               "full_attention": dict(rope_type="proportional", partial_rotary_factor=0.25,
                                                      rope_theta=100000.0)})

T5 = dict(d_model=32, d_kv=12, d_ff=40, num_layers=2, num_heads=4, vocab_size=360, decoder_start_token_id=0,
          relative_attention_num_buckets=16, feed_forward_proj="gated-gelu")

# name: (model class, configuration arguments, tokenizer, saving options)
MODELS = {
    "llama": ("LlamaForCausalLM", BASE | dict(head_dim=16) | LLAMA3, "bpe", dict(max_shard_size="30KB")),
    "llama_biases": ("LlamaForCausalLM", BASE | SPM | dict(attention_bias=True, tie_word_embeddings=True)
                     | rope("yarn", factor=4.0, original_max_position_embeddings=64, attention_factor=1.3), "spm", {}),
    "mistral": ("MistralForCausalLM", BASE | SPM | dict(sliding_window=6), "spm", {}),
    "mixtral": ("MixtralForCausalLM", BASE | SPM | dict(num_local_experts=4, num_experts_per_tok=2), "spm", {}),
    "qwen2": ("Qwen2ForCausalLM", BASE | rope(theta=1000000.0), "bpe", {}),
    "qwen2moe": ("Qwen2MoeForCausalLM", BASE | MOE | dict(num_experts=4, shared_expert_intermediate_size=40), "bpe", {}),
    "qwen3": ("Qwen3ForCausalLM", BASE | dict(head_dim=12, tie_word_embeddings=True), "bpe", {}),
    "qwen3_embedding": ("Qwen3Model", BASE | dict(head_dim=12, tie_word_embeddings=True), "bpe", {}),
    "qwen3moe": ("Qwen3MoeForCausalLM", BASE | MOE | dict(num_experts=4, head_dim=12), "bpe", {}),
    "olmoe": ("OlmoeForCausalLM", BASE | dict(num_experts=4, num_experts_per_tok=2), "bpe", {}),
    "smollm3": ("SmolLM3ForCausalLM", BASE | dict(num_hidden_layers=4, no_rope_layer_interval=4), "bpe", {}),
    "granite": ("GraniteForCausalLM", BASE | dict(attention_multiplier=0.2, embedding_multiplier=3.0,
                                                  residual_multiplier=0.5, logits_scaling=2.0), "bpe", {}),
    "granitemoe": ("GraniteMoeSharedForCausalLM", BASE | dict(
        num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=40, attention_multiplier=0.2,
        embedding_multiplier=3.0, residual_multiplier=0.5, logits_scaling=2.0), "bpe", {}),
    "arcee": ("ArceeForCausalLM", BASE, "bpe", {}),
    "seed_oss": ("SeedOssForCausalLM", BASE | dict(head_dim=8, attention_bias=True, attention_out_bias=False), "bpe", {}),
    "ernie4_5": ("Ernie4_5ForCausalLM", BASE | SPM | dict(head_dim=8), "spm", {}),
    "hunyuan-dense": ("HunYuanDenseV1ForCausalLM", BASE | dict(head_dim=8), "bpe", {}),
    "gemma": ("GemmaForCausalLM", BASE | SPM | dict(head_dim=12, tie_word_embeddings=True), "spm", {}),
    "gemma2": ("Gemma2ForCausalLM", BASE | SPM | LAYERS | dict(
        head_dim=12, tie_word_embeddings=True, query_pre_attn_scalar=12), "spm", {}),
    "gemma3": ("Gemma3ForCausalLM", BASE | SPM | dict(
        num_hidden_layers=3, sliding_window=6, sliding_window_pattern=2, head_dim=12, tie_word_embeddings=True,
        query_pre_attn_scalar=12, layer_types=["sliding_attention", "sliding_attention", "full_attention"]), "spm", {}),
    "gemma3n": ("Gemma3nForCausalLM", BASE | SPM | KINDS | dict(
        num_hidden_layers=5, layer_types=KIND_LAYERS, sliding_window=6, head_dim=12, tie_word_embeddings=True,
        num_kv_shared_layers=2, laurel_rank=6, hidden_size_per_layer_input=8, vocab_size_per_layer_input=352,
        activation_sparsity_pattern=[0.6, 0.9, 0.75, 0.3, 0.8], intermediate_size=40), "spm", {}),
    "gemma4": ("Gemma4ForCausalLM", BASE | SPM | GEMMA4 | dict(
        num_hidden_layers=5, layer_types=KIND_LAYERS, hidden_size_per_layer_input=8, vocab_size_per_layer_input=360,
        use_double_wide_mlp=True, num_kv_shared_layers=2, intermediate_size=24), "spm", {}),
    "gemma4_moe": ("Gemma4ForCausalLM", BASE | SPM | GEMMA4 | dict(
        num_hidden_layers=3, layer_types=KIND_LAYERS[1:2] + KIND_LAYERS[:2], hidden_size_per_layer_input=0,
        attention_k_eq_v=True, num_global_key_value_heads=1, enable_moe_block=True, num_experts=5, top_k_experts=2,
        moe_intermediate_size=16), "spm", {}),
    "llama4": ("Llama4ForCausalLM", BASE | rope(theta=500000.0) | dict(
        num_hidden_layers=5, head_dim=8, intermediate_size=12, intermediate_size_mlp=40, num_local_experts=4,
        interleave_moe_layer_step=2, attention_chunk_size=6, floor_scale=4, attn_scale=0.3), "bpe", {}),
    "t5": ("T5ForConditionalGeneration", T5, "unigram", {}),
    "umt5": ("UMT5ForConditionalGeneration", T5 | dict(tie_word_embeddings=False), "unigram", {}),
    "t5encoder": ("T5EncoderModel", T5 | dict(feed_forward_proj="relu"), "unigram", {}),
    "phi2": ("PhiForCausalLM", BASE | dict(num_key_value_heads=4, intermediate_size=128) | rope(partial_rotary_factor=0.5),
             "bpe", {}),
    "phi3": ("Phi3ForCausalLM", BASE | SPM | dict(original_max_position_embeddings=64, sliding_window=None) | LONG, "spm", {}),
    "olmo2": ("Olmo2ForCausalLM", BASE, "bpe", {}),
    "exaone4": ("Exaone4ForCausalLM", BASE | LAYERS, "bpe", {}),
    "glm4": ("Glm4ForCausalLM", BASE | dict(head_dim=8, attention_bias=True) | rope(partial_rotary_factor=0.5), "bpe", {}),
    "glm4moe": ("Glm4MoeForCausalLM", BASE | SCORED | dict(head_dim=8, use_qk_norm=True, attention_bias=True)
                | rope(partial_rotary_factor=0.5), "bpe", {}),
    "dots1": ("Dots1ForCausalLM", BASE | SCORED | dict(head_dim=8), "bpe", {}),
    # Code of their publishers (families.py). llama.cpp loads Ling 1 without dense blocks and Ling 2 with whole heads only.
    "bailingmoe": ("BailingMoeForCausalLM", BASE | LING | dict(
        num_experts=4, num_shared_experts=2, moe_intermediate_size=24, norm_head=True), "bpe", {}),
    "bailingmoe2": ("BailingMoeV2ForCausalLM", BASE | LING | dict(
        head_dim=8, num_experts=8, num_shared_experts=1, moe_intermediate_size=24, first_k_dense_replace=1, n_group=4,
        topk_group=2, routed_scaling_factor=2.5, partial_rotary_factor=0.5, score_function="sigmoid"), "bpe", {}),
    "deepseek": ("DeepseekForCausalLM", BASE | DEEPSEEK | dict(
        num_hidden_layers=3, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=24,
        rms_norm_eps=1e-6), "bpe", {}),
    "deepseek_v2": ("DeepseekV2ForCausalLM", BASE | LATENT | GROUPED | dict(
        topk_method="group_limited_greedy", norm_topk_prob=False, q_lora_rank=None), "bpe", {}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", BASE | LATENT | GROUPED | MSCALE | dict(max_position_embeddings=32), "bpe", {}),
    "glm4_moe_lite": ("Glm4MoeLiteForCausalLM", BASE | LATENT | SCORED, "bpe", {}),
    "exaone-moe": ("ExaoneMoeForCausalLM", BASE | LAYERS | {
        key: value for key, value in SCORED.items() if key not in ("n_routed_experts", "n_shared_experts")} | dict(
        num_experts=4, num_shared_experts=1, head_dim=8), "bpe", {}),
    "ernie4_5-moe": ("Ernie4_5_MoeForCausalLM", BASE | SPM | dict(
        num_hidden_layers=3, moe_num_experts=4, moe_k=2, moe_num_shared_experts=2, moe_intermediate_size=12,
        moe_layer_start_index=1, moe_layer_end_index=2, moe_layer_interval=1), "spm", {}),
    "hunyuan-moe": ("HunYuanMoEV1ForCausalLM", BASE | dict(
        head_dim=8, num_experts=4, moe_topk=[2, 2], num_shared_expert=[1, 1], moe_intermediate_size=[48, 48])
        | rope("dynamic", alpha=1000.0, factor=1.0), "bpe", {}),
    "minimax-m2": ("MiniMaxM2ForCausalLM", BASE | dict(
        num_local_experts=4, num_experts_per_tok=2, head_dim=16, use_qk_norm=True, rotary_dim=8)
        | rope(partial_rotary_factor=0.5), "bpe", {}),
    "phimoe": ("PhimoeForCausalLM", BASE | SPM | dict(
        num_local_experts=4, attention_bias=True, lm_head_bias=True, original_max_position_embeddings=64,
        max_position_embeddings=256, sliding_window=None)
        | rope("longrope", long_factor=[1.0, 1.5, 2.0, 4.0], short_factor=[1.0, 1.1, 1.2, 1.3], long_mscale=1.25,
               short_mscale=1.25, original_max_position_embeddings=64), "spm", {}),
    "gpt-oss": ("GptOssForCausalLM", BASE | LAYERS | GPT_OSS, "bpe", {}),
    "gpt-oss-mxfp4": ("GptOssForCausalLM", BASE | LAYERS | GPT_OSS | dict(intermediate_size=64), "bpe", {}),
    "apertus": ("ApertusForCausalLM", BASE | LLAMA3, "bpe", {}),
    "chatglm": ("GlmForCausalLM", BASE | dict(head_dim=8, attention_bias=True) | rope(partial_rotary_factor=0.5), "bpe", {}),
    "jais2": ("Jais2ForCausalLM", BASE, "bpe", {}),
    "mistral3": ("Ministral3ForCausalLM", BASE | SPM | dict(head_dim=12, max_position_embeddings=32) | dict(
        rope_parameters=MSCALE["rope_parameters"] | dict(llama_4_scaling_beta=0.3)), "spm", {}),
    "gptj": ("GPTJForCausalLM", GPT2 | dict(rotary_dim=4, n_inner=48, tie_word_embeddings=False), "bpe", {}),
    # The code of InternLM2 is not in transformers: a llama block, whose projections its files hold as one.
    "internlm2": ("LlamaForCausalLM", BASE | SPM | rope(theta=1000000.0), "spm", {}),
    "olmo": ("OlmoForCausalLM", BASE, "bpe", {}),
    # The code of MiniCPM is not in transformers: Granite's block with the usual scale of the scores.
    "minicpm": ("GraniteForCausalLM", BASE | SPM | dict(attention_multiplier=8 ** -0.5, embedding_multiplier=3.0,
                                                  residual_multiplier=0.5, logits_scaling=2.0), "spm", {}),
    "gpt2": ("GPT2LMHeadModel", GPT2, "bpe", {}),
    "starcoder": ("GPTBigCodeForCausalLM", GPT2 | dict(multi_query=True), "bpe", {}),
    "starcoder2": ("Starcoder2ForCausalLM", BASE | dict(use_bias=True, sliding_window=None), "bpe", {}),
    "gptneox": ("GPTNeoXForCausalLM", OLD | rope(partial_rotary_factor=0.25) | dict(intermediate_size=48, use_parallel_residual=True), "bpe", {}),
    "falcon": ("FalconForCausalLM", OLD | dict(num_kv_heads=2, new_decoder_architecture=True, alibi=False,
                                                tie_word_embeddings=True), "bpe", {}),
    "bloom": ("BloomForCausalLM", OLD | dict(n_layer=2, n_head=4), "bpe", {}),
    "mpt": ("MptForCausalLM", dict(d_model=32, n_layers=2, n_heads=4, max_seq_len=64, vocab_size=288), "bpe", {}),
    "stablelm": ("StableLmForCausalLM", BASE | rope(partial_rotary_factor=0.25) | dict(use_qkv_bias=True),
                 "bpe", {}),
    "nemotron": ("NemotronForCausalLM", BASE | SPM | rope(partial_rotary_factor=0.5), "spm", {}),
    "command-r": ("CohereForCausalLM", BASE | dict(use_qk_norm=True, tie_word_embeddings=True, logit_scale=0.25), "bpe", {}),
    "cohere2": ("Cohere2ForCausalLM", BASE | LAYERS | dict(tie_word_embeddings=True, logit_scale=0.25), "bpe", {}),
    "bert": ("BertModel", dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                               vocab_size=128, max_position_embeddings=64, pad_token_id=0), "wordpiece", {}),
    "bert_rank": ("BertForSequenceClassification", ENCODER | dict(vocab_size=128, num_labels=1), "wordpiece", {}),
    "roberta_rank": ("RobertaForSequenceClassification", ENCODER | dict(
        num_labels=1, type_vocab_size=1, pad_token_id=1, bos_token_id=280, eos_token_id=281), "bpe", {}),
    "nomic_bert": ("NomicBertModel", ENCODER | dict(vocab_size=128) | rope(theta=1000.0), "wordpiece", {}),
    "jina_bert": ("JinaBertModel", ENCODER | dict(vocab_size=128, num_attention_heads=3, hidden_size=36), "wordpiece", {}),
    "modern_bert": ("ModernBertModel", MODERN, "bpe", {}),
    "modern_bert_rank": ("ModernBertForSequenceClassification", MODERN | dict(num_labels=1, classifier_pooling="mean"),
                         "bpe", {}),
    "gemma_embedding": ("Gemma3TextModel", BASE | SPM | dict(
        num_hidden_layers=3, sliding_window=7, head_dim=12, tie_word_embeddings=True, query_pre_attn_scalar=12,
        use_bidirectional_attention=True,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"]), "spm", {}),
}
# Configuration keys that files in the wild have and the class does not save.
ADDED_KEYS = {"cohere2": dict(rotary_pct=1.0), "gptneox": dict(rotary_pct=0.25), "gpt2": dict(n_ctx=64),
              # No blocks that predict further tokens
              "glm4moe": dict(num_nextn_predict_layers=0), "deepseek_v3": dict(num_nextn_predict_layers=0),
              "phimoe": dict(architectures=["PhiMoEForCausalLM"], original_max_position_embeddings=64),
              "chatglm": dict(seq_length=256),
              "mpt": dict(architectures=["MPTForCausalLM"]), "bloom": dict(seq_length=256),
              "nomic_bert": NOMIC, "jina_bert": dict(architectures=["JinaBertModel"]),
              # transformers saves the half window that it makes of this
              "gemma_embedding": dict(sliding_window=7),
              "modern_bert": dict(global_rope_theta=160000.0, local_rope_theta=10000.0, layer_norm_eps=1e-5),
              "modern_bert_rank": dict(global_rope_theta=160000.0, local_rope_theta=10000.0, layer_norm_eps=1e-5)}
# sentence-transformers' files: where the last token's state is the text's.
POOLING = {"qwen3_embedding": {
    "modules.json": [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
                     {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
                     {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}],
    "1_Pooling/config.json": {"word_embedding_dimension": 32, "pooling_mode_cls_token": False,
                              "pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}}}
# What its converter wants otherwise, for a key that the test exempts: alpha for heads of 128 only.
FOR_LLAMA_CPP = {"hunyuan-moe": rope()}


class JinaBertModel(transformers.BertModel):
    """Jina BERT v2, which transformers has as remote code only: BERT with ALiBi to both sides (Press et al. 2021) in
    place of positions, and a feed-forward gated by a GELU whose rows come first (Guenther et al. 2023)."""

    class GatedFeedForward(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.gated_layers = torch.nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
            self.wo = torch.nn.Linear(config.intermediate_size, config.hidden_size)
            self.layernorm = torch.nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

        def forward(self, x):
            gate, up = self.gated_layers(x).chunk(2, dim=-1)
            return self.layernorm(self.wo(torch.nn.functional.gelu(gate) * up) + x)

    def __init__(self, config):
        super().__init__(config, add_pooling_layer=False)
        config.position_embedding_type = "alibi"
        del self.embeddings.position_embeddings
        for layer in self.encoder.layer:
            del layer.intermediate, layer.output
            layer.mlp = self.GatedFeedForward(config)

    def forward(self, tokens):
        n, heads = tokens.shape[1], self.config.num_attention_heads
        e = self.embeddings
        x = e.LayerNorm(e.word_embeddings(tokens) + e.token_type_embeddings.weight[0])
        power = 2 ** int(math.floor(math.log2(heads)))
        slopes = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
        slopes += [2.0 ** (-8 * (i + 1) / (2 * power)) for i in range(2 * power)][0::2][:heads - power]
        position = torch.arange(n)
        bias = -torch.tensor(slopes)[:, None, None] * (position[:, None] - position[None, :]).abs()
        for layer in self.encoder.layer:
            a = layer.attention
            q, k, v = (f(x).view(1, n, heads, -1).transpose(1, 2) for f in (a.self.query, a.self.key, a.self.value))
            p = (q @ k.transpose(2, 3) / math.sqrt(q.shape[-1]) + bias).softmax(-1)
            x = a.output.LayerNorm(a.output.dense((p @ v).transpose(1, 2).reshape(1, n, -1)) + x)
            x = layer.mlp(x)
        return transformers.modeling_outputs.BaseModelOutput(last_hidden_state=x)


def randomize(model, generator):
    weights = list(model.named_parameters())
    weights += [(name, buffer) for name, buffer in model.named_buffers() if name.endswith(("e_score_correction_bias", "expert_bias"))]
    for name, weight in weights:
        noise = torch.randn(weight.shape, generator=generator)
        if name.endswith("bias"):
            scaled = 0.3 * noise
        elif weight.dim() == 1 or "norm" in name.lower():
            plus_one = type(model).__name__.startswith(("GemmaFor", "Gemma2", "Gemma3F", "Gemma3T", "Nemotron"))
            scaled = (0 if plus_one else 1) + 0.3 * noise
        elif "embed" in name or "wte" in name or "wpe" in name or "shared.weight" == name or "attention_bias" in name:
            scaled = noise
        else:
            scaled = 1.3 * noise / math.sqrt(weight.shape[-1])
        weight.data.copy_(scaled.to(torch.bfloat16).float())


def mxfp4_experts(model, generator):
    """Experts of random blocks and scales, set in the model as transformers decodes them; name: bytes."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    packed = {}
    for index, layer in enumerate(model.model.layers):
        for name in ("gate_up_proj", "down_proj"):
            weight = getattr(layer.mlp.experts, name)
            experts, inner, outer = weight.shape
            blocks = torch.randint(0, 256, (experts, outer, inner // 32, 16), generator=generator, dtype=torch.uint8)
            scales = torch.randint(122, 126, (experts, outer, inner // 32), generator=generator, dtype=torch.uint8)
            values = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
            weight.data.copy_(values if values.shape == weight.shape else values.transpose(1, 2))
            stem = f"model.layers.{index}.mlp.experts.{name}"
            packed |= {stem: None, stem + "_blocks": blocks, stem + "_scales": scales}
    return packed


def replace_weights(path, packed):
    from safetensors.torch import load_file, save_file
    weights = {name: weight for name, weight in (load_file(path) | packed).items() if weight is not None}
    save_file(weights, path, metadata={"format": "pt"})


def write_gptj(folder, config, weights):
    writer, name_of = gptj_writer(config, folder / "expected.gguf")
    for key, weight in weights.items():
        kind = gguf.GGMLQuantizationType.BF16 if weight.dim() > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(name_of(key), gguf.quants.quantize(weight.float().numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "expected.gguf"


def run_llama_converter(folder, llama_cpp, tokenizer):
    """The GGUF file that llama.cpp's converter writes; its list of known tokenizers has no tiny ones."""
    sys.path.insert(0, str(llama_cpp))
    base = importlib.import_module("conversion.base")
    script = importlib.import_module("convert_hf_to_gguf")
    base.TextModel.get_vocab_base_pre = lambda self, _: {"bpe": "llama-bpe", "wordpiece": "jina-v2-en"}.get(tokenizer, "default")
    # The configuration as it lies there: newer versions of transformers drop keys that the converter reads.
    base.ModelBase.load_hparams = staticmethod(lambda path, *_, **__: json.loads((path / "config.json").read_text()))
    # Their own tokens are not in the tiny vocabularies.
    for module, name in (("glm", "Glm4Model"), ("glm", "Glm4MoeModel"), ("glm", "Glm4MoeLiteModel"),
                         ("chatglm", "ChatGLMModel"), ("hunyuan", "HunYuanMoEModel")):
        getattr(importlib.import_module(f"conversion.{module}"), name).set_vocab = base.TextModel._set_vocab_gpt2
    # T5's reads SentencePiece's own file; what becomes of tokenizer.json is checked elsewhere.
    t5 = importlib.import_module("conversion.t5")
    t5.T5Model.set_vocab = t5.T5EncoderModel.set_vocab = lambda self: None
    out = folder / "expected.gguf"
    sys.argv = ["convert_hf_to_gguf.py", str(folder), "--outfile", str(out), "--outtype", "bf16"]
    script.main()
    return out


def value_of(field):
    value = field.contents()
    return value if not isinstance(value, list) or len(value) <= 64 else {
        "count": len(value), "xxh64": xxhash.xxh64("\n".join(map(str, value)).encode()).hexdigest()}


def describe(path):
    reader = gguf.GGUFReader(path)
    metadata = {}
    for key, field in reader.fields.items():
        if not key.startswith(("GGUF.", "tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.scores",
                               "tokenizer.ggml.token_type", "general.")) or key == "general.architecture":
            metadata[key] = value_of(field)
    tensors = {}
    for tensor in reader.tensors:
        tensors[tensor.name] = dict(type=tensor.tensor_type.name, shape=[int(n) for n in tensor.shape],
                                    xxh64=xxhash.xxh64(tensor.data.tobytes()).hexdigest())
        if tensor.name.startswith("rope_"):  # computed: in float32 there
            tensors[tensor.name]["values"] = [float(x) for x in tensor.data]
    return dict(metadata=metadata, tensors=tensors)


def make(name, llama_cpp):
    class_name, arguments, tokenizer, saving = MODELS[name]
    kind = class_name.removesuffix("ForCausalLM")
    model_class = (JinaBertModel if class_name == "JinaBertModel" else published_class(kind) if kind in PUBLISHED
                   else getattr(transformers, class_name))
    config = model_class.config_class(**arguments, attn_implementation="eager")
    model = model_class(config).float().eval()
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    randomize(model, generator)
    packed = mxfp4_experts(model, generator) if name.endswith("mxfp4") else {}

    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    tokens = torch.randint(3, arguments["vocab_size"] - 10, (1, 14), generator=generator)
    head = None
    with torch.no_grad():
        if getattr(config, "norm_head", False):  # its first pass changes the weights: in BF16, as published
            head = model.lm_head.weight.data.clone()
            model(tokens, use_cache=False)
            model.lm_head.weight.data = model.lm_head.weight.data.to(torch.bfloat16).float()
        written = None
        if config.is_encoder_decoder and "Encoder" not in class_name:
            written = torch.randint(3, arguments["vocab_size"] - 10, (1, 9), generator=generator)
            written[0, 0] = config.decoder_start_token_id
        out = model(tokens, **(dict(use_cache=False) if kind in PUBLISHED else {})) if written is None else model(input_ids=tokens, decoder_input_ids=written)
        if written is not None:  # greedily; and what the encoder gives
            encoded = out.encoder_last_hidden_state[0].float().numpy()
            generated = model.generate(tokens, max_new_tokens=24, do_sample=False)[0, 1:].to(torch.int32).numpy()
        scores = None
        if "SequenceClassification" in class_name:  # the scores, and the hidden states of the trunk
            scores, out = out.logits[0], model.base_model(tokens)
        embedding = None
        if name in POOLING:  # the vector, and the logits of the tied embeddings
            embedding = torch.nn.functional.normalize(out.last_hidden_state[0, -1], dim=0)
            out = transformers.modeling_outputs.CausalLMOutput(
                logits=out.last_hidden_state @ model.get_input_embeddings().weight.T)
        rows = out.logits[0] if hasattr(out, "logits") else out.last_hidden_state[0]
    golden_tokens, golden_rows = tokens[0].to(torch.int32).numpy(), rows.float().numpy()
    if head is not None:
        model.lm_head.weight.data = head
    model.to(torch.bfloat16).save_pretrained(folder, **saving)
    settings = json.loads((folder / "config.json").read_text())
    settings |= ADDED_KEYS.get(name, {})
    as_published(name, folder, settings)
    if packed:
        replace_weights(folder / "model.safetensors", packed)
        settings["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn"])
    settings.pop("transformers_version", None)
    (folder / "config.json").write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")
    (folder / "generation_config.json").unlink(missing_ok=True)
    for path, contents in POOLING.get(name, {}).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(json.dumps(contents, indent=1) + "\n")
    (folder / "tokenizer").write_text(tokenizer + "\n")

    with tempfile.TemporaryDirectory() as temporary:
        whole = pathlib.Path(temporary) / name
        shutil.copytree(folder, whole)
        shutil.copytree(OUT / "tokenizers" / tokenizer, whole, dirs_exist_ok=True)
        (whole / "config.json").write_text(json.dumps(settings | FOR_LLAMA_CPP.get(name, {})))
        expected = describe(write_gptj(whole, config, model.state_dict()) if name == "gptj"
                            else run_llama_converter(whole, llama_cpp, tokenizer))
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")

    golden = gguf.GGUFWriter(folder / "logits.gguf", "golden")
    golden.add_string("golden.source", f"transformers {transformers.__version__}, torch {torch.__version__}")
    golden.add_tensor("tokens", golden_tokens)
    golden.add_tensor("logits", np.ascontiguousarray(golden_rows))
    if embedding is not None:
        golden.add_tensor("embedding", embedding.float().numpy())
    if written is not None:  # what the decoder reads
        golden.add_tensor("decoder", written[0].to(torch.int32).numpy())
        golden.add_tensor("encoded", encoded)
        golden.add_tensor("generated", generated)
        print(name, "generated", generated.tolist())
    if scores is not None:
        golden.add_tensor("scores", scores.float().numpy())
    golden.write_header_to_file()
    golden.write_kv_data_to_file()
    golden.write_tensors_to_file()
    golden.close()
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        path.chmod(0o644)
    print(name, sum(path.stat().st_size for path in files), "bytes", "logits", float(rows.abs().max()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True)
    parser.add_argument("names", nargs="*", help="models to make (default: all)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.names or MODELS:
        try:
            make(name, arguments.llama_cpp)
        except (Exception, SystemExit) as error:  # the others are made all the same
            print("FAILED", name, type(error).__name__, error)


if __name__ == "__main__":
    main()
