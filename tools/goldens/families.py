"""The model families the goldens hold, one row each, and the way from a transformers model to a GGUF file.

Three have no code in transformers, but their publishers' own (PUBLISHED), which runs under transformers 4.56: configuration_*.py
and modeling_*.py of inclusionAI/Ling-V2, inclusionAI/Ling (both folder models) and deepseek-moe-16b-base in one folder, $PUBLISHED.

The file is written by llama.cpp's own converter (its `conversion` package, a checkout named by $LLAMA_CPP), so that it
has the keys, names and weight orders that users' files have; only the vocabulary is ours.
"""

import contextlib
import importlib
import json
import os
import pathlib
import sys
import tempfile

LLAMA_CPP = os.environ.get("LLAMA_CPP", "")
if LLAMA_CPP:  # before any other gguf package
    sys.path[:0] = [LLAMA_CPP, str(pathlib.Path(LLAMA_CPP, "gguf-py"))]

SMALL = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=64, max_position_embeddings=256, rms_norm_eps=1e-5)


def rope(theta=10000.0, kind="default", **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=theta, **more))


GEMMA3_ROPE = dict(rope_parameters={"sliding_attention": dict(rope_type="default", rope_theta=10000.0),
                                    "full_attention": dict(rope_type="linear", rope_theta=100000.0, factor=4.0)})
GEMMA3N_ROPE = dict(rope_parameters={"sliding_attention": dict(rope_type="default", rope_theta=10000.0),
                                     "full_attention": dict(rope_type="default", rope_theta=100000.0)})
GEMMA4 = dict(num_hidden_layers=5, head_dim=8, global_head_dim=16, sliding_window=9, final_logit_softcapping=20.0,
              rope_parameters={"sliding_attention": dict(rope_type="default", rope_theta=10000.0),
                               "full_attention": dict(rope_type="proportional", partial_rotary_factor=0.25,
                                                      rope_theta=100000.0)})
YARN = dict(factor=4.0, original_max_position_embeddings=64)


def _layers(pattern):
    return ["sliding_attention" if p == "s" else "full_attention" for p in pattern]


# name: (configuration class, its arguments, prompt lengths). Sizes tell mistakes apart: windows shorter than the
# prompts, head sizes that are not width / heads, odd numbers of layers, every option of the family switched on.
LAYER = {k: v for k, v in SMALL.items() if k != "rms_norm_eps"} | dict(layer_norm_eps=1e-5)
EXPERTS = dict(num_experts=6, num_experts_per_tok=2)
LOCAL = dict(num_local_experts=6, num_experts_per_tok=2)
SCORED = dict(n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, n_group=1, topk_group=1,
              first_k_dense_replace=1, moe_intermediate_size=20, norm_topk_prob=True, routed_scaling_factor=1.5,
              num_hidden_layers=3)

LONGROPE = rope(10000.0, "longrope", original_max_position_embeddings=64, short_factor=[1.0, 1.1, 1.3, 1.6],
                long_factor=[1.5, 2.5, 4.0, 6.0])
T5 = dict(d_model=32, d_kv=12, d_ff=40, num_layers=2, num_decoder_layers=2, num_heads=4, vocab_size=64,
          decoder_start_token_id=0, relative_attention_num_buckets=16)
LATENT = dict(q_lora_rank=24, kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10,
              num_key_value_heads=4)

# Of kinds that transformers lacks: the end of their modules' names.
PUBLISHED = {"BailingMoe": "bailing_moe", "BailingMoeV2": "bailing_moe_v2", "Deepseek": "deepseek"}
LING = dict(num_hidden_layers=3, num_experts_per_tok=3, norm_topk_prob=True, pad_token_id=0, rope_theta=10000.0, use_bias=False)
DEEPSEEK = dict(moe_layer_freq=1, scoring_func="softmax", norm_topk_prob=False, aux_loss_alpha=0.001, seq_aux=True,
                attention_bias=False, attention_dropout=0.0, hidden_act="silu", initializer_range=0.02, pretraining_tp=1,
                rope_theta=10000.0, rope_scaling=None, tie_word_embeddings=False, first_k_dense_replace=1)

