"""A plan drawn in the terminal."""

from __future__ import annotations

from rich.columns import Columns
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from srl.extras.plan.scene import Scene, names, places

_COLOURS = {
    "inference": "dark_orange",
    "sample": "blue",
    "parameters": "green",
    "gradients": "magenta",
}


def draw(scene: Scene, console: Console) -> None:
    """Prints fragments with their nodes, and the streams between them."""
    where = "all in one process" if scene.plan.one_process else "each replica a process"
    title = Text.assemble((scene.title, "bold"), " under the plan ", (scene.plan.name, "bold"))
    console.print(title.append(f", {where}"))
    console.print("; ".join(scene.headline), style="dim", highlight=False)
    fragments = [_fragment(scene, name) for name in scene.plan.fragments]
    console.print(Columns(fragments, padding=(0, 2)))
    if scene.beside:
        console.print(Columns(_beside(scene), padding=(0, 2)))
    if cores := scene.cores_on_a_cluster:
        each = ", ".join(f"{name} {count:g}" for name, count in cores.items())
        note = f"cores of each worker on a cluster: {each}; fewer unless named, on small nodes"
        console.print(note, style="dim", highlight=False)
    if scene.warning:
        console.print(scene.warning, style="yellow", highlight=False)
    if not scene.streams:
        console.print("nothing crosses: every edge is a function call")
        return
    console.print(_streams(scene))
    note = f"per second at {scene.fps:,.0f} env steps/s; --fps N assumes another number"
    console.print(note, style="dim", highlight=False)


def _fragment(scene: Scene, name: str) -> Panel:
    fragment = scene.plan.fragments[name]
    title = f"{name} x {fragment.replicas}" if fragment.replicas > 1 else name
    lines = [Text(" ".join(scene.nodes(fragment)), "bold"), Text(scene.resources(fragment), "dim")]
    if holdings := scene.holdings(fragment):
        lines.append(Text(holdings, "dim"))
    for edge in scene.inside(name):
        lines.append(Text(f"{edge.source} -> {edge.target}: {edge.name}"))
    return Panel(Group(*lines), title=title, expand=False)


def _beside(scene: Scene) -> list[Panel]:
    return [
        Panel(
            Group(Text(process.task, "bold"), *(Text(place, "dim") for place in places(process))),
            title=f"{name}, in the background",
            expand=False,
        )
        for name, process in scene.beside.items()
    ]


def _streams(scene: Scene) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    # What is short stands in two lines, so that narrow terminals have room for what is carried.
    for heading in ("stream", "from -> to\nby", "carries", "per env step\nper second"):
        table.add_column(heading, header_style="dim", overflow="fold")
    for stream in scene.streams:
        carried = ", ".join(names(stream.request))
        if stream.reply:
            carried += f"\nback: {', '.join(names(stream.reply))}"
        same = stream.source == stream.target
        ends = f"among {stream.source}" if same else f"{stream.source} -> {stream.target}"
        kind = Text(stream.kind, _COLOURS[stream.kind])
        rates = "\n".join(scene.rates(stream))
        table.add_row(kind, f"{ends}\n{stream.transport}", carried, rates)
    return table
