"""A legacy server that may run once at a time: it holds a lock file and removes it only when its input ends.

Run as ``python -I -S locking.py LOCK LOG``: LOG gets a line for each start. A second instance says so on stderr and exits with 1; one that
is killed leaves its lock behind, as real servers with a port, a browser profile or a single backend connection do.
"""

import json
import os
import sys

lock, log = sys.argv[1:]


def tell(event: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{event} {os.getpid()}\n".encode())
    os.close(descriptor)


tell("start")
try:
    os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
except FileExistsError:
    print("another instance is running", file=sys.stderr)
    tell("refused")
    sys.exit(1)
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "one", "version": "1"},
        }
    elif message.get("method") == "tools/list":
        result = {"tools": [{"name": "only", "inputSchema": {"type": "object"}}]}
    elif "id" not in message:
        continue
    else:
        answer = {
            "jsonrpc": "2.0",
            "id": message["id"],
            "error": {"code": -32602, "message": "Invalid request parameters"},
        }
        print(json.dumps(answer), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
os.unlink(lock)
tell("end")
