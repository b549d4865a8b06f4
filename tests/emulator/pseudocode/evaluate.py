"""Carries out parsed pseudocode for one lane (or one wave, where the text loops over lanes itself)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .functions import FUNCTIONS, conversion, limits
from .number import FORMATS, Exact, Float, convert, negate
from .operators import Special, arithmetic, compare, literal, sized_literal
from .parser import Node, Parser, Unreadable
from .values import KIND, Cell, Int, Memory, Reference, Value, number, raw, size_of, stored, view

Arguments = dict[str, Any]


class Break(Exception):
    """Leaves a loop."""


class Return(Exception):
    """Carries a lambda's value."""


def saturated(value: Value, kind: str | None) -> Value:
    """An integer limited to the range of its kind."""
    if kind is None or kind in FORMATS or kind[0] not in "ui" or not isinstance(value, Int):
        return value
    low, high = limits(kind)
    return Int(max(low, min(high, value.value)), value.width)


def is_plain_list(found: Any) -> bool:
    """Whether this is a list of values, not of storage."""
    return isinstance(found, list) and type(found) is list and bool(found) and not isinstance(found[0], Cell)


def is_signed_zero(node: Node) -> bool:
    """Whether this is +0.0 or -0.0 written with its sign, which asks for that zero and not for the other one."""
    return node[0] == "unary" and node[2] == ("number", "0.0")


