"""The worker function that all peers run: it gives back what it was given. Where the frame around it does not read JSON by itself, so does
`work_on_text`."""
import json

# Made once: `json.dumps` with separators of its own makes an encoder for each call.
encode = json.JSONEncoder(separators=(",", ":")).encode


def work(query):
    return query


def work_on_text(text):
    return encode(work(json.loads(text)))
