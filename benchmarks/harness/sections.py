"""Marked parts of a page that several programs write."""

import re

# Any marked section, whichever program wrote it.
_SECTION = re.compile(r"^<!-- (?P<name>[\w-]+): [^\n]*-->\n.*?^<!-- /(?P=name) -->\n", re.MULTILINE | re.DOTALL)


def _marks(name):
    return f"<!-- {name}: written by benchmarks/compare-{name}; do not edit -->\n", f"<!-- /{name} -->\n"


def extract(text, name):
    """The marked section with its marks; empty when there is none."""
    begin, end = _marks(name)
    start = text.find(begin)
    stop = text.find(end, start)
    return text[start:stop + len(end)] if 0 <= start < stop else ""


def replace(text, name, section):
    """`text` with the section in place of the one it had, or at its end."""
    begin, end = _marks(name)
    marked = begin + section + end
    old = extract(text, name)
    return text.replace(old, marked) if old else text.rstrip("\n") + "\n\n" + marked


def write(path, name, section):
    path.write_text(replace(path.read_text() if path.exists() else "", name, section))


def keep_all(text, page):
    """`page`, which knows nothing of sections, followed by every marked section of `text`, in their order."""
    kept = [found.group(0) for found in _SECTION.finditer(text)]
    return "\n".join([page.rstrip("\n") + "\n", *kept]) if kept else page


def write_keeping(path, page):
    """Writes the page, and keeps all marked sections that the file had."""
    path.write_text(keep_all(path.read_text() if path.exists() else "", page))
