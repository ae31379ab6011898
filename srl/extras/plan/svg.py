"""A plan as an SVG picture: fragments as cards side by side, streams as arrows below them."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from srl.dataflow.cut import Stream
from srl.dataflow.graph import Edge
from srl.extras.plan.scene import Scene, names

_CARD, _GAP, _MARGIN = 300, 90, 28
_TOP = 92  # of the cards, below the title
_PILL, _PILL_WIDTH, _PILL_GAP = 28, 92, 26
_HEAD = 80  # of a card, above its first node
_LANE, _REPLY = 68, 22  # height of a stream, and more where something comes back

_STYLE = """
  svg { --paper: #ffffff; --card: #f6f8fa; --line: #c3ccd6; --ink: #1f2933; --soft: #5b6875;
    --pill: #ffffff; --inference: #c2560c; --sample: #1f6fb5; --parameters: #2c7d4f;
    --gradients: #8a3ea8; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #12171d; --card: #1b222b; --line: #3d4a58; --ink: #e4eaf0; --soft: #9fadbb;
      --pill: #252f3a; --inference: #f2994a; --sample: #6cb2f0; --parameters: #62c48c;
      --gradients: #cf93e6; }
  }
  text { font-family: Inter, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--ink);
    font-size: 13px; }
  .title { font-size: 19px; font-weight: 600; }
  .name { font-size: 15px; font-weight: 600; }
  .soft { fill: var(--soft); font-size: 12px; }
  .edge { fill: var(--soft); font-size: 11px; stroke: var(--card); stroke-width: 5px;
    paint-order: stroke; }
  .card { fill: var(--card); stroke: var(--line); }
  .pill { fill: var(--pill); stroke: var(--line); stroke-width: 1.3; }
  .wire { fill: none; stroke: var(--soft); stroke-width: 1.3; }
  .life { stroke: var(--line); stroke-dasharray: 2 5; stroke-width: 1.5; }
  .frame { fill: none; stroke: var(--soft); stroke-dasharray: 6 5; }
  .tip { fill: var(--soft); }
""" + "".join(
    f"  .{kind} {{ stroke: var(--{kind}); stroke-width: 2; fill: none; }}\n"
    f"  text.{kind} {{ stroke: none; fill: var(--{kind}); }}\n"
    f"  .tip.{kind} {{ stroke: none; fill: var(--{kind}); }}\n"
    for kind in ("inference", "sample", "parameters", "gradients")
)


def picture(scene: Scene) -> str:
    """Gives the text of an SVG that is readable on light and on dark pages."""
    columns = {name: _MARGIN + i * (_CARD + _GAP) for i, name in enumerate(scene.plan.fragments)}
    deepest = max(len(scene.nodes(fragment)) for fragment in scene.plan.fragments.values())
    bottom = _TOP + _HEAD + deepest * (_PILL + _PILL_GAP)
    right = max(columns.values()) + _CARD
    width = max(right, 560) + _MARGIN + 10
    lanes: list[tuple[int, Stream]] = []
    height = bottom + 48
    for stream in scene.streams:
        lanes.append((height, stream))
        height += _LANE + (_REPLY if stream.reply else 0)
    height += 10
    parts = [*_header(scene), *_lifelines(scene, columns, height - 46)]
    for name, x in columns.items():
        parts += _card(scene, name, x)
    if scene.plan.one_process:
        parts += _frame(right, bottom)
    for y, stream in lanes:
        parts += _stream(scene, stream, columns, y)
    note = f"Per second at {scene.fps:,.0f} env steps/s."
    note = note if lanes else "Nothing crosses: every edge is a function call."
    parts.append(_text(_MARGIN, height - 20, note, "soft"))
    body = "\n".join(f"  {part}" for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">\n'
        f"<style>{_STYLE}</style>\n"
        f'  <rect width="{width}" height="{height}" rx="12" style="fill: var(--paper)"/>\n'
        f"{body}\n</svg>\n"
    )


def _header(scene: Scene) -> Iterator[str]:
    yield _text(_MARGIN, 40, f"{scene.title}: {scene.plan.name}", "title")
    yield _text(_MARGIN, 62, " · ".join(scene.headline), "soft")


def _frame(right: int, bottom: int) -> Iterator[str]:
    yield (
        f'<rect class="frame" x="{_MARGIN - 12}" y="{_TOP - 16}" width="{right - _MARGIN + 28}" '
        f'height="{bottom - _TOP + 32}" rx="14"/>'
    )
    yield _text(right + 8, bottom + 10, "one process", "soft", "end")


def _lifelines(scene: Scene, columns: dict[str, int], bottom: int) -> Iterator[str]:
    """Down from each card, for the ends of the streams' arrows."""
    if scene.streams:
        for name, x in columns.items():
            top, middle = _TOP + _card_height(scene, name), x + _CARD // 2
            yield f'<path class="life" d="M{middle} {top} V{bottom}"/>'


def _card_height(scene: Scene, name: str) -> int:
    nodes = scene.nodes(scene.plan.fragments[name])
    return _HEAD + len(nodes) * (_PILL + _PILL_GAP) - _PILL_GAP + 22


