// llama.cpp as a server that batches: the sequences of one context advance together (node-llama-cpp does that).
// The least that `bench/serve/load.py` asks for: POST /v1/chat/completions with `stream`, GET /v1/models.
//
//   npm install node-llama-cpp
//   node batching_server.mjs MODEL.gguf PORT THREADS [SEQUENCES=64] [CONTEXT=1024]
//
// Prompts are written as ChatML, which is what the default model's template gives.
import http from "node:http";
import {getLlama} from "node-llama-cpp";

const [file, port, threads, sequences = "64", contextSize = "1024"] = process.argv.slice(2);
const llama = await getLlama({gpu: false, build: "never", maxThreads: Number(threads)});
const model = await llama.loadModel({modelPath: file});
const context = await model.createContext({
    sequences: Number(sequences), contextSize: Number(contextSize), batchSize: 512, threads: Number(threads)
});
const free = Array.from({length: Number(sequences)}, () => context.getSequence());
const waiting = [];

async function take() {
    if (free.length === 0) await new Promise((resolve) => waiting.push(resolve));
    return free.pop();
}

function giveBack(sequence) {
    free.push(sequence);
    waiting.shift()?.();
}

async function answer(request, response) {
    let text = "";
    for await (const piece of request) text += piece;
    const body = JSON.parse(text);
    const prompt = body.messages.map((m) => `<|im_start|>${m.role}\n${m.content}<|im_end|>\n`).join("") +
        "<|im_start|>assistant\n";
    const sequence = await take();
    try {
        if (response.destroyed) return;
        await sequence.clearHistory();
        response.writeHead(200, {"Content-Type": "text/event-stream"});
        const options = {temperature: body.temperature ?? 0.8, topK: 40, topP: 0.95, minP: 0.05, yieldEogToken: true};
        let left = body.max_tokens ?? 64;
        for await (const token of sequence.evaluate(model.tokenize(prompt, true), options)) {
            if (response.destroyed) return;
            const content = model.detokenize([token], true);
            response.write(`data: ${JSON.stringify({choices: [{index: 0, delta: {content: content || " "}}]})}\n\n`);
            if (--left <= 0) break;
        }
        response.end("data: [DONE]\n\n");
    } finally {
        giveBack(sequence);
    }
}

http.createServer((request, response) => {
    if (request.method === "GET") {
        response.end("{}");
        return;
    }
    answer(request, response).catch((error) => {
        console.error(error);
        response.destroy();
    });
}).listen(Number(port), "127.0.0.1");
