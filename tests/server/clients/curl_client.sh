#!/usr/bin/env bash
# curl against the server, as people type it.
set -euo pipefail
fail() { echo "FAILED: $*" >&2; exit 1; }
# Reads all before it looks: a reader that stops at the first match would break the pipe, which is curl's failure.
says() { local text; text=$(cat); grep -q -- "$1" <<<"$text"; }
ask() { curl -sS --max-time 60 -H "Authorization: Bearer $QUIPU_KEY" -H 'Content-Type: application/json' "$@"; }

[[ $(ask "$QUIPU_URL/health") == '{"status":"ok"}' ]] || fail "health"
[[ $(curl -sS -o /dev/null -w '%{http_code}' "$QUIPU_URL/v1/models") == 401 ]] || fail "no key is a 401"
ask "$QUIPU_URL/v1/models" | says '"id":"tiny"' || fail "the list of models"
body='{"messages":[{"role":"user","content":"hello"}],"max_tokens":5,"temperature":0,"ignore_eos":true'
ask "$QUIPU_URL/v1/chat/completions" -d "$body}" | says '"finish_reason":"length"' || fail "a chat"
# -N shows a stream as it comes; its last line is the end.
[[ $(ask -N "$QUIPU_URL/v1/chat/completions" -d "$body,\"stream\":true}" | grep . | tail -n 1) == 'data: [DONE]' ]] \
  || fail "a stream"
# A large body makes curl ask first ("Expect: 100-continue").
large=$(printf 'x%.0s' {1..2000})
[[ $(ask -o /dev/null -w '%{http_code}' "$QUIPU_URL/v1/completions" -d "{\"prompt\":\"$large\",\"max_tokens\":1}") == 400 ]] \
  || fail "a prompt that is too long is a 400"
ask -X POST "$QUIPU_URL/tokenize" -d '{"content":"hello"}' | says '"tokens":\[' || fail "tokenize"
[[ $(ask -o /dev/null -w '%{http_code}' -X DELETE "$QUIPU_URL/v1/models") == 405 ]] || fail "a method that is not there"
printf '{"prompt":"a","max_tokens":1}' | ask -H 'Transfer-Encoding: chunked' --data-binary @- "$QUIPU_URL/v1/completions" \
  | says '"text"' || fail "a chunked body"
ask --compressed "$QUIPU_URL/metrics" | says '^quipu_steps_total' || fail "metrics"
echo "curl: all well"