FAMILIES = {
    "apertus": ("Apertus", SMALL | dict(hidden_act="xielu") | rope(), [40]),
    "arcee": ("Arcee", SMALL | rope(), [40]),
    "bailingmoe": ("BailingMoe", SMALL | LING
                   | dict(head_dim=12, num_experts=6, num_shared_experts=2, moe_intermediate_size=20, first_k_dense_replace=0,
                          norm_head=True), [40]),
    "bailingmoe2": ("BailingMoeV2", SMALL | LING
                    | dict(head_dim=12, num_experts=8, num_shared_experts=1, moe_intermediate_size=20, first_k_dense_replace=1,
                           n_group=4, topk_group=2, routed_scaling_factor=2.5, partial_rotary_factor=0.5,
                           score_function="sigmoid"), [40]),
    "bloom": ("Bloom", dict(hidden_size=36, n_layer=2, n_head=6, vocab_size=64, layer_norm_epsilon=1e-5), [40]),
    "chatglm": ("Glm", SMALL | dict(pad_token_id=0, head_dim=8, attention_bias=True) | rope(partial_rotary_factor=0.5),
                [40]),
    "cohere2": ("Cohere2", LAYER | dict(rotary_pct=1.0, num_hidden_layers=5, sliding_window=9, logit_scale=0.25,
                                        layer_types=_layers("sssfs")) | rope(), [40]),
    "command_r": ("Cohere", LAYER | dict(logit_scale=0.25, use_qk_norm=True) | rope(), [40]),
    "deepseek": ("Deepseek", SMALL | DEEPSEEK
                 | dict(num_hidden_layers=3, n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=2,
                        moe_intermediate_size=20), [40]),
    "deepseek_v2": ("DeepseekV2", SMALL | LATENT | SCORED
                    | dict(n_routed_experts=8, n_group=4, topk_group=2, topk_method="group_limited_greedy",
                           norm_topk_prob=False, q_lora_rank=None) | rope(), [40]),
    "deepseek_v3": ("DeepseekV3", SMALL | LATENT | SCORED
                    | dict(n_routed_experts=8, n_group=4, topk_group=2, num_nextn_predict_layers=0,
                           scoring_func="sigmoid")
                    | rope(10000.0, "yarn", mscale=1.0, mscale_all_dim=1.0, beta_fast=32, beta_slow=1, **YARN), [100]),
    "dots1": ("Dots1", SMALL | SCORED | dict(head_dim=12) | rope(), [40]),
    "ernie4_5": ("Ernie4_5", SMALL | dict(head_dim=12) | rope(500000.0), [40]),
    "ernie4_5_moe": ("Ernie4_5_Moe", SMALL | dict(num_hidden_layers=3, moe_num_experts=6, moe_k=2,
                                                  moe_num_shared_experts=2, moe_intermediate_size=24,
                                                  moe_layer_start_index=1, moe_layer_end_index=2,
                                                  moe_layer_interval=1) | rope(500000.0), [40]),
    "exaone": ("Exaone", SMALL | rope(), [40]),
    "exaone_moe": ("ExaoneMoe", SMALL | SCORED
                   | dict(num_hidden_layers=5, num_experts=4, num_shared_experts=1, head_dim=8, moe_intermediate_size=16,
                          sliding_window=9, sliding_window_pattern=4, layer_types=_layers("sssfs")) | rope(), [40]),
    "exaone4": ("Exaone4", SMALL | dict(num_hidden_layers=5, sliding_window=9, sliding_window_pattern=4,
                                        layer_types=_layers("sssfs")) | rope(), [40]),
    "falcon": ("Falcon", dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=64, alibi=False,
                              num_kv_heads=1,
                              new_decoder_architecture=False, multi_query=True, parallel_attn=True, bias=False)
               | rope(), [40]),
    "falcon_two_norms": ("Falcon", dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2,
                                        vocab_size=64, alibi=False, new_decoder_architecture=True, bias=False)
                         | rope(), [40]),
    "gemma": ("Gemma", SMALL | dict(head_dim=12), [40]),
    "gemma2": ("Gemma2", SMALL | dict(num_hidden_layers=3, head_dim=12, query_pre_attn_scalar=12, sliding_window=9,
                                      attn_logit_softcapping=5.0, final_logit_softcapping=20.0), [40]),
    "gemma3": ("Gemma3Text", SMALL | GEMMA3_ROPE
               | dict(num_hidden_layers=7, head_dim=12, query_pre_attn_scalar=12, sliding_window=9,
                      sliding_window_pattern=6, layer_types=_layers("sssssfs"), intermediate_size=40), [70]),
    "gemma3n": ("Gemma3nText", SMALL | GEMMA3N_ROPE
                | dict(num_hidden_layers=5, head_dim=12, sliding_window=9, layer_types=_layers("sfssf"),
                       intermediate_size=40, num_kv_shared_layers=2, laurel_rank=6, hidden_size_per_layer_input=8,
                       vocab_size_per_layer_input=64, activation_sparsity_pattern=[0.6, 0.9, 0.0, 0.0, 0.0],
                       final_logit_softcapping=20.0), [40]),
    "gemma4": ("Gemma4Text", SMALL | GEMMA4
               | dict(hidden_size_per_layer_input=8, vocab_size_per_layer_input=64, use_double_wide_mlp=True,
                      num_kv_shared_layers=2, intermediate_size=24, layer_types=_layers("sfssf")), [40]),
    # The larger ones: keys for values, fewer and larger key heads, experts.
    "gemma4_moe": ("Gemma4Text", SMALL | GEMMA4
                   | dict(hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=1,
                          enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=12,
                          num_hidden_layers=3, layer_types=_layers("fsf")), [40]),
    "glm4": ("Glm4", SMALL | dict(pad_token_id=0, head_dim=16, attention_bias=True) | rope(partial_rotary_factor=0.5),
             [40]),
    "glm4_moe": ("Glm4Moe", SMALL | SCORED | dict(head_dim=16, use_qk_norm=True, attention_bias=True)
                 | rope(partial_rotary_factor=0.5), [40]),
    "glm4_moe_lite": ("Glm4MoeLite", SMALL | LATENT | SCORED | rope(), [40]),
    "gpt2": ("GPT2", dict(n_ctx=256, n_embd=36, n_layer=2, n_head=3, vocab_size=64, n_positions=256), [40]),
    "gpt_oss": ("GptOss", SMALL | LOCAL | dict(intermediate_size=20)
                | dict(num_hidden_layers=3, head_dim=12, sliding_window=9, layer_types=_layers("sfs"))
                | rope(150000.0, "yarn", beta_fast=32.0, beta_slow=1.0, truncate=False, **YARN), [150]),
    "gptj": ("GPTJ", dict(n_embd=36, n_layer=2, n_head=3, vocab_size=64, n_positions=256, rotary_dim=8, n_inner=80), [40]),
    "gptneox": ("GPTNeoX", dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
                                vocab_size=64, max_position_embeddings=256) | rope(partial_rotary_factor=0.25), [40]),
    "gptneox_serial": ("GPTNeoX", dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                                       intermediate_size=48, vocab_size=64, max_position_embeddings=256,
                                       use_parallel_residual=False) | rope(partial_rotary_factor=0.5), [40]),
    "granite": ("Granite", SMALL | dict(embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.2,
                                        logits_scaling=2.5, attention_bias=True) | rope(), [40]),
    "granitemoe": ("GraniteMoe", SMALL | LOCAL
                   | dict(embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.2,
                          logits_scaling=2.5) | rope(), [40]),
    "granitemoe_shared": ("GraniteMoeShared", SMALL | LOCAL
                          | dict(shared_intermediate_size=40, embedding_multiplier=3.0, residual_multiplier=0.6,
                                 attention_multiplier=0.2, logits_scaling=2.5) | rope(), [40]),
    "hunyuan_dense": ("HunYuanDenseV1", SMALL | dict(head_dim=12) | rope(), [40]),
    "hunyuan_moe": ("HunYuanMoEV1", SMALL | dict(head_dim=12, num_experts=6, moe_topk=[2, 2], num_shared_expert=[1, 1],
                                                 intermediate_size=40,
                                                 moe_intermediate_size=[40, 40])
                    | rope(), [40]),
    # The model code of InternLM2 is not in transformers: a llama block, whose projections its files hold as one.
    "internlm2": ("Llama", SMALL | rope(1000000.0), [40]),
    "jais2": ("Jais2", LAYER | rope(), [40]),
    "llama4": ("Llama4Text", SMALL | rope(500000.0)
               | dict(num_hidden_layers=5, head_dim=8, intermediate_size=12, intermediate_size_mlp=40, num_local_experts=4,
                      interleave_moe_layer_step=2, attention_chunk_size=9, floor_scale=4, attn_scale=0.3), [40]),
    # Nor is MiniCPM's: Granite's block with the usual scale of the scores.
    "minicpm": ("Granite", SMALL | dict(embedding_multiplier=3.0, residual_multiplier=0.6, logits_scaling=2.0,
                                        attention_multiplier=8 ** -0.5) | rope(), [40]),
    "minimax_m2": ("MiniMaxM2", SMALL | LOCAL | dict(head_dim=16, use_qk_norm=True, rotary_dim=8)
                   | rope(partial_rotary_factor=0.5), [40]),
    "ministral3": ("Ministral3", SMALL | dict(head_dim=12)
                   | rope(10000.0, "yarn", mscale=1.0, mscale_all_dim=1.0, beta_fast=32.0, beta_slow=1.0,
                          llama_4_scaling_beta=0.3, **YARN), [150]),
    "mixtral": ("Mixtral", SMALL | LOCAL | dict(intermediate_size=40, sliding_window=None) | rope(), [40]),
    "mpt": ("Mpt", dict(d_model=36, n_heads=6, n_layers=2, expansion_ratio=4, max_seq_len=256, vocab_size=64), [40]),
    "nemotron": ("Nemotron", SMALL | dict(norm_eps=1e-5) | rope(partial_rotary_factor=0.5), [40]),
    "olmo": ("Olmo", {k: v for k, v in SMALL.items() if k != "rms_norm_eps"} | rope(), [40]),
    "olmo2": ("Olmo2", SMALL | rope(500000.0), [40]),
    "olmo3": ("Olmo3", SMALL | dict(num_hidden_layers=5, sliding_window=9, layer_types=_layers("sssfs"))
              | rope(500000.0), [40]),
    "olmoe": ("Olmoe", SMALL | EXPERTS | rope(), [40]),
    "phi2": ("Phi", LAYER | dict(intermediate_size=128, num_key_value_heads=4) | rope(partial_rotary_factor=0.5), [40]),
    "phi3": ("Phi3", SMALL | dict(pad_token_id=0, original_max_position_embeddings=256) | rope(), [40]),
    "phi3_within": ("Phi3", SMALL | LONGROPE | dict(pad_token_id=0, original_max_position_embeddings=64), [40]),
    "phi3_beyond": ("Phi3", SMALL | LONGROPE | dict(pad_token_id=0, original_max_position_embeddings=64), [100]),
    "phimoe": ("Phimoe", SMALL | LOCAL | dict(intermediate_size=40, attention_bias=True, lm_head_bias=True,
                                              pad_token_id=0, original_max_position_embeddings=256) | rope(), [40]),
    "qwen2moe": ("Qwen2Moe", SMALL | EXPERTS | dict(moe_intermediate_size=24, shared_expert_intermediate_size=40)
                 | rope(), [40]),
    "qwen3moe": ("Qwen3Moe", SMALL | EXPERTS | dict(moe_intermediate_size=24, head_dim=12, norm_topk_prob=True)
                 | rope(), [40]),
    "seed_oss": ("SeedOss", SMALL | dict(head_dim=12, attention_bias=True) | rope(), [40]),
    "smollm3": ("SmolLM3", SMALL | dict(num_hidden_layers=5, pad_token_id=0) | rope(), [40]),
    "stablelm": ("StableLm", LAYER | dict(use_qkv_bias=True) | rope(partial_rotary_factor=0.25), [40]),
    "stablelm_parallel": ("StableLm", LAYER | dict(use_parallel_residual=True)
                          | rope(partial_rotary_factor=0.5), [40]),
    "starcoder": ("GPTBigCode", dict(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=256, n_inner=128,
                                     multi_query=True), [40]),
    "starcoder2": ("Starcoder2", LAYER | dict(norm_epsilon=1e-5, sliding_window=None) | rope(), [40]),
    # (prompt, what the decoder reads)
    "t5": ("T5", T5 | dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False), [(150, 40), (5, 3)]),
    "t5_tied": ("T5", T5 | dict(feed_forward_proj="relu"), [(30, 20)]),
}