def _card(scene: Scene, name: str, x: int) -> Iterator[str]:
    """A fragment: its replicas behind each other, its nodes below each other."""
    fragment = scene.plan.fragments[name]
    height = _card_height(scene, name)
    for behind in range(min(fragment.replicas, 3) - 1, -1, -1):
        yield (
            f'<rect class="card" x="{x + 5 * behind}" y="{_TOP - 5 * behind}" width="{_CARD}" '
            f'height="{height}" rx="10"/>'
        )
    title = f"{name} × {fragment.replicas}" if fragment.replicas > 1 else name  # noqa: RUF001
    yield _text(x + 16, _TOP + 25, title, "name")
    yield _text(x + 16, _TOP + 43, scene.resources(fragment), "soft")
    if holdings := scene.holdings(fragment):
        yield _text(x + 16, _TOP + 61, holdings, "soft")
    nodes = scene.nodes(fragment)
    tops = {node: _TOP + _HEAD + i * (_PILL + _PILL_GAP) for i, node in enumerate(nodes)}
    yield from _wires(scene.inside(name), tops, x + _CARD // 2)
    for node, top in tops.items():
        left = x + (_CARD - _PILL_WIDTH) // 2
        yield (
            f'<rect class="pill" x="{left}" y="{top}" width="{_PILL_WIDTH}" height="{_PILL}" '
            f'rx="{_PILL // 2}"/>'
        )
        yield _text(x + _CARD // 2, top + 18, node, "", "middle")


def _wires(edges: list[Edge], tops: dict[str, int], middle: int) -> Iterator[str]:
    """The edges within a card, and over them their names."""
    labels: list[str] = []
    rows = list(tops)
    for edge in edges:
        distance = rows.index(edge.target) - rows.index(edge.source)
        if distance == 1:
            top, bottom = tops[edge.source] + _PILL, tops[edge.target]
            yield f'<path class="wire" d="M{middle} {top} V{bottom - 5}"/>'
            yield _tip(middle, bottom, 0, 1)
            labels.append(_text(middle + 8, (top + bottom) // 2 + 4, edge.name, "edge"))
            continue
        # Around the right to a later node, around the left to an earlier one or back to
        # the same; the ends lie apart, as several edges may meet at a node.
        side = 1 if distance > 0 else -1
        apart = 5 if distance > 0 else -5
        start = tops[edge.source] + _PILL // 2 + apart
        end = tops[edge.target] + _PILL // 2 - apart
        x = middle + side * _PILL_WIDTH // 2
        reach = 8 + 16 * max(abs(distance), 1)
        bulge = x + side * reach * 4 // 3
        curve = f"C{bulge} {start} {bulge} {end} {x + 5 * side} {end}"
        yield f'<path class="wire" d="M{x} {start} {curve}"/>'
        yield _tip(x, end, -side, 0)
        anchor = "start" if side > 0 else "end"
        place = x + side * (reach + 5), (start + end) // 2 + 4
        labels.append(_text(*place, edge.name, "edge", anchor))
    yield from labels


def _stream(scene: Scene, stream: Stream, columns: dict[str, int], y: int) -> Iterator[str]:
    """A lane below the cards: what crosses above its arrow, how and how much below."""
    ends = [columns[name] + _CARD // 2 for name in (stream.source, stream.target)]
    per_step, per_second = scene.rates(stream)
    how = f"{stream.transport}, {per_step} per env step, {per_second}"
    if stream.source == stream.target:
        x = ends[0]
        yield (
            f'<path class="{stream.kind}" d="M{x} {y - 12} C{x - 70} {y - 24} {x - 70} {y + 24} '
            f'{x - 6} {y + 12}"/>'
        )
        yield _tip(x, y + 12, 1, 0, stream.kind)
        last = x > _MARGIN + _CARD  # there is more room on the left then
        place, anchor = (x - 66, "end") if last else (x + 10, "start")
        what = f"{stream.kind}: {_list(stream.request, 30)}"
        yield _text(place, y - 2, what, stream.kind, anchor)
        yield _text(place, y + 15, how, "soft", anchor)
        return
    sign = 1 if ends[1] > ends[0] else -1
    room = abs(ends[1] - ends[0]) // 7 - 4
    middle = sum(ends) // 2
    asked = _list(stream.request, room - len(stream.kind))
    yield f'<path class="{stream.kind}" d="M{ends[0]} {y} H{ends[1] - 6 * sign}"/>'
    yield _tip(ends[1], y, sign, 0, stream.kind)
    yield _text(middle, y - 8, f"{stream.kind}: {asked}", stream.kind, "middle")
    if stream.reply:
        yield f'<path class="{stream.kind}" d="M{ends[1]} {y + 7} H{ends[0] + 6 * sign}"/>'
        yield _tip(ends[0], y + 7, -sign, 0, stream.kind)
        yield _text(middle, y + 23, f"back: {_list(stream.reply, room)}", stream.kind, "middle")
    yield _text(middle, y + (38 if stream.reply else 17), how, "soft", "middle")


def _list(fields: tuple, room: int) -> str:
    """Names of fields, as many as there is room for."""
    there = names(fields)
    kept = list(there)
    if len(", ".join(there)) > room:
        while len(kept) > 1 and len(", ".join(kept)) > room - len(" and 9 more"):
            kept.pop()
    more = len(there) - len(kept)
    return ", ".join(kept) + (f" and {more} more" if more else "")


def _tip(x: int, y: int, dx: int, dy: int, kind: str = "") -> str:
    """An arrow's tip at (x, y) that points along (dx, dy)."""
    back_x, back_y = x - 8 * dx, y - 8 * dy
    side_x, side_y = 4 * dy, 4 * dx
    points = f"{x},{y} {back_x + side_x},{back_y + side_y} {back_x - side_x},{back_y - side_y}"
    return f'<polygon class="tip {kind}" points="{points}"/>'


def _text(x: int, y: int, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'
