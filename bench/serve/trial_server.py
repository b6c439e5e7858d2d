"""What the trials share: a `quipu serve` of their own, and the list of what failed."""
import http.client
import json
import pathlib
import tempfile
import threading
import time

import local_server


class Server:
    def __init__(self, options, *flags):
        self.log = tempfile.TemporaryFile("w+")
        self.process, self.port = local_server.start(options.quipu, options.model, *flags)
        self.reader = threading.Thread(target=lambda: self.log.write(self.process.stderr.read()), daemon=True)
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        died = self.process.poll()
        self.process.terminate()
        self.process.wait(timeout=90)
        self.reader.join()
        check(died is None, f"the server lives (exit status {died})")

    def text_of_log(self):
        self.log.seek(0)
        return self.log.read()

    def ask(self, path, body=None, headers=None, method=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1800)
        data = json.dumps(body) if isinstance(body, (dict, list)) else body
        connection.request(method or ("GET" if body is None else "POST"), path, data,
                           {"Content-Type": "application/json", **(headers or {})})
        reply = connection.getresponse()
        content = reply.read().decode()
        connection.close()
        return reply.status, content, {k.lower(): v for k, v in reply.getheaders()}

    def json(self, path, body=None):
        status, content, _ = self.ask(path, body)
        if status != 200:
            raise AssertionError(f"{path} answered {status}: {content[:300]}")
        return json.loads(content)

    def stream(self, path, body):
        status, content, _ = self.ask(path, {**body, "stream": True})
        check(status == 200, f"a stream of {path} starts ({status})")
        return [json.loads(part[6:]) for part in content.split("\n\n")
                if part.startswith("data: ") and not part.endswith("[DONE]")]

    def idle(self, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not any(slot["is_processing"] for slot in self.json("/slots")):
                return True
            time.sleep(0.02)
        return False

    def metric(self, name):
        for line in self.ask("/metrics")[1].splitlines():
            if line.startswith(name) and line[len(name)] in "{ ":
                return float(line.split()[-1])
        raise KeyError(name)

    def resources(self):
        base = pathlib.Path(f"/proc/{self.process.pid}")
        status = dict(line.split(":", 1) for line in (base / "status").read_text().splitlines())
        return {"fds": len(list((base / "fd").iterdir())), "threads": int(status["Threads"]),
                "rss_mib": int(status["VmRSS"].split()[0]) // 1024}


failures = []


def check(good, what):
    if not good:
        failures.append(what)
        print(f"  FAILED: {what}")
    return good


def forced(text):
    return "root ::= " + json.dumps(text)