class Evaluator:
    """Runs one program; `lookup` gives the text of an instruction that it calls by name."""

    def __init__(self, names: Arguments, lookup: Callable[[str], str | None], saturates: bool = False) -> None:
        """`names`: what the text may name. `saturates`: integers are limited to their type instead of wrapping."""
        self.names = names
        self.lookup = lookup
        self.saturates = saturates
        self.mode = "even"

    def run(self, body: list[Node]) -> None:
        """All statements in order."""
        for statement in body:
            getattr(self, f"do_{statement[0]}")(*statement[1:])

    def do_declare(self, name: str, kind: str, count: int | None) -> None:
        """A fresh variable, unless it stands for something that the caller gave."""
        if name not in self.names:
            width = int(kind.split("'")[0])
            self.names[name] = Cell(0, width) if count is None else [Cell(0, width) for _ in range(count)]

    def do_assign(self, target: Node, value: Node) -> None:
        """An assignment, or several of one value."""
        if value[0] == "also":
            self.do_assign(value[1], value[2])
            self.write(target, self.value(value[1]))
            return
        if target == ("name", "ROUND_MODE"):
            self.mode = "zero" if value == ("name", "ROUND_TOWARD_ZERO") else "even"
            return
        if value != ("name", "ROUND_MODE"):
            self.write(target, self.value(value))

    def do_call(self, expression: Node) -> None:
        """An expression for its effect."""
        self.value(expression)

    def do_if(self, branches: list[tuple[Node, list[Node]]], otherwise: list[Node]) -> None:
        """The first branch that holds."""
        for condition, body in branches:
            if number(self.value(condition)):
                return self.run(body)
        return self.run(otherwise)

    def do_for(self, name: str, first: Node, last: Node, body: list[Node]) -> None:
        """A loop, its last value included."""
        try:
            for at in range(number(self.value(first)), number(self.value(last)) + 1):
                self.names[name] = Int(at)
                self.run(body)
        except Break:
            pass

    def do_break(self) -> None:
        """Leaves the loop."""
        raise Break

    def do_return(self, value: Node) -> None:
        """Ends a lambda."""
        raise Return(self.value(value))

    def do_lambda(self, name: str, parameters: list[str], body: list[Node]) -> None:
        """Defines a function of this text."""

        def call(*arguments: Value) -> Value:
            inner = Evaluator({**self.names, **dict(zip(parameters, arguments, strict=True))}, self.lookup)
            inner.names.pop("in", None)
            try:
                inner.run(body)
            except Return as result:
                return result.args[0]
            raise Unreadable(f"`{name}` returns nothing")

        self.names[name] = call

    def place(self, node: Node) -> tuple[Any, int, int | None, str | None]:
        """(cell or memory reference, lowest bit, bits, kind) of what can be assigned."""
        if node[0] == "name":
            found = self.names.get(node[1])
            if not isinstance(found, (Cell, list, Memory)):
                found = self.names[node[1]] = Cell(raw(found).value, raw(found).width) if found else Cell(0, 1)
            return found, 0, None, None
        cell, low, _, kind = self.place(node[1])
        if node[0] == "field":
            return cell, low, size_of(node[2]), node[2]
        first = number(self.value(node[2]))
        if node[0] == "index":
            if isinstance(cell, Memory):
                return Reference(cell, first), 0, None, None
            return (cell[first], 0, None, None) if isinstance(cell, list) else (cell, low + first, 1, None)
        second = number(self.value(node[3]))
        if node[0] == "part":
            return cell, low + first, second, None
        if first < second:
            raise Unreadable("a reversed slice is assigned")
        return cell, low + second, first - second + 1, None

    def write(self, target: Node, value: Value) -> None:
        """Assigns a value to what `target` names."""
        if isinstance(value, Reference):
            # What memory holds now, whatever is written there before the variable is used.
            value = raw(value)
        if target[0] == "name" and not isinstance(self.names.get(target[1]), (Cell, list)):
            self.names[target[1]] = value
            return
        if target[0] == "index" and target[1][0] == "name" and is_plain_list(self.names.get(target[1][1])):
            self.names[target[1][1]][number(self.value(target[2]))] = value
            return
        if target[0] == "join":
            return self.write_parts(target[1], raw(value))
        if target[0] == "slice" and number(self.value(target[2])) < number(self.value(target[3])):
            raise Unreadable("a reversed slice is assigned")
        if target[0] == "field" and target[1][0] == "name" and not KIND.fullmatch(target[2]):
            self.names[f"{target[1][1]}.{target[2]}"] = value
            return
        cell, low, width, kind = self.place(target)
        width = width if width is not None else raw(value).width
        bits, loose = stored(saturated(value, kind) if self.saturates else value, kind, width)
        if isinstance(cell, Reference):
            cell.memory.write(cell.address, (width + 7) // 8, bits, loose)
        else:
            cell.write(low, width, bits, loose)

    def write_parts(self, parts: list[Node], value: Int) -> None:
        """Assigns bits to several targets, the highest first; the first one takes what the others leave."""
        low = 0
        for part in reversed(parts):
            width = size_of(part[2]) if part[0] == "field" else 1
            self.write(part, Int(value.value >> low & ((1 << width) - 1), width, True))
            low += width

    def value(self, node: Node) -> Any:
        """What an expression stands for."""
        return getattr(self, f"of_{node[0]}")(*node[1:])

    def of_name(self, name: str) -> Any:
        """A variable or constant."""
        if name in ("INF", "NAN", "DENORM"):
            return Special(name)
        if name not in self.names:
            raise Unreadable(f"`{name}` is unknown")
        found = self.names[name]
        return found.read() if isinstance(found, Cell) else found

    def of_number(self, text: str) -> Value:
        """A number."""
        return literal(text)

    def of_sized(self, text: str) -> Value:
        """A number with a width."""
        return sized_literal(text)

    def of_join(self, parts: list[Node]) -> Int:
        """Bits side by side, the highest first."""
        bits, width, loose = 0, 0, 0
        for part in parts:
            value = raw(self.value(part))
            mask = (1 << value.width) - 1
            bits, loose = bits << value.width | value.value & mask, loose << value.width | value.loose & mask
            width += value.width
        return Int(bits, width, True, loose)

    def of_choose(self, condition: Node, yes: Node, no: Node) -> Value:
        """One of two values."""
        return self.value(yes if number(self.value(condition)) else no)

    def of_unary(self, operator: str, operand: Node) -> Any:
        """A sign or complement."""
        value = self.value(operand)
        if isinstance(value, Special):
            return Special(value.name, value.sign ^ (operator == "-"))
        if operator == "!":
            return Int(int(not number(value)), 1)
        if operator == "~":
            return Int(~number(value), raw(value).width, raw(value).is_raw)
        if operator == "-":
            return negate(value) if isinstance(value, Float) else Int(-number(value), raw(value).width)
        return value

    def of_binary(self, operator: str, left: Node, right: Node) -> Value:
        """An operation, a comparison or a connective."""
        a = self.value(left)
        if operator in ("&&", "||"):
            decided = bool(number(a)) == (operator == "||")
            return Int(int(bool(number(a)) if decided else bool(number(self.value(right)))), 1)
        b = self.value(right)
        if operator == "==" and is_signed_zero(right) and isinstance(a, Float) and isinstance(b, Float):
            return Int(int(a.magnitude == 0 and a.sign == b.sign), 1)
        if operator in ("==", "!=", "<>", "<", ">", "<=", ">="):
            return Int(int(compare(operator, a, b)), 1)
        return arithmetic(operator, a, b)

    def of_field(self, node: Node, kind: str) -> Value:
        """A value as a number of a kind, or a named part of a structure."""
        if node[0] == "name" and f"{node[1]}.{kind}" in self.names:
            return self.names[f"{node[1]}.{kind}"]
        value = self.value(node)
        if isinstance(value, Special):
            return value.as_float(FORMATS[kind]) if value.name != "DENORM" else value
        return view(value, kind)

    def of_index(self, node: Node, index: Node) -> Value:
        """A bit, an element, a register or a memory address."""
        value, at = self.value(node), number(self.value(index))
        if isinstance(value, Memory):
            return Reference(value, at)
        if isinstance(value, list):
            found = value[at]
            return found.read() if isinstance(found, Cell) else found
        return Int(raw(value).value >> at & 1, 1)

    def of_slice(self, node: Node, first: Node, last: Node) -> Int:
        """Bits first down to last; reversed if first is the lower one."""
        value, high, low = raw(self.value(node)), number(self.value(first)), number(self.value(last))
        if high < low:
            bits = [value.value >> at & 1 for at in range(high, low + 1)]
            return Int(sum(bit << at for at, bit in enumerate(reversed(bits))), len(bits), True)
        width = high - low + 1
        mask = (1 << width) - 1
        return Int(value.value >> low & mask, width, True, value.loose >> low & mask)

    def of_part(self, node: Node, first: Node, width: Node) -> Int:
        """So many bits from the first on."""
        bits = number(self.value(width))
        return Int(raw(self.value(node)).value >> number(self.value(first)) & ((1 << bits) - 1), bits, True)

    def of_apply(self, function: Node, arguments: list[Node]) -> Any:
        """A function, a cast, or another instruction."""
        values = [self.value(argument) for argument in arguments]
        if function[0] == "type":
            return self.cast(function[1], values[0])
        name = function[1]
        if callable(self.names.get(name)):
            return self.names[name](*values)
        if name in FUNCTIONS:
            return FUNCTIONS[name](*values)
        found = conversion(name, self.mode)
        if found is not None:
            return found(*values)
        return self.instruction(name, values)

    def cast(self, kind: str, value: Value) -> Value:
        """`32'F(x)` and the like: numbers are converted, bits are taken as they are."""
        width, letter = kind.split("'")
        target = {"U": "u", "I": "i", "B": "b", "F": "f", "BF": "bf"}[letter] + width
        if target in FORMATS and isinstance(value, Exact):
            return value
        if target in FORMATS and isinstance(value, Int) and not value.is_raw:
            return convert(Exact(value.value, 0), FORMATS[target])
        if isinstance(value, Float) and target not in FORMATS and letter != "B":
            raise Unreadable(f"{kind} of a float")
        return view(value, target)

    def instruction(self, name: str, values: list[Value]) -> Value:
        """Another instruction as a function."""
        text = self.lookup(name.upper())
        if text is None:
            raise Unreadable(f"`{name}` is unknown")
        names = {**self.names, "D0": Cell(0, 64), **{f"S{at}": value for at, value in enumerate(values)}}
        names.pop("tmp", None)
        Evaluator(names, self.lookup).run(Parser(text).program())
        kind = next(part for part in reversed(name.split("_")) if part[1:].isdigit())
        return view(names["D0"], "u32" if kind in ("u8", "b32") else "i32" if kind == "b64" else kind)
