#!/usr/bin/env python3
"""LoRA adapters of PEFT and a control vector for tiny models, with the logits they give.

    pip install torch transformers gguf sentencepiece peft
    LLAMA_CPP=checkout make_adapter_goldens.py      writes tests/goldens/models/adapters

NAME/ is what PEFT saves, NAME.gguf what llama.cpp's convert_lora_to_gguf.py makes of it. golden.gguf holds `BASE.tokens` and,
for each case, `CASE`: the logits of all positions in float32, by PEFT, or by transformers with a hook on each block for the
control vector. The bases are the models of make_model_goldens.py, built again from their seeds.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import os

import make_model_goldens as models  # first: it chooses the gguf package

import gguf
import peft
import torch
import transformers

OUT = models.OUT / "adapters"

# name: (base, LoraConfig arguments)
ADAPTERS = {
    "llama_a": ("llama_gqa", dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj",
                                                                     "up_proj", "down_proj", "lm_head"])),
    "llama_b": ("llama_gqa", dict(r=3, lora_alpha=4, use_rslora=True, target_modules=["q_proj", "k_proj", "down_proj"],
                                  alpha_pattern={"down_proj": 10}, rank_pattern={"down_proj": 5})),
    "llama_embed": ("llama_gqa", dict(r=4, lora_alpha=6, target_modules=["embed_tokens", "v_proj"])),
    "gpt2": ("gpt2", dict(r=4, lora_alpha=8, fan_in_fan_out=True, target_modules=["c_attn", "c_proj", "c_fc"])),
    "phi3": ("phi3", dict(r=2, lora_alpha=4, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])),
    "olmoe": ("olmoe", dict(r=2, lora_alpha=4, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])),
}
# GGUF has no way to say a scale of each module's own, and convert_lora_to_gguf.py turns what belongs to gpt2's Conv1D layers.
NO_GGUF = {"llama_b", "gpt2"}
# name: [(adapter, scale)]
CASES = {
    "llama_a": [("llama_a", 1.0)], "llama_b": [("llama_b", 1.0)], "llama_a_half": [("llama_a", 0.5)],
    "llama_both": [("llama_a", 0.5), ("llama_b", -1.5)], "llama_embed": [("llama_embed", 1.0)],
    "gpt2": [("gpt2", 1.0)], "phi3": [("phi3", 1.0)], "olmoe": [("olmoe", 1.0)],
}
CONTROL_BASE = "llama_odd_sizes"


def build(name):
    """The model as make_model_goldens.py builds it."""
    if name in models.FAMILIES:
        kind, arguments, _ = models.FAMILIES[name]
        config = getattr(transformers, kind + "Config")(**arguments, attn_implementation="eager")
    else:
        _, config_class, arguments, dtype, _ = models.MODELS[name]
        config = config_class(**(dict(tie_word_embeddings=False) | arguments), attn_implementation="eager")
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    if name in models.FAMILIES:
        models.randomize_family(model, generator)
    else:
        models.randomize(model, generator)
        for weight in model.parameters():
            weight.data.copy_(models.round_to(dtype, weight.data))
    return model, config


def make_adapter(name):
    base, arguments = ADAPTERS[name]
    model, config = build(base)
    wrapped = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **arguments))
    generator = torch.Generator().manual_seed(sum(map(ord, name)) + 1)
    for key, weight in wrapped.named_parameters():
        if "lora_" in key:
            weight.data.copy_(torch.randn(weight.shape, generator=generator) / weight.shape[-1] ** 0.5)
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    wrapped.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    if name in NO_GGUF:
        return
    with tempfile.TemporaryDirectory() as scratch:
        config.save_pretrained(scratch)
        config_json = pathlib.Path(scratch) / "config.json"
        text = config_json.read_text()
        if '"architectures"' not in text:
            config_json.write_text(text.replace("{", '{"architectures": ["%s"],' % type(model).__name__, 1))
        subprocess.run([sys.executable, pathlib.Path(os.environ["LLAMA_CPP"]) / "convert_lora_to_gguf.py", "--base", scratch,
                        "--outfile", OUT / f"{name}.gguf", "--outtype", "f32", folder], check=True)


def logits(model, tokens):
    with torch.no_grad():
        return model(tokens, use_cache=False).logits[0].contiguous().numpy()


def run_case(adapters, tokens):
    base = ADAPTERS[adapters[0][0]][0]
    model, _ = build(base)
    wrapped = peft.PeftModel.from_pretrained(model, OUT / adapters[0][0], adapter_name=adapters[0][0])
    for name, _ in adapters[1:]:
        wrapped.load_adapter(OUT / name, adapter_name=name)
    wrapped.base_model.set_adapter([name for name, _ in adapters])
    for module in wrapped.modules():
        if isinstance(module, peft.tuners.lora.LoraLayer):
            for name, scale in adapters:
                if name in module.scaling:
                    module.scaling[name] *= scale
    return logits(wrapped.eval(), tokens)


def make_control(golden, tokens):
    model, config = build(CONTROL_BASE)
    generator = torch.Generator().manual_seed(5)
    writer = gguf.GGUFWriter(OUT / "control.gguf", "controlvector")
    for block in range(1, config.num_hidden_layers):
        direction = torch.randn(config.hidden_size, generator=generator)
        writer.add_tensor(f"direction.{block}", direction.numpy())
        model.model.layers[block].register_forward_hook(
            lambda module, inputs, out, d=direction: out + 0.5 * d if torch.is_tensor(out) else (out[0] + 0.5 * d, *out[1:]))
    models.finish(writer)
    golden.add_tensor("control", logits(model, tokens))


def main():
    torch.set_num_threads(1)
    OUT.mkdir(parents=True, exist_ok=True)
    golden = gguf.GGUFWriter(OUT / "golden.gguf", "golden")
    golden.add_string("golden.source", f"peft {peft.__version__}, transformers {transformers.__version__}")
    for name in ADAPTERS:
        make_adapter(name)
    tokens = {}
    for base in sorted({base for base, _ in ADAPTERS.values()} | {CONTROL_BASE}):
        generator = torch.Generator().manual_seed(7)
        tokens[base] = torch.randint(3, build(base)[1].vocab_size, (1, 30), generator=generator)
        golden.add_tensor(f"{base}.tokens", tokens[base][0].to(torch.int32).numpy())
    for case, adapters in CASES.items():
        golden.add_tensor(case, run_case(adapters, tokens[ADAPTERS[adapters[0][0]][0]]))
    make_control(golden, tokens[CONTROL_BASE])
    models.finish(golden)


if __name__ == "__main__":
    main()
