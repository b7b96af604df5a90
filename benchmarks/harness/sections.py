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


def write_keeping(path, names, page):
    """Writes a page that knows nothing of the sections, and keeps those that were there."""
    text = path.read_text() if path.exists() else ""
    kept = [section for section in (extract(text, name) for name in names) if section]
    path.write_text("\n".join([page.rstrip("\n") + "\n", *kept]) if kept else page)
