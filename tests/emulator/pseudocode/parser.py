"""Parses AMD's pseudocode into nested tuples."""

from __future__ import annotations

import re
from typing import Any

TOKEN = re.compile(
    r"""\s*(?:
      (?P<type>\d+'(?:BF|[UIFB])(?![\w.]))
    | (?P<sized>\d+'(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)[UIB]?)
    | (?P<number>0x[0-9a-fA-F]+(?:ULL|LL|U)?|\d+\.\d+F?|\d+(?:ULL|LL|U)?)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<op>\+:|\*\*|<<|>>|<>|<=|>=|==|!=|&&|\|\||\+=|-=|[-+*/%&|^~!<>=?:;,.(){}\[\]])
    )""",
    re.VERBOSE,
)
LEVELS = [
    ["||"],
    ["&&"],
    ["|"],
    ["^"],
    ["&"],
    ["==", "!=", "<>"],
    ["<", ">", "<=", ">="],
    ["<<", ">>"],
    ["+", "-"],
    ["*", "/", "%"],
]
ENDS = {"endif", "endfor", "elsif", "else", ")"}
Node = tuple[Any, ...]


class Unreadable(Exception):
    """Text that is prose, or a construct that this reader does not know."""


def tokens(text: str) -> list[tuple[str, str]]:
    """(kind, text) of each token; comments are left out."""
    text = "\n".join(line.split("//")[0] for line in text.splitlines()).strip()
    found, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise Unreadable(f"no token at `{text[at : at + 20]}`")
        found.append((match.lastgroup or "", match[match.lastgroup or ""]))
        at = match.end()
    return found


class Parser:
    """Recursive descent over one instruction's text."""

    def __init__(self, text: str) -> None:
        """`text`: what the manual prints below one instruction."""
        self.tokens = tokens(text)
        self.at = 0

    def peek(self, ahead: int = 0) -> str:
        """The text of a token to come, or nothing."""
        return self.tokens[self.at + ahead][1] if self.at + ahead < len(self.tokens) else ""

    def take(self, wanted: str | None = None) -> str:
        """The next token's text."""
        text = self.peek()
        if not text or (wanted is not None and text != wanted):
            raise Unreadable(f"`{text}` where `{wanted}` should be")
        self.at += 1
        return text

    def skip(self, text: str) -> bool:
        """Takes the token if it is the next one."""
        if self.peek() == text:
            self.at += 1
            return True
        return False

    def program(self) -> list[Node]:
        """All statements."""
        body = self.statements()
        if self.at != len(self.tokens):
            raise Unreadable(f"`{self.peek()}` follows the end")
        return body

    def statements(self) -> list[Node]:
        """Statements up to the end of their block."""
        body = []
        while self.at < len(self.tokens) and self.peek() not in ENDS:
            if not self.skip(";"):
                body.append(self.statement())
        return body

    def statement(self) -> Node:
        """One statement."""
        word = self.peek()
        if word in ("declare", "if", "for", "return", "break"):
            self.take()
            return getattr(self, f"{word}_")()
        if self.peek(1) == "=" and self.peek(2) == "lambda":
            return self.lambda_()
        target = self.expression()
        operator = self.peek()
        if operator not in ("=", "+=", "-="):
            return ("call", target)
        self.take()
        value = self.assigned()
        return ("assign", target, value if operator == "=" else ("binary", operator[0], target, value))

    def assigned(self) -> Node:
        """The right side of an assignment, which may assign again."""
        value = self.expression()
        return ("also", value, self.assigned()) if self.skip("=") else value

    def declare_(self) -> Node:
        """`declare name : type[count]`."""
        name = self.take()
        self.take(":")
        kind = self.take()
        count = None
        if self.skip("["):
            count = int(self.take())
            self.take("]")
        return ("declare", name, kind, count)

    def if_(self) -> Node:
        """All branches of a condition."""
        branches = []
        while True:
            condition = self.expression()
            self.take("then")
            branches.append((condition, self.statements()))
            if not self.skip("elsif"):
                break
        otherwise = self.statements() if self.skip("else") else []
        self.take("endif")
        return ("if", branches, otherwise)

    def for_(self) -> Node:
        """A counted loop, its last value included."""
        name = self.take()
        self.take("in")
        first = self.expression()
        self.take(":")
        last = self.expression()
        self.take("do")
        body = self.statements()
        self.take("endfor")
        return ("for", name, first, last, body)

    def return_(self) -> Node:
        """The value of a lambda."""
        return ("return", self.expression())

    def break_(self) -> Node:
        """Leaves the loop."""
        return ("break",)

    def lambda_(self) -> Node:
        """A named function of this instruction."""
        name = self.take()
        self.take("=")
        self.take("lambda")
        self.take("(")
        parameters = []
        while not self.skip(")"):
            parameters.append(self.take())
            self.skip(",")
        self.take("(")
        start = self.at
        body = self.statements()
        if len(body) == 1 and body[0][0] == "call":
            self.at = start
            body = [("return", self.expression())]
        self.take(")")
        return ("lambda", name, parameters, body)

    def expression(self) -> Node:
        """An expression with its conditional."""
        condition = self.binary(0)
        if not self.skip("?"):
            return condition
        yes = self.expression()
        self.take(":")
        return ("choose", condition, yes, self.expression())

    def binary(self, level: int) -> Node:
        """Left-associative operators, loosest first."""
        if level == len(LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in LEVELS[level]:
            operator = self.take()
            left = ("binary", operator, left, self.binary(level + 1))
        return left

    def unary(self) -> Node:
        """Signs, complements and powers."""
        if self.peek() in ("-", "+", "~", "!"):
            return ("unary", self.take(), self.unary())
        base = self.postfix()
        return ("binary", "**", base, self.unary()) if self.skip("**") else base

    def postfix(self) -> Node:
        """An operand with its fields, bits and arguments."""
        node = self.primary()
        while True:
            if self.skip("."):
                node = ("field", node, self.take())
            elif self.skip("["):
                first = self.expression()
                if self.skip(":"):
                    node = ("slice", node, first, self.expression())
                elif self.skip("+:"):
                    node = ("part", node, first, self.expression())
                else:
                    node = ("index", node, first)
                self.take("]")
            elif node[0] in ("name", "type") and self.peek() == "(":
                node = ("apply", node, self.arguments("(", ")"))
            else:
                return node

    def arguments(self, opening: str, closing: str) -> list[Node]:
        """Expressions between brackets."""
        self.take(opening)
        values = []
        while not self.skip(closing):
            values.append(self.expression())
            self.skip(",")
        return values

    def primary(self) -> Node:
        """A number, a name, a concatenation or brackets."""
        if self.peek() == "{":
            return ("join", self.arguments("{", "}"))
        if self.skip("("):
            inner = self.expression()
            self.take(")")
            return inner
        kind = self.tokens[self.at][0] if self.at < len(self.tokens) else ""
        if kind not in ("type", "sized", "number", "name"):
            raise Unreadable(f"`{self.peek()}` is no operand")
        return (kind, self.take())
