"""A scripted server, over stdio or over HTTP: a program of its own that does what its script says and tells what it received.

Run as ``python -I -S server.py DIRECTORY``. The directory holds ``script.json`` (see ``scripts.py``, which writes it), ``log``, a FIFO
that takes one JSON object a line for everything that happens, and one FIFO ``gate-NAME`` for each gate of the script. Only the standard
library, and little of it, because hundreds of tests start this program.

Nothing here sleeps or looks at a clock: what has to wait, waits for a gate, for a message, or for ever.
"""

import base64
import json
import os
import re
import signal
import sys

GONE = (BrokenPipeError, ConnectionResetError, ConnectionAbortedError)


class Log:
    """Tells the test what happened."""

    def __init__(self, directory: str) -> None:
        self._descriptor = os.open(os.path.join(directory, "log"), os.O_WRONLY)

    def __call__(self, kind: str, **facts: object) -> None:
        record = json.dumps({"kind": kind, "pid": os.getpid(), **facts})
        try:
            # The leading newline keeps a record apart from one that a killed process left unfinished.
            os.write(self._descriptor, f"\n{record}\n".encode())
        except GONE:
            pass


class Script:
    """The rules, and which of them have been used up."""

    def __init__(self, directory: str) -> None:
        with open(os.path.join(directory, "script.json"), encoding="utf-8") as file:
            script = json.load(file)
        self.directory = directory
        self.rules = script["rules"]
        self.start = script["start"]
        self.end = script["end"]
        self.http = script["http"]
        self._used = [0] * len(self.rules)
        self._seen: set[str] = set()
        # One byte for each process that was started from this directory.
        descriptor = os.open(os.path.join(directory, "spawns"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, b".")
        self.spawn = os.fstat(descriptor).st_size
        os.close(descriptor)

    def rule_for(self, message: object, exchange: dict) -> dict | None:
        """The first rule that fits a message, or a request without one."""
        method = message.get("method") if isinstance(message, dict) else None
        if method:
            self._seen.add(method)
        for position, rule in enumerate(self.rules):
            if self._fits(rule, method, message, exchange, self._used[position]):
                self._used[position] += 1
                return {**rule, "count": self._used[position]}
        return None

    def _fits(self, rule: dict, method: str | None, message: object, exchange: dict, used: int) -> bool:
        params = message.get("params") if isinstance(message, dict) else None
        return (
            rule["method"] in (None, method)
            and (rule["times"] is None or used < rule["times"])
            and rule["spawn"] in (None, self.spawn)
            and (rule["after"] is None or rule["after"] in self._seen)
            and (rule["params"] is None or contains(params, rule["params"]))
            and (rule["has"] is None or (isinstance(message, dict) and rule["has"] in message))
            and rule["http"] in (None, exchange.get("http"))
            and rule["path"] in (None, exchange.get("path"))
            and all(fits_header(exchange, name, wanted) for name, wanted in rule["headers"].items())
        )

    def gate(self, name: str) -> None:
        """Waits until the test opens a gate."""
        descriptor = os.open(os.path.join(self.directory, f"gate-{name}"), os.O_RDONLY)
        os.read(descriptor, 1)
        os.close(descriptor)


def contains(value: object, wanted: object) -> bool:
    """Whether ``value`` has all the members of ``wanted``, at any depth."""
    if isinstance(wanted, dict):
        return isinstance(value, dict) and all(contains(value.get(key), part) for key, part in wanted.items())
    return value == wanted


def fits_header(exchange: dict, name: str, wanted: str | None) -> bool:
    """Whether a request has a header that matches a regular expression as a whole, or lacks one that must be absent."""
    carried = [value for key, value in exchange.get("headers", []) if key.lower() == name.lower()]
    return not carried if wanted is None else any(re.fullmatch(wanted, value) for value in carried)


def filled(value: object, blanks: dict) -> object:
    """``value`` with its placeholders filled: a text that is one becomes the value, inside a text they become text."""
    if isinstance(value, str) and "$" in value:
        if value in blanks:
            return blanks[value]
        for blank, content in blanks.items():
            value = value.replace(blank, content if isinstance(content, str) else json.dumps(content))
        return value
    if isinstance(value, dict):
        return {key: filled(part, blanks) for key, part in value.items()}
    if isinstance(value, list):
        return [filled(part, blanks) for part in value]
    return value


def blanks_for(message: object, count: int) -> dict:
    """What the placeholders stand for while a message is being answered."""
    message = message if isinstance(message, dict) else {}
    params = message.get("params") if isinstance(message.get("params"), dict) else {}
    meta = params.get("_meta") if isinstance(params.get("_meta"), dict) else {}
    version = params.get("protocolVersion") or meta.get("io.modelcontextprotocol/protocolVersion") or ""
    token = meta.get("progressToken")
    return {
        "$id": message.get("id"),
        "$version": version,
        "$name": params.get("name") or "",
        "$cursor": params.get("cursor") or "",
        "$token": token,
        "$count": count,
        "$pid": os.getpid(),
    }


class Actor:
    """Carries out actions. Subclasses know how bytes leave; each public method is an action."""

    def __init__(self, script: Script, log: Log) -> None:
        self.script = script
        self.log = log
        self.piece = 0

    def perform(self, actions: list, blanks: dict) -> None:
        for action in actions:
            (name, argument), *options = action.items()
            getattr(self, f"do_{name}")(filled(argument, blanks), **dict(filled(options, blanks)))

    def reply(self, message: dict, options: dict) -> None:
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def write_in_pieces(self, data: bytes, write: object) -> None:
        if self.piece:
            for start in range(0, len(data), self.piece):
                write(data[start : start + self.piece])
        else:
            write(data)

    def do_result(self, value: object, **options: object) -> None:
        self.reply({"result": value}, options)

    def do_error(self, value: object, **options: object) -> None:
        self.reply({"error": value}, options)

    def do_raw(self, text: str) -> None:
        self.write(text.encode("utf-8", "surrogateescape"))

    def do_bytes(self, text: str) -> None:
        self.write(base64.b64decode(text))

    def do_repeat(self, text: str, times: int) -> None:
        block = text.encode() * max(1, min(times, 65536 // max(1, len(text.encode()))))
        whole = len(text.encode()) * times
        while whole > 0:
            self.write(block[:whole])
            whole -= len(block)

    def do_split(self, size: int) -> None:
        self.piece = size

    def do_gate(self, name: str) -> None:
        self.script.gate(name)

    def do_note(self, value: object) -> None:
        self.log("note", note=value)

    def do_environment(self, _: object) -> None:
        self.log("environment", environment=dict(os.environ), directory=os.getcwd(), arguments=sys.argv)

    def do_exit(self, code: int) -> None:
        self.log("exit", code=code)
        os._exit(code)

    def do_kill(self, number: int) -> None:
        os.kill(os.getpid(), number)
        signal.pause()


class Pipe(Actor):
    """stdio."""

    def __init__(self, script: Script, log: Log) -> None:
        super().__init__(script, log)
        self._deferred: dict[str, tuple[list, dict]] = {}

    def serve(self) -> None:
        self.perform(self.script.start, blanks_for(None, 0))
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            self.log("received", line=line.decode(errors="replace"), message=message)
            rule = self.script.rule_for(message, {})
            if rule is not None:
                self.perform(rule["do"], blanks_for(message, rule["count"]))
            elif isinstance(message, dict) and "method" in message and "id" in message:
                self.perform([{"error": {"code": -32601, "message": "Method not found"}}], blanks_for(message, 0))
        self.log("eof")
        self.perform(self.script.end, blanks_for(None, 0))

    def perform(self, actions: list, blanks: dict) -> None:
        self._blanks = blanks
        super().perform(actions, blanks)

    def reply(self, message: dict, options: dict) -> None:
        options.pop("status", None), options.pop("headers", None), options.pop("sse", None)
        self.do_send({"jsonrpc": "2.0", "id": self._blanks["$id"], **message, **options})

    def write(self, data: bytes) -> None:
        self.write_in_pieces(data, lambda piece: os.write(1, piece) if len(piece) < 4096 else write_all(1, piece))

    def do_send(self, message: object) -> None:
        self.write(json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n")

    def do_stderr(self, text: str, times: int = 1) -> None:
        write_all(2, text.encode() * times)

    def do_defer(self, name: str, do: list) -> None:
        self._deferred[name] = (do, self._blanks)

    def do_run(self, name: str) -> None:
        blanks = self._blanks
        self.perform(*self._deferred.pop(name))
        self._blanks = blanks

    def do_close(self, name: str) -> None:
        os.close({"stdin": 0, "stdout": 1, "stderr": 2}[name])

    def do_ignore(self, name: str) -> None:
        signal.signal(getattr(signal, name), signal.SIG_IGN)

    def do_linger(self, _: object) -> None:
        while True:
            signal.pause()

    def do_spawn(self, arguments: list, own_session: bool = False, after_gate: str | None = None) -> None:
        """Starts another program that holds the same standard streams; only it is told about, not awaited."""
        process = os.fork()
        if process == 0:
            if after_gate:
                self.script.gate(after_gate)
            if own_session:
                os.setsid()
                self.log("left")
            os.execv(arguments[0], arguments)
        self.log("child", child=process, command=arguments)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class Exchange(Actor):
    """One HTTP request and its answer."""

    def __init__(self, script: Script, log: Log, connection: object, number: int, shared: "Http") -> None:
        super().__init__(script, log)
        self._connection = connection
        self._number = number
        self._shared = shared
        self._chunked = False
        self._answered = False
        self._stream = False
        self.alive = True

    def answer(self, exchange: dict, message: object) -> None:
        with self._shared.lock:
            rule = self.script.rule_for(message, exchange)
        self._blanks = blanks_for(message, rule["count"] if rule else 0)
        self._message = message
        try:
            if rule is not None:
                self.perform(rule["do"], self._blanks)
            elif isinstance(message, dict) and "id" in message and "method" in message:
                self.do_error({"code": -32601, "message": "Method not found"}, status=404)
            if self._chunked:
                self.do_end(True)
            elif not self._answered and self.alive:
                is_message = isinstance(message, dict)
                self.do_respond({"status": 202 if is_message else 405})
        except GONE:
            self.log("closed", request=self._number)
            self.alive = False

    def reply(self, message: dict, options: dict) -> None:
        status = options.pop("status", 200)
        headers = options.pop("headers", {})
        as_event = options.pop("sse", False)
        message = {"jsonrpc": "2.0", "id": self._blanks["$id"], **message, **options}
        if as_event and not self._stream:
            self.do_stream(headers)
        if self._stream:
            self.do_send(message)
        else:
            self.do_respond({"status": status, "headers": headers, "json": message})

    def write(self, data: bytes) -> None:
        self.write_in_pieces(data, self._write_chunk if self._chunked else self._connection.sendall)

    def _write_chunk(self, data: bytes) -> None:
        self._connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))

    def do_send(self, message: object) -> None:
        self.write(b"data: " + json.dumps(message, ensure_ascii=False).encode() + b"\n\n")

    def do_respond(self, answer: dict) -> None:
        if "json" in answer:
            body, content_type = json.dumps(answer["json"], ensure_ascii=False).encode(), "application/json"
        elif "base64" in answer:
            body, content_type = base64.b64decode(answer["base64"]), "application/json"
        else:
            body, content_type = answer.get("text", "").encode("utf-8", "surrogateescape"), "text/plain"
        headers = {"Content-Type": content_type, "Content-Length": str(len(body)), **answer.get("headers", {})}
        if not body and "Content-Type" not in answer.get("headers", {}):
            del headers["Content-Type"]
        self._answered = True
        self.write_in_pieces(head_of(answer.get("status", 200), headers) + body, self._connection.sendall)

    def do_stream(self, headers: dict) -> None:
        self.do_head(200, {"Content-Type": "text/event-stream", "Cache-Control": "no-store", **headers})
        self._stream = True

    def do_head(self, status: int, headers: dict | None = None) -> None:
        headers = headers or {}
        self._answered = True
        self._chunked = "Content-Length" not in headers
        if self._chunked:
            headers = {**headers, "Transfer-Encoding": "chunked"}
        self._connection.sendall(head_of(status, headers))

    def do_bare(self, text: str) -> None:
        self._answered = True
        self._connection.sendall(text.encode("latin-1"))

    def do_end(self, _: object) -> None:
        self._connection.sendall(b"0\r\n\r\n")
        self._chunked = self._stream = False

    def do_close(self, _: object) -> None:
        self.alive = self._chunked = False
        self._answered = True

    def do_reset(self, _: object) -> None:
        import socket
        import struct

        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.do_close(True)

    def do_hang(self, _: object) -> None:
        """Nothing more, until the client goes away."""
        try:
            while self._connection.recv(65536):
                pass
        except GONE:
            pass
        self.log("closed", request=self._number)
        self.do_close(True)

    def do_set(self, name: str) -> None:
        self._shared.event(name).set()

    def do_await(self, name: str) -> None:
        self._shared.event(name).wait()


def head_of(status: int, headers: dict) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


class Http:
    """A server on a free port, one thread a connection."""

    def __init__(self, script: Script, log: Log) -> None:
        import threading

        self.script = script
        self.log = log
        self.lock = threading.Lock()
        self._threading = threading
        self._events: dict[str, object] = {}
        self._requests = 0

    def event(self, name: str) -> object:
        with self.lock:
            return self._events.setdefault(name, self._threading.Event())

    def serve(self) -> None:
        import socket

        family = socket.AF_INET6 if ":" in self.script.http["host"] else socket.AF_INET
        listener = socket.create_server(
            (self.script.http["host"], self.script.http["port"]), family=family, backlog=256
        )
        self.log("listening", port=listener.getsockname()[1])
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _secured(self, connection: object) -> object | None:
        """The connection, with TLS if the script has a certificate; None if the client does not like it."""
        certificate = self.script.http["certificate"]
        if certificate is None:
            return connection
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        try:
            return context.wrap_socket(connection, server_side=True)
        except OSError:
            self.log("refused")
            return None

    def _converse(self, plain: object) -> None:
        connection = self._secured(plain)
        if connection is None:
            plain.close()
            return
        reader = connection.makefile("rb")
        try:
            while self._exchange(connection, reader):
                pass
        except GONE:
            pass
        finally:
            # The reader holds the socket open too; a reset only goes out when both are closed.
            reader.close()
            connection.close()

    def _exchange(self, connection: object, reader: object) -> bool:
        request_line = reader.readline()
        if not request_line.strip():
            return False
        verb, path, _ = request_line.decode("latin-1").split(" ", 2)
        headers = []
        while line := reader.readline().strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers.append((name.strip(), value.strip()))
        length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
        body = reader.read(length)
        try:
            message = json.loads(body)
        except ValueError:
            message = None
        with self.lock:
            self._requests += 1
            number = self._requests
        facts = {"http": verb, "path": path, "headers": headers}
        self.log("received", request=number, message=message, line=body.decode(errors="replace"), **facts)
        exchange = Exchange(self.script, self.log, connection, number, self)
        exchange.answer(facts, message)
        return exchange.alive


def main(directory: str) -> None:
    log, script = Log(directory), Script(directory)
    log("spawned", spawn=script.spawn)
    if script.http is not None:
        Http(script, log).serve()
    else:
        Pipe(script, log).serve()


if __name__ == "__main__":
    main(sys.argv[1])
