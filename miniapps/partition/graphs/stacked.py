"""The graph of a model with many equal layers, from the graph with a few.

    graph = repeated(export(model of TEMPLATE layers), "blocks", 96)

The middle layer is repeated: forward after itself, backward before itself. So the export, and the time for it, do not
grow with the layers. Plain data, without torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed

from miniapps.partition.graphs.graph import Graph, Node, Source, Tensor, reading, replace, tensors_in

TEMPLATE = 5  # layers: two at each end, whose neighbours may differ, and the one to repeat
MIDDLE = 2


class NotStacked(ValueError):
    """A graph whose layers differ, or whose layers read others than their neighbours."""


@dataclass(frozen=True)
class Layers:
    """The nodes and sources of a template by layer. `places`: {name of a value: (layer, number in the layer, end of the
    name)}."""

    places: dict[str, tuple[int, int, str]]
    nodes: tuple[tuple[Node, ...], ...]
    sources: tuple[tuple[Source, ...], ...]

    def name(self, name: str, layer: int, count: int) -> str:
        """The name of a layer's value in a model of `count` layers, for `layer` of that model."""
        _, number, end = self.places[name]
        of = layer if layer <= MIDDLE else max(MIDDLE, layer - count + TEMPLATE)
        nodes, sources = self.nodes[of], self.sources[of]
        base = nodes[number].name if number >= 0 else sources[-number - 1].tensor.name
        return f"{base}{'' if of != MIDDLE or layer == MIDDLE else f'~{layer}'}{end}"


def repeated(graph: Graph, stack: str, count: int) -> Graph:
    """The graph with `count` layers, of a `graph` with TEMPLATE layers, the modules `stack`.0, `stack`.1, ... Raises
    NotStacked; ValueError for fewer layers than the template's."""
    if count < TEMPLATE:
        raise ValueError(f"{count} layers, and the template has {TEMPLATE}")
    layers = layers_of(graph, stack)
    more = count - TEMPLATE

    def moved(name: str, mine: int | None, to: int) -> str:
        """The name of an operand of a node of layer `mine`, whose copy is in layer `to`."""
        if name not in layers.places:
            return name
        layer = layers.places[name][0]
        if mine is None:
            if layer == MIDDLE:
                raise NotStacked(f"{name} of layer {layer} is read outside of layers")
            return layers.name(name, layer if layer < MIDDLE else layer + more, count)
        if abs(layer - mine) > 1:
            raise NotStacked(f"layer {mine} reads {name} of layer {layer}")
        return layers.name(name, to + layer - mine, count)

    def copied(node: Node, mine: int | None, to: int) -> Node:
        names = {each: moved(each, mine, to) for each in node.operands()}
        args = replace(node.args, names)
        kwargs = tuple((key, replace(value, names)) for key, value in node.kwargs)
        if mine is None:
            return changed(node, args=args, kwargs=kwargs)
        results = tuple(changed(r, name=layers.name(r.name, to, count)) for r in node.results)
        name = layers.name(node.results[0].name, to, count).removesuffix(
            layers.places[node.results[0].name][2]
        )
        where = re.sub(rf"^{re.escape(stack)}\.\d+", f"{stack}.{to}", node.where)
        return changed(node, name=name, args=args, kwargs=kwargs, results=results, where=where)

    where = {node.name: layer for layer, nodes in enumerate(layers.nodes) for node in nodes}
    loss = next(k for k, node in enumerate(graph.nodes) if graph.loss in (r.name for r in node.results))
    forward = [k for k, node in enumerate(graph.nodes) if where.get(node.name) == MIDDLE and k <= loss]
    backward = [k for k, node in enumerate(graph.nodes) if where.get(node.name) == MIDDLE and k > loss]
    if not (forward and backward):
        raise NotStacked(f"{stack}.{MIDDLE} has no operation forward, or none backward")
    # The place of a copy is as far from its template's as there are nodes of the layers between them.
    placed: list[tuple[int, Node]] = []
    for k, node in enumerate(graph.nodes):
        layer, ahead = where.get(node.name), k <= loss
        period = len(forward if ahead else backward)
        at = k if ahead else k + more * len(forward)
        if layer == MIDDLE:
            for n in range(more + 1):
                to = MIDDLE + (n if ahead else more - n)
                placed.append((at + n * period, copied(node, MIDDLE, to)))
            continue
        if layer is None:
            passed, to = k > (forward if ahead else backward)[0], 0
        else:
            passed, to = (layer > MIDDLE) == ahead, layer + more * (layer > MIDDLE)
        placed.append((at + more * period * passed, copied(node, layer, to)))
    nodes = [node for _, node in sorted(placed, key=lambda each: each[0])]
    keys = dict(layer_keys(graph, stack, layers, count))
    sources = tuple(source for of in graph.sources for source in copies_of(of, stack, layers, count))
    gradients: list[tuple[str, str]] = []
    for key, name in graph.gradients:
        gradients += keys[key] if key in keys else [(key, moved(name, None, 0))]
    if graph.updates:
        raise NotStacked("buffers change in the step")
    require_order(nodes, sources)
    return Graph(sources, tuple(nodes), graph.loss, tuple(gradients))