def published_class(kind):
    """The model class of a kind in PUBLISHED."""
    folder = pathlib.Path(os.environ.get("PUBLISHED", ""))
    if not (folder / f"modeling_{PUBLISHED[kind]}.py").is_file():
        sys.exit(f"set PUBLISHED to a folder with configuration_{PUBLISHED[kind]}.py and modeling_{PUBLISHED[kind]}.py")
    if str(folder.resolve().parent) not in sys.path:
        sys.path.append(str(folder.resolve().parent))
    return getattr(importlib.import_module(f"{folder.name}.modeling_{PUBLISHED[kind]}"), kind + "ForCausalLM")


def as_published(name, folder, hparams):
    """Names and layout of the models whose code is not in transformers."""
    from safetensors.torch import load_file, save_file
    import torch
    if name == "minicpm":
        hparams |= dict(architectures=["MiniCPMForCausalLM"], scale_emb=hparams["embedding_multiplier"],
                        scale_depth=hparams["residual_multiplier"] * hparams["num_hidden_layers"] ** 0.5,
                        dim_model_base=hparams["hidden_size"] / hparams["logits_scaling"])
    if name == "internlm2":
        hparams |= dict(architectures=["InternLM2ForCausalLM"], bias=False)
        groups, dim = hparams["num_key_value_heads"], hparams["hidden_size"] // hparams["num_attention_heads"]
        names = {"model.embed_tokens": "model.tok_embeddings", "lm_head": "output", "self_attn.o_proj": "attention.wo",
                 "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2",
                 "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}
        weights, published = load_file(folder / "model.safetensors"), {}
        for key, weight in weights.items():
            for ours, theirs in names.items():
                key = key.replace(ours, theirs)
            if "q_proj" in key:
                three = [weights[key.replace("q_proj", f"{part}_proj")] for part in "qkv"]
                heads = torch.cat([w.reshape(groups, -1, dim, w.shape[1]) for w in three], 1)
                published[key.replace("self_attn.q_proj", "attention.wqkv")] = heads.reshape(-1, weight.shape[1]).contiguous()
            elif "k_proj" not in key and "v_proj" not in key:
                published[key] = weight
        save_file(published, folder / "model.safetensors")


def gptj_writer(config, path):
    """A GGUF writer with GPT-J's settings, and the GGUF name of a published tensor: llama.cpp has the names of GPT-J, and
    no converter."""
    import gguf
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPTJ, config.n_layer)
    writer = gguf.GGUFWriter(path, "gptj")
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_feed_forward_length(config.n_inner)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    writer.add_rope_dimension_count(config.rotary_dim)
    return writer, lambda key: names.get_name(key, try_suffixes=(".weight", ".bias"))


