"""Marked parts of a page that several programs write."""


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


def write_keeping(path, name, page):
    """Writes a page that knows nothing of the section, and keeps the section that was there."""
    old = extract(path.read_text(), name) if path.exists() else ""
    path.write_text(page.rstrip("\n") + "\n\n" + old if old else page)
