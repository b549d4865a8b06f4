"""A picture of `kernels count`: a row per stage, a column per workgroup, and what each workgroup loads in all."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

NAMESPACE = "http://www.w3.org/2000/svg"
LEFT, RIGHT, TOP, ROW, GAP, BARS = 130, 190, 46, 18, 2, 120
WIDTH = 1024
"""Pixels of all workgroups."""


def draw(report: dict[str, Any]) -> str:
    """The SVG document; darker is more bytes of weights, on one scale for all stages."""
    counted = report["counted"]
    stages = [stage for stage in counted["stages"] if stage["weights"]["max"] > 0]
    grid, height = len(counted["cta_bytes"]), TOP + len(stages) * (ROW + GAP) + BARS + 40
    cell = WIDTH / grid
    root = ElementTree.Element("svg", xmlns=NAMESPACE, width=f"{LEFT + WIDTH + RIGHT}", height=f"{height}")
    root.set("font-family", "sans-serif")
    root.set("font-size", "11")
    _rect(root, 0, 0, LEFT + WIDTH + RIGHT, height, "#ffffff")
    first, last = report["layers"]
    what = f"{report['geometry']} on {report['ranks']} ranks, layers {first}-{last}, {report['rows']} rows"
    _text(root, LEFT, 18, f"{what}: weights that each of {grid} workgroups loads", size=14)
    _text(root, LEFT, 36, "a column is a workgroup; darker is more bytes; right: max / mean")
    most = max(stage["weights"]["max"] for stage in stages)
    for index, stage in enumerate(stages):
        y = TOP + index * (ROW + GAP)
        _text(root, LEFT - 8, y + ROW - 5, stage["stage"], anchor="end")
        for cta, nbytes in enumerate(stage["cta_bytes"]):
            where = _rect(root, LEFT + cta * cell, y, cell, ROW, _shade(nbytes / most))
            instructions = stage["cta_instructions"][cta]
            _title(where, f"{stage['stage']}, CTA {cta}: {nbytes:,} bytes, {instructions:,} wave instructions")
        weights = stage["weights"]
        _text(root, LEFT + WIDTH + 8, y + ROW - 5, f"{weights['max'] / 1024:,.0f} KiB, {weights['ratio']:.2f}")
    _totals(root, report, cell, TOP + len(stages) * (ROW + GAP) + 12)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _totals(root: ElementTree.Element, report: dict[str, Any], cell: float, y: float) -> None:
    """A bar per workgroup, the mean and the bar that the largest may reach."""
    counted = report["counted"]
    layer, bar = counted["counted_layer"], report["bars"]["layer"]
    scale = BARS / max(layer["max"], bar * layer["mean"])
    _text(root, LEFT - 8, y + BARS - 5, "all stages", anchor="end")
    for cta, nbytes in enumerate(counted["cta_bytes"]):
        tall = nbytes * scale
        where = _rect(root, LEFT + cta * cell, y + BARS - tall, cell, tall, "#4878a8")
        _title(where, f"CTA {cta}: {nbytes:,} bytes in all")
    lines = ((layer["mean"], "mean", "#303030"), (bar * layer["mean"], f"{bar:.2f} x mean", "#c03030"))
    for value, name, colour in lines:
        at = f"{y + BARS - value * scale:.1f}"
        ElementTree.SubElement(root, "line", x1=f"{LEFT}", x2=f"{LEFT + WIDTH}", y1=at, y2=at, stroke=colour)
        _text(root, LEFT + WIDTH + 8, float(at) + (12 if name == "mean" else 0), name)
    _text(root, LEFT + WIDTH + 8, y + BARS - 5, f"max / mean {layer['ratio']:.3f}")


def _shade(share: float) -> str:
    """White for nothing, dark blue for the most."""
    parts = (round(255 - share * (255 - dark)) for dark in (8, 48, 107))
    return "#" + "".join(f"{part:02x}" for part in parts)


def _rect(root: ElementTree.Element, x: float, y: float, width: float, height: float,
          fill: str) -> ElementTree.Element:
    return ElementTree.SubElement(root, "rect", x=f"{x:.2f}", y=f"{y:.2f}", width=f"{width:.2f}",
                                  height=f"{height:.2f}", fill=fill)


def _text(root: ElementTree.Element, x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> None:
    element = ElementTree.SubElement(root, "text", x=f"{x:.1f}", y=f"{y:.1f}")
    element.set("text-anchor", anchor)
    element.set("font-size", str(size))
    element.text = text


def _title(element: ElementTree.Element, text: str) -> None:
    ElementTree.SubElement(element, "title").text = text
