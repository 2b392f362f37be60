"""A hash of the code that computes a run. It names the run, together with the run's settings.

The functions and classes that make a run are the roots. Their top-level definitions count, and so does every
definition of this package that these use, in the same module or imported. Names of other libraries count as
words. Sources are read as syntax trees, and every supported Python gives the same hash. What computes
nothing, such as docstrings, help texts and texts of errors, is left out; docs/decisions/0002-code-version.md
has the rules.
"""

import ast
import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache, cached_property, partial
from importlib.util import find_spec, resolve_name
from inspect import unwrap
from pathlib import Path
from types import MethodType
from typing import Any, cast

PACKAGE = "descentlab"
# Fields of a syntax tree that compute nothing; the types of a class's fields do (`Statement._class`).
SILENT = ("ctx", "kind", "type_comment", "annotation", "returns", "cause", "msg")
Chain = tuple[str, ...]  # a name and the attributes that are taken of it: ("np", "linalg", "norm")
Named = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Definition = Named | ast.Assign | ast.AnnAssign | ast.AugAssign


@cache
def code_hash(*roots: Hashable) -> str:
    """A hash of the code behind some roots, 16 hex digits.

    Roots are functions and classes. A partial, a closure, a tuple and a dataclass count by what they hold
    (but not by a field `doc`); numbers and words count as they are.
    """
    closure = Closure(_source)
    described = [_described(root, closure) for root in roots]
    return hashlib.sha256("\n".join([*described, closure.text()]).encode()).hexdigest()[:16]


def _described(root: Any, closure: "Closure", outer: tuple[Any, ...] = ()) -> str:
    """A root in words; the code behind it goes into the closure."""
    inside = (root, *outer)
    if any(root is known for known in outer):
        return "itself"  # a function inside another one may call itself
    name, held = "", cast(tuple[Any, ...], ())
    if isinstance(root, partial):
        held = (root.func, root.args, *sorted(root.keywords.items()))
    elif isinstance(root, MethodType):
        held = (root.__func__, root.__self__)
    elif isinstance(root, tuple):
        held = cast(tuple[Any, ...], root)
    elif is_dataclass(root) and not isinstance(root, type):
        own = [getattr(root, field.name) for field in fields(root) if field.name != "doc"]
        held = (type(root), *own)
    elif hasattr(root, "__qualname__"):
        code = unwrap(root)
        line = getattr(getattr(code, "__code__", None), "co_firstlineno", 0)
        name = closure.reach(code.__module__ or "", code.__qualname__, line)
        if "<locals>" in name:
            held = tuple(cell.cell_contents for cell in getattr(code, "__closure__", None) or ())
    elif isinstance(root, Hashable) and type(root).__repr__ is not object.__repr__:
        name = ascii(root)
    else:
        raise TypeError(f"no run can be named by {root!r}: let a top-level function of a module make it.")
    return f"{name}({', '.join(_described(part, closure, inside) for part in held)})"


def _source(module: str) -> Path | None:
    """The source file of a module; None where there is none."""
    spec = find_spec(module)
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