def _write_gptj(model, config, path, add_vocabulary):
    writer, name_of = gptj_writer(config, path)
    add_vocabulary(writer, config.vocab_size)
    for key, weight in model.state_dict().items():
        if "masked_bias" not in key and not key.endswith("attn.bias"):
            writer.add_tensor(name_of(key), weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def to_gguf(model, config, path, add_vocabulary):
    """Writes the model as an F32 GGUF file by llama.cpp's converter."""
    if not pathlib.Path(LLAMA_CPP, "conversion").is_dir():
        sys.exit("set LLAMA_CPP to a checkout of llama.cpp (with its folder `conversion`)")
    if config.model_type == "gptj":
        return _write_gptj(model, config, path, add_vocabulary)
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        folder = pathlib.Path(folder)
        model.save_pretrained(folder)
        # Some converters look into it for the number of tokens.
        tokens = {str(i): i for i in range(config.vocab_size)}
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": tokens}, "added_tokens": []}))
        hparams = ModelBase.load_hparams(folder, False)
        as_published(path.stem, folder, hparams)
        hparams.setdefault("model_type", "")
        # What the converter asks for and transformers no longer writes.
        if hparams["model_type"] == "gpt_neox":
            hparams["rotary_pct"] = hparams["rope_parameters"]["partial_rotary_factor"]
        older = {"mpt": "MPTForCausalLM", "phimoe": "PhiMoEForCausalLM"}
        if hparams["model_type"] in older:
            hparams["architectures"] = [older[hparams["model_type"]]]
        converter = get_model_class(get_model_architecture(hparams, ModelType.TEXT))

        def set_vocab(self):
            add_vocabulary(self.gguf_writer, config.vocab_size)
            if config.model_type == "llama4_text":  # sizes that files leave out, which are small here
                self.gguf_writer.add_sliding_window(config.attention_chunk_size)
                self.gguf_writer.add_attn_temperature_scale(config.attn_scale)
                self.gguf_writer.add_attn_temperature_length(config.floor_scale)

        own = type(converter.__name__, (converter,), {
            "model_arch": converter.model_arch,
            "set_vocab": set_vocab,
            "_register": False,
        })
        writer = own(folder, gguf.LlamaFileType.ALL_F32, path, model_name=path.stem, eager=True, hparams=hparams)
        if hasattr(writer, "impl"):  # a converter that hands its work on
            writer.impl.set_vocab = lambda: add_vocabulary(writer.impl.gguf_writer, config.vocab_size)
        writer.write()