def layers_of(graph: Graph, stack: str) -> Layers:
    """The layers of a template. Raises NotStacked if it has other layers, or if the three in the middle differ."""
    by: list[list[Node]] = [[] for _ in range(TEMPLATE)]
    held: list[list[Source]] = [[] for _ in range(TEMPLATE)]
    places: dict[str, tuple[int, int, str]] = {}
    for source in graph.sources:
        layer = number_of(source.key, stack)
        if layer is not None:
            held[layer].append(source)
            places[source.tensor.name] = layer, -len(held[layer]), ""
    for node in graph.nodes:
        layer = number_of(node.where, stack)
        if layer is not None:
            for result in node.results:
                places[result.name] = layer, len(by[layer]), result.name.removeprefix(node.name)
            by[layer].append(node)
    forms = [[form(node) for node in nodes] for nodes in by]
    if not all(by) or not forms[1] == forms[2] == forms[3]:
        raise NotStacked(f"the layers {stack}.1 to {stack}.3 differ, or there are not {TEMPLATE} of them")
    return Layers(places, tuple(map(tuple, by)), tuple(map(tuple, held)))


def number_of(where: str, stack: str) -> int | None:
    """The layer of a module or parameter; None outside of the stack. Raises NotStacked for a layer too many."""
    found = re.match(rf"{re.escape(stack)}\.(\d+)(\.|$)", where)
    if found is None:
        return None
    if int(found[1]) >= TEMPLATE:
        raise NotStacked(f"{where}: the template has {TEMPLATE} layers")
    return int(found[1])


def form(node: Node) -> tuple:
    """A node without names."""
    blank = ["" for _ in tensors_in((node.args, node.kwargs))]
    results = tuple((r.shape, r.dtype) for r in node.results)
    return node.target, reading(node.args, iter(blank)), tuple(key for key, _ in node.kwargs), results


def copies_of(source: Source, stack: str, layers: Layers, count: int) -> Iterator[Source]:
    """A source, or the sources of all layers that it stands for, once per layer of the model."""
    layer = number_of(source.key, stack)
    if layer is None:
        yield source
        return
    more = count - TEMPLATE
    targets = (
        range(MIDDLE, MIDDLE + more + 1) if layer == MIDDLE else (layer if layer < MIDDLE else layer + more,)
    )
    for to in targets:
        name = layers.name(source.tensor.name, to, count)
        yield changed(
            source,
            tensor=Tensor(name, source.tensor.shape, source.tensor.dtype),
            key=key_in(source.key, stack, to),
        )


def layer_keys(
    graph: Graph, stack: str, layers: Layers, count: int
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """(key of a layer's parameter, the pairs (key, gradient) that it stands for)."""
    more = count - TEMPLATE
    for key, name in graph.gradients:
        layer = number_of(key, stack)
        if layer is None:
            continue
        if name not in layers.places:
            if layer == MIDDLE:
                raise NotStacked(f"the gradient of {key} is computed outside of the layers")
            yield key, [(key_in(key, stack, layer if layer < MIDDLE else layer + more), name)]
            continue
        apart = layers.places[name][0] - layer  # a node with two neighbours may count to either
        targets = (
            range(MIDDLE, MIDDLE + more + 1)
            if layer == MIDDLE
            else [layer if layer < MIDDLE else layer + more]
        )
        yield key, [(key_in(key, stack, to), layers.name(name, to + apart, count)) for to in targets]


def key_in(key: str, stack: str, layer: int) -> str:
    """The key of a parameter in another layer."""
    return re.sub(rf"^{re.escape(stack)}\.\d+", f"{stack}.{layer}", key)


def require_order(nodes: Sequence[Node], sources: Sequence[Source]) -> None:
    """Raise NotStacked if a node reads a value that no node before it computes."""
    there = {source.tensor.name for source in sources}
    for node in nodes:
        if missing := [name for name in node.operands() if name not in there]:
            raise NotStacked(f"{node.name} reads {missing[0]}, which no layer before it computes")
        there.update(result.name for result in node.results)
