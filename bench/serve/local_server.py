"""Starting a `quipu serve` of one's own."""
import subprocess


def start(program, model, *flags):
    """(process, port) of a server that is ready, on a free port; its log goes on at process.stderr."""
    process = subprocess.Popen([program, "serve", "-m", model, "--port", "0", *flags], stderr=subprocess.PIPE, text=True)
    port = None
    for line in process.stderr:
        if "listening on" in line:
            port = int(line.rsplit(":", 1)[1].strip().rstrip("/"))
        if "quipu: ready" in line:
            break
    if port is None:
        raise RuntimeError("the server did not start")
    return process, port
