#!/usr/bin/env python3
"""Small inputs and results of every op, computed by numpy in float64.

    pip install numpy gguf
    make_op_goldens.py                  writes tests/goldens/backends/ops.gguf

Tensors are named CASE.x, CASE.weight … CASE.y; parameters are metadata keys CASE.parameter. Encoded weights and
cached keys and values are rounded by the gguf package before numpy sees them.
"""

import math
import pathlib

import gguf
import numpy as np

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "backends" / "ops.gguf"
T = gguf.GGMLQuantizationType
rng = np.random.default_rng(20240229)
writer = gguf.GGUFWriter(str(OUT), "ops")
f64 = np.float64


def normal(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def put(name, array):
    writer.add_tensor(name, np.ascontiguousarray(array, dtype=np.float32))


def result(case, y):
    put(f"{case}.y", y)


# ---- element by element ----

def sigmoid(x):
    return 1 / (1 + np.exp(-x))


erf = np.vectorize(math.erf)
ACTIVATIONS = [  # in the order of the enumeration
    ("silu", lambda x: x * sigmoid(x)),
    ("gelu", lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2)))),
    ("gelu_tanh", lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))),
    ("gelu_quick", lambda x: x * sigmoid(1.702 * x)),
    ("relu", lambda x: np.maximum(x, 0)),
    ("relu_squared", lambda x: np.maximum(x, 0) ** 2),
    ("sigmoid", sigmoid),
    ("tanh", np.tanh),
]
x = np.concatenate([np.linspace(-4, 4, 33), [0, -0.001, 20, -20, 1e-6]]).astype(np.float32)[None, :]
up = normal(*x.shape)
put("activate.x", x)
put("activate.up", up)
for name, function in ACTIVATIONS:
    result(f"activate.{name}", function(x.astype(f64)))
    result(f"glu.{name}", function(x.astype(f64)) * up)
writer.add_array("activations", [name for name, _ in ACTIVATIONS])

# ---- norms ----

x, weight, bias = normal(5, 48, scale=3), normal(48), normal(48)
x[2] = 0
put("norm.x", x)
put("norm.weight", weight)
put("norm.bias", bias)
EPS = 1e-5
writer.add_float32("norm.eps", EPS)
X, eps = x.astype(f64), f64(np.float32(EPS))
result("rms_norm", X / np.sqrt((X ** 2).mean(-1, keepdims=True) + eps) * weight)
heads = X.reshape(5, 4, 12)
result("rms_norm_heads", (heads / np.sqrt((heads ** 2).mean(-1, keepdims=True) + eps) * weight[:12]).reshape(5, 48))
centred = X - X.mean(-1, keepdims=True)
standard = centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + eps)
result("layer_norm", standard * weight)
result("layer_norm_bias", standard * weight + bias)

# ---- linear: every dtype that can be decoded ----


def set_half(blocks, offset, values):
    blocks[:, offset:offset + 2] = np.asarray(values, dtype=np.float16)[:, None].view(np.uint8)


# K-quants have no encoder in the gguf package: random bits with sensible scales. dtype -> offsets of half floats.
HALVES = {T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0]}
DTYPES = [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.MXFP4, T.IQ4_NL, T.IQ4_XS, T.Q2_K, T.Q3_K,
          T.Q4_K, T.Q5_K, T.Q6_K]
