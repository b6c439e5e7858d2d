#!/usr/bin/env python3
"""run.py CLIENTS_PYTHON QUIPU WRITE_TINY_MODEL TEST: starts `quipu serve` on a tiny model and runs TEST against it.

TEST runs under CLIENTS_PYTHON, or under this Python when that one is absent. Exit status 77 (a skip, said aloud) when the
client's package is not installed. The test gets the server's address in QUIPU_URL and its key in QUIPU_KEY.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

KEY = "the-key-of-these-tests"


def main():
    clients, quipu, write_model, test = sys.argv[1:5]
    python = clients if pathlib.Path(clients).exists() else sys.executable
    package = pathlib.Path(test).stem.removesuffix("_client")
    if subprocess.run([python, "-c", f"import {package}"], capture_output=True).returncode != 0:
        print(f"SKIPPED: the Python package `{package}` is not installed (scripts/test installs it)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "tiny.gguf"
        subprocess.run([write_model, model], check=True)
        server = subprocess.Popen(
            [quipu, "serve", "-m", model, "--port", "0", "--api-key", KEY, "-t", "1", "--temp", "0", "-c", "1024"],
            stderr=subprocess.PIPE, text=True, env={**os.environ, "QUIPU_LOG": "error"})
        try:
            address = None
            for line in server.stderr:
                if "listening on" in line:
                    address = line.split()[-1]
                    break
            if address is None:
                print("the server did not start")
                return 1
            environment = {**os.environ, "QUIPU_URL": address, "QUIPU_KEY": KEY, "NO_PROXY": "*"}
            status = subprocess.run([python, test], env=environment, timeout=240).returncode
            if server.poll() is not None:
                print(f"the server died: {server.returncode}")
                return 1
            return status
        finally:
            server.terminate()
            server.wait(timeout=30)


if __name__ == "__main__":
    sys.exit(main())
