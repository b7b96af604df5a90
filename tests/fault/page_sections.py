"""Marked sections of a page that several programs write."""
import os
import re


def _read(path):
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


def _write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def write(path, name, writer, section):
    """Replaces the section of that name, or adds it at the end."""
    marked = f"<!-- {name}: written by {writer}; do not edit -->\n{section}<!-- /{name} -->\n"
    text = _read(path)
    pattern = re.compile(rf"<!-- {name}: written by .*?<!-- /{name} -->\n", re.DOTALL)
    if pattern.search(text):
        _write(path, pattern.sub(lambda _: marked, text))
    else:
        _write(path, (text.rstrip("\n") + "\n\n" if text else "") + marked)


def write_around(path, page):
    """Writes the page before its marked sections, which stay."""
    kept = [match.group(0) for match in re.finditer(r"<!-- (\w+): written by .*?<!-- /\1 -->\n", _read(path), re.DOTALL)]
    _write(path, "\n".join([page, *kept]))