N = 7
for dtype in DTYPES:
    block, size = gguf.GGML_QUANT_SIZES[dtype]
    k = 768 if block == 256 else 96
    if dtype in HALVES:
        blocks = rng.integers(0, 256, (N * k // block, size), dtype=np.uint8)
        for offset in HALVES[dtype]:
            set_half(blocks, offset, rng.uniform(0.001, 0.01, len(blocks)))
        encoded = blocks.reshape(N, -1)
    else:
        encoded = gguf.quants.quantize(normal(N, k), dtype)
    x, bias = normal(3, k), normal(N)
    name = f"linear.{dtype.name}"
    put(f"{name}.x", x)
    put(f"{name}.bias", bias)
    writer.add_tensor(f"{name}.weight", encoded, raw_dtype=dtype)
    result(name, x.astype(f64) @ gguf.quants.dequantize(encoded, dtype).astype(f64).T + bias)
writer.add_array("linear.dtypes", [d.name for d in DTYPES])

# ---- rope ----


def rotate(x, positions, inv_freq, neox, magnitude):
    """x: [rows, heads, head_dim]"""
    n = len(inv_freq)
    angle = positions[:, None, None] * inv_freq
    c, s = np.cos(angle) * magnitude, np.sin(angle) * magnitude
    y = x.astype(f64).copy()
    a, b = (slice(0, n), slice(n, 2 * n)) if neox else (slice(0, 2 * n, 2), slice(1, 2 * n, 2))
    y[..., a] = x[..., a] * c - x[..., b] * s
    y[..., b] = x[..., a] * s + x[..., b] * c
    return y


ROPES = {  # heads, head_dim, pairs, neox, first position, magnitude
    "interleaved": (3, 8, 4, False, 0, 1.0),
    "halves": (3, 8, 4, True, 0, 1.0),
    "partial": (2, 10, 3, False, 61, 1.0),
    "partial_halves": (2, 10, 3, True, 61, 1.0),
    "far_scaled": (1, 64, 32, True, 131000, 1.25),
}
for name, (heads, head_dim, pairs, neox, first, magnitude) in ROPES.items():
    x = normal(6, heads, head_dim)
    inv_freq = 10000.0 ** (-np.arange(pairs) / pairs)
    y = rotate(x, np.arange(first, first + 6, dtype=f64), inv_freq, neox, np.float32(magnitude))
    put(f"rope.{name}.x", x.reshape(6, -1))
    result(f"rope.{name}", y.reshape(6, -1))
    for key, value in dict(heads=heads, head_dim=head_dim, pairs=pairs, first=first).items():
        writer.add_uint32(f"rope.{name}.{key}", value)
    writer.add_bool(f"rope.{name}.neox", neox)
    writer.add_float32(f"rope.{name}.magnitude", magnitude)
writer.add_array("rope.cases", list(ROPES))

# ---- attention ----


def stored(x, dtype):
    if dtype == T.F32:
        return x.astype(f64)
    shape = x.shape
    return gguf.quants.dequantize(gguf.quants.quantize(x.reshape(-1, shape[-1]), dtype), dtype).reshape(shape).astype(f64)


def slopes(heads, max_bias):
    """Press et al. 2021; the rule of their code for other head counts, for a maximum bias of 8 as there."""
    def of_power(n, m):
        start = 2.0 ** (-m / n)
        return [start ** (i + 1) for i in range(n)]
    power = 2 ** int(math.floor(math.log2(heads)))
    return np.array(of_power(power, max_bias) + of_power(2 * power, max_bias)[0::2][:heads - power])


def attend(q, k, v, scale, window=0, soft_cap=0.0, alibi=0.0, sinks=None, causal=True):
    """q: [n, heads, d]; k: [n, kv_heads, d]; v: [n, kv_heads, dv]; full scores, then mask."""
    n, heads, _ = q.shape
    group = heads // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("ihd,jhd->hij", q.astype(f64), k) * scale
    if soft_cap:
        scores = soft_cap * np.tanh(scores / soft_cap)
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    if alibi:
        scores = scores - slopes(heads, alibi)[:, None, None] * abs(i - j)
    if causal:
        hidden = (j > i) | ((i - j >= window) if window else False)
    else:
        hidden = (abs(i - j) > window // 2) if window else (i < 0)
    scores = np.where(hidden, -np.inf, scores)
    if sinks is not None:
        scores = np.concatenate([scores, np.broadcast_to(sinks.astype(f64)[:, None, None], (heads, n, 1))], axis=2)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return np.einsum("hij,jhd->ihd", p[..., :n], v)


ATTENTIONS = {  # positions, heads, kv_heads, head_dim, v_dim, cache dtype, options
    "plain": (70, 2, 2, 16, 16, T.F32, {}),
    "grouped": (130, 6, 2, 12, 12, T.F32, {}),
    "one_kv_head": (20, 5, 1, 9, 9, T.F32, {}),
    "narrow_values": (20, 2, 1, 24, 8, T.F32, {}),
    "window": (150, 2, 1, 8, 8, T.F32, dict(window=66)),
    "window_of_one": (10, 1, 1, 8, 8, T.F32, dict(window=1)),
    "soft_cap": (40, 2, 1, 8, 8, T.F32, dict(soft_cap=2.0)),
    "sinks": (40, 4, 2, 8, 8, T.F32, dict(sinks=True)),
    "sinks_window": (70, 4, 2, 8, 8, T.F32, dict(sinks=True, window=5)),
    "alibi": (70, 4, 4, 8, 8, T.F32, dict(alibi=8.0)),
    "alibi_six_heads": (70, 6, 3, 8, 8, T.F32, dict(alibi=8.0)),
    "f16": (70, 4, 2, 16, 16, T.F16, {}),
    "bf16": (70, 4, 2, 16, 16, T.BF16, {}),
    "q8_0": (70, 4, 2, 32, 64, T.Q8_0, {}),
    "all": (140, 3, 1, 32, 32, T.Q8_0, dict(window=100, soft_cap=3.0, alibi=8.0, sinks=True)),
}
for name, (n, heads, kv_heads, d, dv, dtype, options) in ATTENTIONS.items():
    q, k, v = normal(n, heads, d, scale=2), normal(n, kv_heads, d), normal(n, kv_heads, dv)
    scale = np.float32(1 / math.sqrt(d))
    sinks = normal(heads, scale=2) if options.get("sinks") else None
    numbers = {key: options.get(key, 0) for key in ("window", "soft_cap", "alibi")}
    result(f"attention.{name}", attend(q, stored(k, dtype), stored(v, dtype), f64(scale), sinks=sinks,
                                       **numbers).reshape(n, -1))
    for part, array in dict(q=q, k=k, v=v).items():
        put(f"attention.{name}.{part}", array.reshape(n, -1))
    if sinks is not None:
        put(f"attention.{name}.sinks", sinks)
    for key, value in dict(heads=heads, kv_heads=kv_heads, head_dim=d, v_dim=dv, window=numbers["window"]).items():
        writer.add_uint32(f"attention.{name}.{key}", value)
    for key, value in dict(scale=scale, soft_cap=numbers["soft_cap"], alibi=numbers["alibi"]).items():
        writer.add_float32(f"attention.{name}.{key}", float(value))
    writer.add_string(f"attention.{name}.cache", dtype.name)
writer.add_array("attention.cases", list(ATTENTIONS))

# ---- ops of single families ----

x, weight, bias = normal(5, 48, scale=3), normal(4, 12), normal(4, 12)
heads = x.astype(f64).reshape(5, 4, 12)
centred = heads - heads.mean(-1, keepdims=True)
for part, array in dict(x=x, weight=weight, bias=bias).items():
    put(f"own_heads.{part}", array)
result("own_heads.rms", (heads / np.sqrt((heads ** 2).mean(-1, keepdims=True) + eps) * weight).reshape(5, 48))
result("own_heads.layer",
       (centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + eps) * weight + bias).reshape(5, 48))

gate, up = normal(4, 20, scale=6), normal(4, 20, scale=6)
put("clamped_glu.gate", gate)
put("clamped_glu.up", up)
g, u = np.minimum(gate.astype(f64), 7), np.clip(up.astype(f64), -7, 7)
result("clamped_glu", (u + 1) * g * sigmoid(f64(1.702) * g))

x = normal(4, 20, scale=3)
X = x.astype(f64)
p, m, beta, e = (f64(np.float32(v)) for v in (0.9, 1.3, 0.4, -1e-6))
put("xielu.x", x)
result("xielu", np.where(X > 0, p * X * X + beta * X, m * (np.expm1(np.minimum(X, e)) - X) + beta * X))

x = normal(6, 2, 14)
y = x.astype(f64).copy()
y[..., 4:12] = rotate(x[..., 4:12], np.arange(6, dtype=f64), 10000.0 ** (-np.arange(4) / 4), False, 1.0)
put("rope_behind.x", x.reshape(6, -1))
result("rope_behind", y.reshape(6, -1))

# ---- experts ----


def softmax(v):
    e = np.exp(v - v.max())
    return e / e.sum()


def route(logits, used, gating, bias=None, renormalise=False, scale=1.0, groups=1, groups_used=1, group_top=1):
    """Numbers and weights of one row's experts."""
    logits = logits.astype(f64)
    if gating == "sparse_mixer":  # Phi-3.5-MoE's code, for any number of choices
        left, chosen, weights = logits.copy(), [], []
        for _ in range(used):
            best = int(np.argmax(left))
            far = (left[best] - logits) / np.maximum(np.abs(logits), left[best]) > 0.02
            chosen.append(best)
            weights.append(softmax(np.where(far, -np.inf, left))[best])
            left[best] = -np.inf
        return np.array(chosen + weights)
    scores = {"softmax": softmax, "sigmoid": sigmoid, "softmax_of_chosen": lambda v: v}[gating](logits)
    choice = scores + (0 if bias is None else bias.astype(f64))
    if groups > 1:
        parts = choice.reshape(groups, -1)
        worth = np.sort(parts, axis=1)[:, -group_top:].sum(axis=1)
        kept = np.argsort(-worth, kind="stable")[:groups_used]
        choice = np.where(np.isin(np.arange(groups), kept)[:, None], parts, -np.inf).reshape(-1)
    chosen = np.argsort(-choice, kind="stable")[:used]
    weights = scores[chosen]
    if gating == "softmax_of_chosen":
        weights = softmax(weights)
    if renormalise:
        weights = weights / weights.sum()
    return np.concatenate([chosen, weights * scale])


ROUTES = {  # experts, options
    "softmax": (7, dict(used=3)),
    "renormalised": (40, dict(used=8, renormalise=True)),
    "one": (5, dict(used=1, renormalise=True)),
    "all": (4, dict(used=4)),
    "chosen": (32, dict(used=4, gating="softmax_of_chosen")),
    "sigmoid": (19, dict(used=3, gating="sigmoid", renormalise=True, scale=2.5)),
    "biased": (24, dict(used=4, gating="sigmoid", renormalise=True, scale=1.5, bias=True)),
    "sparse_mixer": (300, dict(used=2, gating="sparse_mixer")),
    "groups_by_best": (24, dict(used=5, groups=4, groups_used=2)),
    "groups_by_two": (32, dict(used=6, gating="sigmoid", bias=True, renormalise=True, groups=8, groups_used=3,
                               group_top=2)),
}
for name, (experts, options) in ROUTES.items():
    options = dict(gating="softmax") | options
    logits = normal(20, experts, scale=2)
    put(f"route.{name}.x", logits)
    if options.get("bias"):
        options["bias"] = normal(experts, scale=0.2)
        put(f"route.{name}.bias", options["bias"])
    result(f"route.{name}", np.stack([route(row, **options) for row in logits]))
    for key in ("used", "groups", "groups_used", "group_top"):
        writer.add_uint32(f"route.{name}.{key}", options.get(key, 1))
    writer.add_uint32(f"route.{name}.gating",
                      ["softmax", "sigmoid", "softmax_of_chosen", "sparse_mixer"].index(options["gating"]))
    writer.add_bool(f"route.{name}.renormalise", options.get("renormalise", False))
    writer.add_float32(f"route.{name}.scale", options.get("scale", 1.0))
writer.add_array("route.cases", list(ROUTES))

# A whole layer: three matrices an expert, biases, the weighted sum.
x, logits = normal(9, 12), normal(9, 5, scale=2)
w = {part: normal(5, *shape) for part, shape in dict(gate=(10, 12), up=(10, 12), down=(12, 10)).items()}
b = {part: normal(5, array.shape[1]) for part, array in w.items()}
y = np.zeros((9, 12))
for t in range(9):
    chosen = route(logits[t], 2, "softmax", renormalise=True)
    for j in range(2):
        e = int(chosen[j])
        part = {k: w[k][e].astype(f64) for k in w}
        g = part["gate"] @ x[t] + b["gate"][e]
        y[t] += chosen[2 + j] * (part["down"] @ (g * sigmoid(g) * (part["up"] @ x[t] + b["up"][e])) + b["down"][e])
put("experts.x", x)
put("experts.logits", logits)
for part in w:
    put(f"experts.{part}", w[part])
    put(f"experts.{part}_bias", b[part])
result("experts", y)

x, w = normal(5, 3 * 8), normal(3, 6, 8)
put("head_linear.x", x)
put("head_linear.weight", w)
result("head_linear", np.einsum("thk,hnk->thn", x.reshape(5, 3, 8).astype(f64), w).reshape(5, -1))

# ---- encoders: attention over whole sequences, pooling ----

WHOLE = {  # positions, heads, kv_heads, head_dim, options
    "plain": (70, 4, 2, 16, {}),
    "one_token": (1, 2, 1, 8, {}),
    "window": (150, 2, 1, 8, dict(window=66)),
    "odd_window": (40, 2, 1, 8, dict(window=7)),
    "alibi": (70, 4, 4, 8, dict(alibi=8.0)),
    "all": (140, 6, 2, 12, dict(window=100, soft_cap=3.0, alibi=8.0, sinks=True)),
}
for name, (n, heads, kv_heads, d, options) in WHOLE.items():
    q, k, v = normal(n, heads, d, scale=2), normal(n, kv_heads, d), normal(n, kv_heads, d)
    scale = np.float32(1 / math.sqrt(d))
    sinks = normal(heads, scale=2) if options.get("sinks") else None
    numbers = {key: options.get(key, 0) for key in ("window", "soft_cap", "alibi")}
    result(f"whole.{name}", attend(q, k.astype(f64), v.astype(f64), f64(scale), sinks=sinks, causal=False,
                                   **numbers).reshape(n, -1))
    for part, array in dict(q=q, k=k, v=v).items():
        put(f"whole.{name}.{part}", array.reshape(n, -1))
    if sinks is not None:
        put(f"whole.{name}.sinks", sinks)
    for key, value in dict(heads=heads, kv_heads=kv_heads, head_dim=d, window=numbers["window"]).items():
        writer.add_uint32(f"whole.{name}.{key}", value)
    for key, value in dict(scale=scale, soft_cap=numbers["soft_cap"], alibi=numbers["alibi"]).items():
        writer.add_float32(f"whole.{name}.{key}", float(value))
writer.add_array("whole.cases", list(WHOLE))

x = normal(9, 20, scale=3)  # sequences of 1, 5 and 3 rows
put("pool.x", x)
parts = [x[0:1].astype(f64), x[1:6].astype(f64), x[6:9].astype(f64)]
result("pool.mean", np.stack([part.mean(axis=0) for part in parts]))
result("pool.first", np.stack([part[0] for part in parts]))

# ---- streams (AltUp), sparse activations, weights of experts ----

x, weights = normal(6, 3 * 20), normal(6, 2 * 3)
put("mix.x", x)
put("mix.weights", weights)
result("mix", np.einsum("tij,tjk->tik", weights.reshape(6, 2, 3).astype(f64), x.reshape(6, 3, 20)).reshape(6, -1))

x = normal(6, 50, scale=3) + np.float32(0.5)
X = x.astype(f64)
put("gaussian_top_k.x", x)
cut = X.mean(-1, keepdims=True) + f64(np.float32(0.7)) * X.std(-1, keepdims=True)
result("gaussian_top_k", np.maximum(0, X - cut))

x, vector = normal(5, 20), normal(20)
put("mul_vector.x", x)
put("mul_vector.vector", vector)
result("mul_vector", x.astype(f64) * vector)

logits, factors = normal(20, 9, scale=2), normal(9)
put("expert_scale.x", logits)
put("expert_scale.factors", factors)
rows = []
for row in logits:
    chosen = route(row, 3, "softmax", renormalise=True)
    rows.append(np.concatenate([chosen[:3], chosen[3:] * factors[chosen[:3].astype(int)]]))
result("expert_scale", np.stack(rows))

# ---- attention that sees some positions only, or adds to scores by distance ----


def bucket(distance, buckets, most, causal):
    """T5's rule (Raffel et al. 2019), its logarithms in float32 as in the published code."""
    first = 0
    if not causal:
        buckets //= 2
        first = buckets if distance > 0 else 0
    apart = max(0, -distance) if causal else abs(distance)
    exact = buckets // 2
    if apart < exact:
        return first + apart
    share = np.log(np.float32(apart) / np.float32(exact)) / np.float32(math.log(most / exact))
    return first + min(exact + int(share * np.float32(buckets - exact)), buckets - 1)


def masked(q, k, v, scale, hidden, bias):
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1).astype(f64), np.repeat(v, group, axis=1).astype(f64)
    scores = np.where(hidden, -np.inf, np.einsum("ihd,jhd->hij", q.astype(f64), k) * scale + bias)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", p / p.sum(-1, keepdims=True), v)


SEEN = {  # positions, encoded ones, heads, kv_heads, head_dim, options
    "chunks": (150, 0, 4, 2, 8, dict(chunk=37)),
    "distance": (150, 0, 2, 2, 8, dict(buckets=8, most=20)),
    "far": (300, 0, 2, 1, 8, dict(buckets=32, most=128)),
    "both_ways": (150, 0, 3, 3, 8, dict(buckets=16, most=40, causal=False)),
    "decoded": (130, 70, 2, 1, 8, dict(buckets=8, most=20)),
    "encoded": (130, 70, 4, 2, 8, dict(causal=False)),
}
for name, (n, encoded, heads, kv_heads, d, options) in SEEN.items():
    q, k, v = normal(n, heads, d, scale=2), normal(n, kv_heads, d), normal(n, kv_heads, d)
    i, j = np.arange(n)[:, None], np.arange(n)[None, :]
    causal = options.get("causal", True)
    hidden, bias = (j > i) if causal else (j < 0) | (i < 0), 0.0
    if "chunk" in options:
        hidden = hidden | (i // options["chunk"] != j // options["chunk"])
    if name == "decoded":
        hidden = hidden | (j < encoded)
    if name == "encoded":
        hidden = hidden | (j >= encoded)
    if "buckets" in options:
        table = normal(options["buckets"], heads, scale=2)
        put(f"seen.{name}.distance_bias", table)
        numbers = np.array([[bucket(b - a, options["buckets"], options["most"], causal) for b in range(n)]
                            for a in range(n)])
        bias = table[numbers].transpose(2, 0, 1)
    y = masked(q, k, v, f64(np.float32(0.5)), hidden, bias).reshape(n, -1)
    result(f"seen.{name}", y[encoded:])
    for part, array in dict(q=q, k=k, v=v).items():
        put(f"seen.{name}.{part}", array.reshape(n, -1))
    for key, value in dict(heads=heads, kv_heads=kv_heads, head_dim=d, encoded=encoded, chunk=options.get("chunk", 0),
                           most=options.get("most", 0)).items():
        writer.add_uint32(f"seen.{name}.{key}", value)
    writer.add_bool(f"seen.{name}.causal", causal)
writer.add_array("seen.cases", list(SEEN))

writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
