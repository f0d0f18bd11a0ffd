"""Draws plots as SVG with nothing but the standard library; they suit light and dark pages alike."""
import math
from html import escape

STYLE = """
  .ink { fill: #1f2328 } .soft { fill: #59636e } .grid { stroke: #d1d9e0; stroke-width: 1 }
  .a { fill: #0969da; stroke: #0969da } .b { fill: #bc4c00; stroke: #bc4c00 } .c { fill: #59636e; stroke: #59636e }
  .limit { stroke: #cf222e; stroke-width: 1.5; stroke-dasharray: 5 4 } .warn { fill: #cf222e }
  .line { fill: none; stroke-width: 2.5 } text { font: 13px system-ui, sans-serif } .title { font-weight: 600; font-size: 15px }
  text.a, text.b, text.c { stroke: none }
  @media (prefers-color-scheme: dark) {
    .ink { fill: #f0f6fc } .soft { fill: #9198a1 } .grid { stroke: #3d444d }
    .a { fill: #4493f8; stroke: #4493f8 } .b { fill: #f0883e; stroke: #f0883e } .c { fill: #9198a1; stroke: #9198a1 }
    .limit { stroke: #f85149 } .warn { fill: #f85149 }
    text.a, text.b, text.c { stroke: none }
  }
"""
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 720, 64, 130, 66, 52
HEIGHT = 350


def text(x, y, words, kind="ink", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def picture(height, title, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'
    return "\n".join([head, f"<style>{STYLE}</style>", text(16, 26, title, "ink title"), *parts, "</svg>", ""])


def number(value):
    """A short form of a number: 1,000, 1M, 64Ki."""
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    if value >= 1024 and math.log2(value).is_integer():
        return f"{value // 1024}Ki"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


def steps(top):
    """Round values from 0 to beyond `top`."""
    rough = top / 4
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough)
    return [step * n for n in range(math.ceil(top / step) + 1)]


def decades(low, high):
    return [10.0**n for n in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def bars(title, rows):
    """Horizontal bars of (name, value, words beside it, class)."""
    top, name_width, bar = max(row[1] for row in rows), 250, 30
    parts, y = [], 46
    for name, value, words, kind in rows:
        length = max(2, (WIDTH - name_width - 150) * value / top)
        parts.append(text(name_width - 12, y + bar / 2 + 4, name, "ink", "end"))
        parts.append(f'<rect x="{name_width}" y="{y}" width="{length:.1f}" height="{bar - 8}" rx="3" class="{kind}" stroke="none"/>')
        parts.append(text(name_width + length + 8, y + bar / 2 + 4, words, "soft"))
        y += bar + 6
    return picture(y + 12, title, parts)


class Lines:
    """Curves over a logarithmic axis. `series` is [(name, class, [(x, y)])]; an x of 0 stands at the left end."""

    def __init__(self, title, x_name, y_name, series, log_y=False):
        self.title, self.x_name, self.y_name, self.series, self.log_y = title, x_name, y_name, series, log_y
        self.xs = sorted({x for _, _, points in series for x, _ in points})
        values = [y for _, _, points in series for _, y in points]
        self.ticks = decades(min(values), max(values)) if log_y else steps(max(values) * 1.1)

    def x(self, value):
        positive = [x for x in self.xs if x > 0]
        low, high = math.log10(positive[0]), math.log10(positive[-1])
        if 0 in self.xs:
            low -= 1
        at = low if value == 0 else math.log10(value)
        return LEFT + 12 + (WIDTH - LEFT - RIGHT - 24) * (at - low) / (high - low)

    def y(self, value):
        first, last = self.ticks[0], self.ticks[-1]
        part = math.log(value / first) / math.log(last / first) if self.log_y else value / last
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * part

    def axes(self):
        for tick in self.ticks:
            at = self.y(tick)
            yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>'
            yield text(LEFT - 8, at + 4, number(tick), "soft", "end")
        for value in self.xs:
            yield text(self.x(value), HEIGHT - BOTTOM + 20, number(value), "soft", "middle")
        yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, self.x_name, "soft", "middle")
        yield text(16, 44, self.y_name, "soft")

    def curves(self):
        ends = self.label_places()
        for name, kind, points in self.series:
            places = [(self.x(x), self.y(y)) for x, y in points]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            yield f'<polyline points="{path}" class="line {kind}" style="fill: none"/>'
            yield from (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="{kind}"/>' for x, y in places)
            yield text(WIDTH - RIGHT + 6, ends[name], name, kind)

    def label_places(self):
        """Each name beside the end of its curve, but not upon another."""
        ends = sorted((self.y(points[-1][1]) + 4, name) for name, _, points in self.series)
        places, last = {}, -math.inf
        for at, name in ends:
            last = max(at, last + 17)
            places[name] = last
        return places

    def svg(self):
        return picture(HEIGHT, self.title, [*self.axes(), *self.curves()])
