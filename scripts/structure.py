#!/usr/bin/env python3
"""Prints files of a crate that need each other, directly or around, what a crate is built with and
does not use, and crates that need others than docs/ARCHITECTURE.md says; fails if there are any.

A file needs another when it names something of it by a path that begins with crate, super or
self. What a file lists as its own parts (mod) and passes on (pub use) it does not need.
"""

import os
import re
import sys

PATH = re.compile(r"\b(?:crate|super|self)(?:::\w+)+")
USE = re.compile(r"\buse ((?:crate|super|self)\b[^;]*);")


def modules(source):
    """Files of a crate by their place among its modules."""
    found = {}
    for directory, _, files in os.walk(source):
        for file in files:
            if file.endswith(".rs"):
                path = os.path.join(directory, file)
                parts = os.path.relpath(path, source)[:-3].split(os.sep)
                found[tuple(parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts)] = path
    return found


def text_of(path):
    """A file without comments, its tests, and what it passes on."""
    with open(path) as file:
        text = re.sub(r"//[^\n]*", "", file.read())
    text = re.sub(r"#\[cfg\(test\)\]\s*mod \w+ \{.*", "", text, flags=re.S)
    return re.sub(r"\bpub(?:\([^)]*\))? use [^;]*;", "", text)


def unfolded(tree, prefix=""):
    """The paths of a use declaration: a::{b, c::d} is a::b and a::c::d."""
    head, brace, rest = tree.partition("{")
    if not brace:
        yield prefix + tree.split(" as ")[0].strip()
        return
    depth, part = 0, ""
    for letter in rest[:rest.rindex("}")] + ",":
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if part.strip():
                yield from unfolded(part.strip(), prefix + head.strip())
            part = ""
        else:
            part += letter


def target(path, module, files):
    """The file that a path leads into; none for the root of the crate."""
    parts = path.split("::")
    place = () if parts[0] == "crate" else module
    for part in parts[parts[0] == "crate":]:
        if part == "super":
            place = place[:-1]
        elif part != "self":
            if place + (part,) not in files:
                break
            place += (part,)
    return place if place in files else ()


def needs(module, files):
    """The files that a file needs."""
    text = text_of(files[module])
    paths = [path for use in USE.findall(text) for path in unfolded(use)]
    paths += PATH.findall(USE.sub("", text))
    found = {target(path, module, files) for path in paths}
    # Its own parts are listed in it, not needed by it.
    return {other for other in found if other and other[:len(module)] != module}


def reached(start, graph):
    """What is needed by a file, and by what it needs."""
    seen, left = set(), [start]
    while left:
        for other in graph[left.pop()] - seen:
            seen.add(other)
            left.append(other)
    return seen


def circles(source):
    """Groups of files that need each other."""
    files = modules(source)
    graph = {module: needs(module, files) for module in files}
    left = {module: reached(module, graph) for module in files}
    while left:
        module, around = left.popitem()
        if module in around:
            circle = {other for other in around if module in left.get(other, set())} | {module}
            left = {other: around for other, around in left.items() if other not in circle}
            yield ", ".join(sorted("/".join(other) for other in circle))


def needed_crates(crate):
    """The crates of ours that a crate is built with."""
    with open(f"crates/{crate}/Cargo.toml") as file:
        section = re.search(r"^\[dependencies\]\n(.*?)(?=^\[|\Z)", file.read(), re.S | re.M)
    return sorted(re.findall(r"^coppice-([\w-]+)", section.group(1), re.M)) if section else []


def documented_crates():
    """What docs/ARCHITECTURE.md says that each crate needs."""
    with open("docs/ARCHITECTURE.md") as file:
        rows = re.findall(r"^\| `crates/([\w-]+)` \|[^|]*\|[^|]*\|([^|]*)\|", file.read(), re.M)
    return {crate: sorted(set(re.findall(r"[\w-]+", needed)) - {"nothing"}) for crate, needed in rows}


def unused(crate):
    """What a crate is built with and no file of it names."""
    with open(f"crates/{crate}/Cargo.toml") as file:
        manifest = file.read()
    listed = re.findall(r"^\[(?:dev-|build-)?dependencies\]\n(.*?)(?=^\[|\Z)", manifest, re.S | re.M)
    names = {name for section in listed for name in re.findall(r"^([\w-]+)", section, re.M)}
    places = [f"crates/{crate}"] + re.findall(r'^path = "\.\./\.\./([\w-]+)/main\.rs"', manifest, re.M)
    text = "".join(text_of_tree(place) for place in places)
    return sorted(name for name in names if not re.search(rf"\b{name.replace('-', '_')}\b", text))


def text_of_tree(source):
    """Everything in a directory's Rust files but comments."""
    found = ""
    for directory, inside, files in os.walk(source):
        inside[:] = [name for name in inside if name not in ("node_modules", "target")]
        for file in (file for file in files if file.endswith(".rs")):
            with open(os.path.join(directory, file)) as opened:
                found += re.sub(r"//[^\n]*", "", opened.read())
    return found


def complaints():
    """Everything that is wrong."""
    documented = documented_crates()
    for circle in circles("e2e"):
        yield f"these files of e2e need each other: {circle}"
    for crate in sorted(os.listdir("crates")):
        for circle in circles(f"crates/{crate}/src"):
            yield f"these files of {crate} need each other: {circle}"
        for dependency in unused(crate):
            yield f"crates/{crate} does not use {dependency}"
        needed = needed_crates(crate)
        if documented.get(crate) != needed:
            yield f"crates/{crate} needs {', '.join(needed) or 'nothing'}; docs/ARCHITECTURE.md says otherwise"


if __name__ == "__main__":
    found = [f"tidy: {complaint}" for complaint in complaints()]
    sys.exit("\n".join(found) or None)
