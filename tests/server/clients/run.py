#!/usr/bin/env python3
"""run.py CLIENTS_PYTHON QUIPU WRITE_TINY_MODEL TEST: starts `quipu serve` on a tiny model and runs TEST against it.

A Python TEST runs under CLIENTS_PYTHON, or under this Python when that one is absent; an .mjs under Node with the packages
in node_modules beside that Python's bin; a .sh under bash. Exit status 77 (a skip, said aloud) when the client is not
installed. The test gets the server's address in QUIPU_URL and its key in QUIPU_KEY.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

KEY = "the-key-of-these-tests"


def command_of(test, clients):
    """The command that runs TEST, or why it cannot be run."""
    name, kind = pathlib.Path(test).stem.removesuffix("_client"), pathlib.Path(test).suffix
    if kind == ".sh":
        return ["bash", test] if shutil.which(name) else f"`{name}` is not installed"
    if kind == ".mjs":
        modules = clients.parent.parent / "node_modules"
        package = name.removesuffix("_node")
        if not shutil.which("node") or not (modules / package).exists():
            return f"the Node package `{package}` is not installed (scripts/test installs it)"
        os.environ["QUIPU_NODE_MODULES"] = str(modules)
        return ["node", "--test", test]
    python = str(clients) if clients.exists() else sys.executable
    if subprocess.run([python, "-c", f"import {name}"], capture_output=True).returncode != 0:
        return f"the Python package `{name}` is not installed (scripts/test installs it)"
    return [python, test]


def main():
    clients, quipu, write_model, test = sys.argv[1:5]
    command = command_of(test, pathlib.Path(clients).absolute())
    if isinstance(command, str):
        print(f"SKIPPED: {command}")
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
            environment = {**os.environ, "QUIPU_URL": address, "QUIPU_KEY": KEY, "NO_PROXY": "*", "no_proxy": "*"}
            status = subprocess.run(command, env=environment, timeout=240).returncode
            if server.poll() is not None:
                print(f"the server died: {server.returncode}")
                return 1
            return status
        finally:
            server.terminate()
            server.wait(timeout=30)


if __name__ == "__main__":
    sys.exit(main())