class Closure:
    """The top-level statements that are reached from some names; `find` gives a module's source file."""

    def __init__(self, find: Callable[[str], Path | None]) -> None:
        self._find = cache(find)
        self._roots: list[Statement | str] = []

    def reach(self, module: str, name: str, line: int = 0) -> str:
        """Counts the statement that defines a qualified name, or that is at a line; else the whole module."""
        found, top = self._module(module), name.partition(".")[0]
        near = [statement for statement in found.statements if line in statement.lines] if found else []
        if found and near and top not in found.definitions:
            self._roots += [*found.effects, *near]
        else:
            self._roots += self._attribute(module, (top,) if found and top in found.definitions else ())
        return f"{module}.{name}"

    def text(self) -> str:
        """All that is reached as text, the same whatever the order of definitions."""
        texts: dict[Statement, str] = {}
        waiting = [*self._roots]
        while waiting:
            statement = waiting.pop()
            if isinstance(statement, str) or statement in texts:
                continue
            texts[statement] = f"{statement}\n{statement.text}"
            meanings = [(chain[0], self._meanings(statement.module, chain)) for chain in statement.uses]
            lines = {f"\n{name}: {meaning}": meaning for name, found in meanings for meaning in found}
            texts[statement] += "".join(sorted(lines))
            waiting += lines.values()
        settings = {name for statement in texts for name in statement.settings}
        for statement in texts:
            # What is assigned to an inherited setting is a default, and in the name of a run already.
            assigned = [text for name, text in statement.assigned.items() if name not in settings]
            texts[statement] += "\n".join(assigned)
        return "\n".join(sorted(texts.values()))

    def _module(self, name: str) -> "Module | None":
        """A module whose code counts; None for those of other libraries."""
        path = self._find(name) if name.partition(".")[0] == PACKAGE else None
        return _read(name, path, path.stat().st_mtime_ns) if path else None

    def _meanings(self, module: "Module", chain: Chain) -> "Iterator[Statement | str]":
        """What a name means in a module: statements, or its dotted name elsewhere; nothing for a builtin."""
        name, rest = chain[0], chain[1:]
        yield from module.definitions.get(name, ())
        for origin, what in module.imports.get(name, ()):
            if (origin, what) == (module.name, name):  # a package that imports a module of its own
                yield from self._attribute(f"{origin}.{what}", rest)
            else:
                yield from self._attribute(origin, (what, *rest) if what else rest)

    def _attribute(self, name: str, chain: Chain) -> "Iterator[Statement | str]":
        """What a chain means as an attribute of a module: the whole module where that is not known."""
        module = self._module(name)
        if module is None or "COMPUTES_NOTHING" in module.definitions:
            yield ".".join([name, *chain])
            return
        yield from module.effects
        found = list(self._meanings(module, chain)) if chain else []
        if not found and chain and module.is_package and self._module(f"{name}.{chain[0]}"):
            found = list(self._attribute(f"{name}.{chain[0]}", chain[1:]))
        yield from found or module.statements


@cache
def _read(name: str, path: Path, changed: int) -> "Module":
    """A module as its file was when it was changed last."""
    return Module(name, path)


class Module:
    """The top-level statements of a source file: definitions by name, and effects, which do something else.

    `imports` are (module, name there or "" for the module itself) by name. `docs` are the places of help
    texts, which are arguments `doc`, by the name of the function.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.is_package = name, path.name == "__init__.py"
        self.imports: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        self.docs = {"parameter": 0, "Probe": 1, "probe": 1}
        tree = ast.parse(path.read_bytes())
        for node in ast.walk(tree):
            self._note(node)
        self.statements = [Statement(node, self) for node in tree.body]
        self.bound = {name for statement in self.statements for name in statement.names}
        self.effects = [statement for statement in self.statements if statement.has_effect]
        self.definitions: defaultdict[str, list[Statement]] = defaultdict(list)
        for statement in self.statements:
            for bound in statement.names:
                self.definitions[bound].append(statement)

    def _note(self, node: ast.AST) -> None:
        """Notes imports, by full names, and the places of help texts."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                origin = alias.name if alias.asname else alias.name.partition(".")[0]
                self.imports[alias.asname or origin].append((origin, ""))
        elif isinstance(node, ast.ImportFrom):
            package = self.name if self.is_package else self.name.rpartition(".")[0]
            origin = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                self.imports[alias.asname or alias.name].append((origin, alias.name))
        elif isinstance(node, ast.FunctionDef):
            arguments = [part.arg for part in node.args.args]
            place = arguments.index("doc") if "doc" in arguments and "self" not in arguments else -1
            if self.docs.setdefault(node.name, place) != place:
                self.docs[node.name] = -1  # functions of one name that differ


