"""As much of a gRPC client as measuring needs, on a bare socket: many calls at once, readers that do not read, and a unary call's time.

It writes the frames of HTTP/2 by hand, with headers that are neither compressed nor remembered, and looks only for the end of an answer.
"""
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
WIDE = 2**31 - 1


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(prefix, value):
    return prefix + bytes([len(value)]) + value


def header_block(path):
    parts = [b"\x83\x86", literal(b"\x04", path.encode()), literal(b"\x01", b"localhost")]
    parts += [literal(b"\x0f\x10", b"application/grpc"), literal(b"\x00\x02te", b"trailers")]
    return b"".join(parts)


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def field(number, value):
    """A field of a message: text or bytes, or a number."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def submit(kind, payload, query_id=""):
    """A SubmitRequest or ExecuteRequest, which are alike."""
    return field(1, query_id) + field(2, field(1, kind) + field(3, payload))


def stream_results(query_id, first=0):
    return field(1, query_id) + field(2, first)


def scale(kind, by):
    """A ScaleKindRequest for one worker more, or one fewer."""
    return field(1, kind) + field(3, {1: 2, -1: 1}[by])


class Connection:
    """One connection to a service; `window` is what the server may send on each stream before it is told to go on."""

    def __init__(self, address, window=WIDE, service="WorkerPool"):
        self.service = service
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Bytes that may be sent: on the whole connection now, and on each new stream.
        self.room = self.stream_room = 65535
        self.rooms = {}
        self.next, self.waiting, self.received = 1, b"", 0
        settings = struct.pack(">HI", 4, window)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings) + frame(WINDOW, 0, 0, struct.pack(">I", WIDE - 65535)))

    def call(self, method, message):
        """The bytes of a call, of which it takes the room for granted, and its stream."""
        stream, self.next = self.next, self.next + 2
        body = b"\0" + struct.pack(">I", len(message)) + message
        self.room -= len(body)
        out = frame(HEADERS, END_HEADERS, stream, header_block(f"/remuda.v1.{self.service}/{method}"))
        # Frames of the largest size that every server takes.
        for at in range(0, len(body), 16384):
            last = at + 16384 >= len(body)
            out += frame(DATA, END_STREAM if last else 0, stream, body[at : at + 16384])
        return stream, out

    def call_many(self, method, message, count, at_once=200):
        """Makes the same call so many times, so many at once, and waits for all of them."""
        begun = ended = 0
        while ended < count:
            batch = []
            while begun < count and begun - ended < at_once and min(self.room, self.stream_room) >= len(message) + 5:
                batch.append(self.call(method, message)[1])
                begun += 1
            self.socket.sendall(b"".join(batch))
            ended += len(self.receive())

    def open(self, method, message):
        """Makes a call and does not wait for it."""
        stream, out = self.call(method, message)
        self.socket.sendall(out)
        return stream

    def send_large(self, method, message):
        """Makes one call that may be larger than the windows, and waits for it."""
        stream, self.next = self.next, self.next + 2
        self.socket.sendall(frame(HEADERS, END_HEADERS, stream, header_block(f"/remuda.v1.WorkerPool/{method}")))
        body, at = b"\0" + struct.pack(">I", len(message)) + message, 0
        self.rooms = {stream: self.stream_room}
        while at < len(body):
            length = min(16384, len(body) - at, self.room, self.rooms[stream])
            if length > 0:
                last = at + length == len(body)
                self.socket.sendall(frame(DATA, END_STREAM if last else 0, stream, body[at : at + length]))
                self.room, self.rooms[stream], at = self.room - length, self.rooms[stream] - length, at + length
            elif stream in self.receive():
                raise ConnectionError("refused before it was sent")
        self.finish([stream])

    def finish(self, streams):
        """Reads until all of these have ended."""
        left = set(streams)
        while left:
            left.difference_update(self.receive())

    def time_calls(self, method, message, count):
        """Times of so many calls, one after the other, in seconds."""
        times = []
        for _ in range(count):
            begun = time.perf_counter()
            self.finish([self.open(method, message)])
            times.append(time.perf_counter() - begun)
        if self.received == 0:
            raise ConnectionError(f"{method} gives no answer")
        return times

    def receive(self):
        """Takes what the server has sent; the streams that ended."""
        ended = []
        chunk = self.socket.recv(1 << 20)
        if not chunk:
            raise ConnectionError("the server closed the connection")
        data, at = self.waiting + chunk, 0
        while len(data) - at >= 9:
            length = int.from_bytes(data[at : at + 3], "big")
            if len(data) - at < 9 + length:
                break
            kind, flags = data[at + 3], data[at + 4]
            stream = int.from_bytes(data[at + 5 : at + 9], "big") & WIDE
            self.handle(kind, flags, stream, data[at + 9 : at + 9 + length], ended)
            at += 9 + length
        self.waiting = data[at:]
        return ended

    def handle(self, kind, flags, stream, payload, ended):
        if kind == DATA:
            self.received += len(payload)
        if (kind in (DATA, HEADERS) and flags & END_STREAM) or kind == RST:
            ended.append(stream)
        elif kind == WINDOW and stream == 0:
            self.room += int.from_bytes(payload, "big")
        elif kind == WINDOW and stream in self.rooms:
            self.rooms[stream] += int.from_bytes(payload, "big")
        elif kind == SETTINGS and not flags & ACK:
            self.take_settings(payload)
        elif kind == PING and not flags & ACK:
            self.socket.sendall(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            raise ConnectionError(f"the server sends us away: {payload[8:]!r}")

    def take_settings(self, payload):
        for at in range(0, len(payload), 6):
            name, value = struct.unpack_from(">HI", payload, at)
            if name == 4:
                self.stream_room = value
        self.socket.sendall(frame(SETTINGS, ACK, 0))

    def close(self):
        self.socket.close()
