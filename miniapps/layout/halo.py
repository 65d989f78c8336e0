"""Halo exchange between logical blocks, of one rank or of several.

`plan` determines once the strips that a rank copies between its own blocks, the strips that it packs for each
neighbour, and the places of the strips that it receives. An exchange is then one message per neighbouring rank and
direction (`miniapps.layout.messages`), overlapped with the copies between own blocks. Fields on a GPU are packed and
unpacked there; only messages pass through (pinned) host memory. The exchange copies bits and adds nothing, so it cannot
affect reproducibility.
"""

import numpy as np

from kernels.stencil import backend
from miniapps.layout.blocks import Blocks, BlocksError
from miniapps.layout.messages import Messages

Transfer = tuple[int, tuple[int, int], int]  # target block, direction, source block

FACES = ((0, -1), (0, 1), (-1, 0), (1, 0))
CORNERS = ((-1, -1), (-1, 1), (1, -1), (1, 1))


def plan(blocks: Blocks, comm, pad: int, width: int, corners: bool = True, kernels=None) -> "Halo":
    """Plan the exchange of `width` points around each block of fields with `pad` halo points.

    `corners` = False leaves out the diagonal neighbours (enough for a five-point stencil, fewer messages).
    `kernels` is the stencil backend that copies (default: native). Collective over `comm`.

    Raises BlocksError if a block or `pad` is narrower than `width`.
    """
    if width > pad:
        raise BlocksError(f"a halo of {width} points does not fit into a field padded by {pad}")
    if width > min(blocks.by, blocks.bx):
        raise BlocksError(
            f"blocks of {blocks.by} x {blocks.bx} points are narrower than the halo of {width} points "
            f"that the stencils need; choose grid.by and grid.bx of at least {width}"
        )
    return Halo(blocks, comm, pad, width, FACES + CORNERS if corners else FACES, kernels or backend("native"))


class Halo:
    """A planned exchange. Call it with a field `(own blocks, by + 2 pad, bx + 2 pad)`; call `free()` at the end."""

    def __init__(self, blocks, comm, pad, width, directions, kernels):
        self._kernels = kernels
        self._shape = (len(blocks.own), blocks.by + 2 * pad, blocks.bx + 2 * pad)
        local, sends, receives = transfers_of(blocks, directions)
        strips = Strips(blocks, pad, width)
        xp = kernels.xp
        self._local = xp.asarray(_runs(local, strips, source=strips.edge, target=strips.ghost))
        self._pack = xp.asarray(_runs(_in_order(sends), strips, source=strips.edge))
        self._unpack = xp.asarray(_runs(_in_order(receives), strips, target=strips.ghost))
        send_parts, receive_parts = _message_parts(sends, strips), _message_parts(receives, strips)
        self.neighbours = self.senders = sorted(send_parts)  # ranks
        self._blocks, self._strips, self._receives, self._directions = blocks, strips, receives, directions
        self.messages = Messages(comm, send_parts, receive_parts, xp=xp)
        self.nbytes = self.messages.nbytes  # sent in one exchange
        width = np.dtype(np.float64).itemsize
        # For the trace (`miniapps.trace.head.Between`): the bytes between blocks, of one rank or of several.
        self.between = {
            "rows": blocks.rows,
            "columns": blocks.columns,
            "bytes": [
                [*direction, width * int(np.prod(strips.extent(direction)))] for direction in directions
            ],
        }

    def __call__(self, field) -> None:
        """Fill the halo of `field` in place. Raises ValueError if its shape differs from the plan."""
        if field.shape != self._shape:
            raise ValueError(f"halo planned for fields of shape {self._shape}, called with {field.shape}")
        copy_runs = self._kernels.copy_runs
        messages = self.messages
        if not messages.requests:
            copy_runs(field, field, self._local)
            return
        copy_runs(field, messages.outgoing, self._pack)
        messages.start()
        copy_runs(field, field, self._local)
        messages.finish()
        copy_runs(messages.incoming, field, self._unpack)

    def sent(self, field):
        """The interior of each own block, which `miniapps.runner.watch` records before an exchange."""
        rows, columns = field.shape[1:]
        pad = self._strips.pad
        return field[:, pad : rows - pad, pad : columns - pad]

    def received(self, field):
        """(own blocks, n): the points that an exchange fills around each own block, row by row."""
        around = np.zeros(self._shape[1:], bool)
        for direction in self._directions:
            (row, column), (rows, columns) = self._strips.place(direction), self._strips.extent(direction)
            around[row : row + rows, column : column + columns] = True
        return field[:, self._kernels.xp.asarray(around)]

    def restore(self, field, before, sender: int) -> None:
        """Undo the message from rank `sender`: restore in `field` the points that it held in `before`."""
        into = _runs(self._receives[sender], self._strips, target=self._strips.ghost)
        same_place = np.ascontiguousarray(into[:, [1, 1, 2, 4, 4]])
        self._kernels.copy_runs(before, field, self._kernels.xp.asarray(same_place))

    def free(self) -> None:
        """Release requests and communicator. Collective."""
        self.messages.free()