class Statement:
    """A top-level statement: its `text`, which holds what computes, and what is known with that.

    `uses` are names. A local variable counts as a use of what has its name at the top level: rather too much
    than too little. Of a class of settings, `settings` are the fields, `assigned` the other assignments.
    """

    def __init__(self, node: ast.stmt, module: Module) -> None:
        self.node, self.module = node, module
        self.uses: set[Chain] = set()
        self.settings: set[str] = set()
        self.assigned: dict[str, str] = {}
        targets = getattr(node, "targets", [getattr(node, "target", node)])
        parts = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        names = {part.id for part in parts if isinstance(part.ctx, ast.Store)}
        self.names = {node.name} if isinstance(node, Named) else names
        first = min(part.lineno for part in (node, *getattr(node, "decorator_list", ())))
        self.lines = range(first, (node.end_lineno or first) + 1)

    def __str__(self) -> str:
        return f"{self.module.name}.{' '.join(sorted(self.names))}"

    @property
    def has_effect(self) -> bool:
        """Whether the statement does something else than to define or import names."""
        match self.node:
            case ast.FunctionDef(decorator_list=rules) if any(len(_chain(rule)) > 1 for rule in rules):
                return _chain(rules[0])[0] in self.module.bound  # a rule of a function, as by @f.defjvp
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                return False
            case ast.Expr(value=ast.Constant()) | ast.Import():
                return False
            case ast.ImportFrom(names=names):
                return names[0].name == "*"
            case _:
                return not self.names or not isinstance(self.node, Definition)

    @cached_property
    def text(self) -> str:
        """What computes, the same in every version of Python."""
        return self._text(self.node)

    def _text(self, node: Any) -> str:
        if isinstance(node, list):
            return f"[{','.join(filter(None, map(self._text, cast(list[Any], node))))}]"
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return ""
            case ast.Import(names=names) | ast.ImportFrom(names=names) if node is self.node:
                self.uses |= {((alias.asname or alias.name).partition(".")[0],) for alias in names}
                return ""
            case ast.Raise(exc=ast.Call(func=error)):
                return f"Raise({self._text(error)})"
            case ast.Name(id=name, ctx=ast.Load()):
                self.uses.add((name,))
            case ast.Attribute() if chain := _chain(node):
                self.uses.add(chain)
                return ".".join(chain)
            case ast.Call(func=ast.Name(id="Deviation")):
                return "Deviation"
            case ast.Call(func=function, args=args, keywords=keywords):
                starred = any(isinstance(argument, ast.Starred) for argument in args)
                place = -1 if starred else self.module.docs.get(getattr(function, "id", ""), -1)
                args = [argument for i, argument in enumerate(args) if i != place]
                keywords = [keyword for keyword in keywords if keyword.arg != "doc"]
                return self._fields(node, args=args, keywords=keywords)
            case ast.JoinedStr(values=values):  # versions of Python cut its texts into different parts
                return f"f'{''.join(self._part(value) for value in values)}'"
            case ast.ClassDef():
                return self._class(node)
            case _:
                pass
        return self._fields(node) if isinstance(node, ast.AST) else ascii(node)

    def _part(self, value: ast.expr) -> str:
        if isinstance(value, ast.Constant):
            return str(value.value).encode("unicode_escape").decode()
        return f"{{{self._text(value)}}}"

    def _fields(self, node: ast.AST, **changed: Any) -> str:
        parts = {**dict(ast.iter_fields(node)), **changed}
        texts = [f"{k}={self._text(v)}" for k, v in parts.items() if k not in SILENT and v not in (None, [])]
        return f"{type(node).__name__}({','.join(texts)})"

    def _class(self, node: ast.ClassDef) -> str:
        """A class. Types of fields decide what is compiled; values of settings are in a run's name anyway."""
        typed = [part for part in node.body if isinstance(part, ast.AnnAssign)]
        types = [f"{self._text(part.target)}: {self._text(part.annotation)}" for part in typed]
        body = node.body
        if any(_chain(decorator)[-1:] == ("preset",) for decorator in node.decorator_list):
            self.settings = {name for part in typed for name in _chain(part.target)}
            assigned = [part for part in body if isinstance(part, ast.Assign) and _chain(part.targets[0])]
            self.assigned = {_chain(part.targets[0])[0]: self._text(part) for part in assigned}
            body = [part for part in body if part not in typed and part not in assigned]
            body = [part for part in body if getattr(part, "name", "") not in ("conflicts", "implied")]
        return " ".join([self._fields(node, body=body), *types])


def _chain(node: ast.expr) -> Chain:
    """The parts of a dotted name; none where it does not begin with a name."""
    if isinstance(node, ast.Attribute):
        before = _chain(node.value)
        return (*before, node.attr) if before else ()
    return (node.id,) if isinstance(node, ast.Name) else ()
