"""A toy process of a Procfile that answers 200 to every request."""

import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


if __name__ == "__main__":
    sys.stdout.write(f"serving {sys.argv[1:]}\n")
    sys.stdout.flush()
    if "with-child" in sys.argv:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)  # toy grandchild"])
    if "stubborn" in sys.argv:
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    HTTPServer(
        ("127.0.0.1", int(os.environ["STORE_PORT"]) + int(sys.argv[1])), Answer
    ).serve_forever()