def transfers_of(blocks: Blocks, directions):
    """(local, sends by rank, receives by rank); a transfer is (target block, direction, source block).

    Both ends list the transfers of a message by (target block, direction), so they need not negotiate.
    """
    local: list[Transfer] = []
    sends: dict[int, list[Transfer]] = {}
    receives: dict[int, list[Transfer]] = {}
    for block in map(int, blocks.own):
        for dj, di in directions:
            other = blocks.neighbour(block, dj, di)
            owner = int(blocks.owner[other])
            if owner == blocks.rank:
                local.append((block, (dj, di), other))
            else:
                receives.setdefault(owner, []).append((block, (dj, di), other))
                sends.setdefault(owner, []).append((other, (-dj, -di), block))
    return local, {r: sorted(t) for r, t in sends.items()}, {r: sorted(t) for r, t in receives.items()}


class Strips:
    """The strips of a block in the field array, as (offset, distance between rows), and their extent."""

    def __init__(self, blocks: Blocks, pad: int, width: int):
        self.blocks, self.pad, self.width = blocks, pad, width
        self.pitch = blocks.bx + 2 * pad

    def ghost(self, block: int, direction):
        """The strip of a block that receives from `direction`."""
        return self._at(block, self.place(direction))

    def place(self, direction):
        """(row, column) in a padded block where the strip that it receives from `direction` begins."""
        return tuple(self._span(*axis)[0] for axis in self._axes(direction))

    def edge(self, block: int, direction):
        """The strip that `block` sends; `block` lies in `direction` of the receiver."""
        return self._at(block, [self._span(*axis)[1] for axis in self._axes(direction)])

    def extent(self, direction):
        """(rows, columns) of the strip."""
        return tuple(self._span(*axis)[2] for axis in self._axes(direction))

    def _axes(self, direction):
        return zip(direction, (self.blocks.by, self.blocks.bx), strict=True)

    def _span(self, step: int, points: int):
        """(start in the receiver, start in the sender, length) along one axis."""
        if step == 0:
            return self.pad, self.pad, points
        if step < 0:
            return self.pad - self.width, self.pad + points - self.width, self.width
        return self.pad + points, self.pad, self.width

    def _at(self, block: int, start):
        row, column = start
        rows = self.blocks.index(block) * (self.blocks.by + 2 * self.pad) + row
        return rows * self.pitch + column, self.pitch


def _message_parts(messages, strips: Strips) -> dict:
    """Each rank's part (start, stop) of a message buffer, ranks in ascending order."""
    parts, at = {}, 0
    for peer, transfers in sorted(messages.items()):
        start = at
        for _, direction, _ in transfers:
            rows, columns = strips.extent(direction)
            at += rows * columns
        parts[peer] = (start, at)
    return parts


def _runs(transfers, strips: Strips, source=None, target=None) -> np.ndarray:
    """Runs for `copy_runs`, `(n, 5)`; if `source` or `target` is None, that end is the message buffer, strip after
    strip."""
    runs, at = [], 0
    for target_block, direction, source_block in transfers:
        rows, columns = strips.extent(direction)
        a, pitch_a = source(source_block, direction) if source else (at, columns)
        b, pitch_b = target(target_block, direction) if target else (at, columns)
        if columns >= rows:
            runs += [(a + k * pitch_a, b + k * pitch_b, columns, 1, 1) for k in range(rows)]
        else:
            runs += [(a + k, b + k, rows, pitch_a, pitch_b) for k in range(columns)]
        at += rows * columns
    return np.array(runs, np.int64).reshape(-1, 5)


def _in_order(messages):
    return [transfer for _, transfers in sorted(messages.items()) for transfer in transfers]
