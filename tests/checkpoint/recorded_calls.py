"""The system calls by which a program changed a directory, from what strace recorded of it."""
import os
import re
import subprocess

TRACED = ("openat,open,creat,close,dup,dup2,dup3,lseek,write,writev,pwrite64,pwritev,pwritev2,ftruncate,truncate,fallocate,"
          "fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,link,linkat,sendfile,copy_file_range")
CALL = re.compile(r"^(\w+)\((.*)\)\s+= (-?\d+)", re.DOTALL)
UNFINISHED = re.compile(r"^(.*) <unfinished \.\.\.>$", re.DOTALL)
RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$", re.DOTALL)
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
MOST_BYTES = 1 << 20  # of one call, that are recorded


def record(command, **others):
    """Runs the command under strace, and gives the lines that it wrote."""
    trace = f"{others.pop('folder')}/trace"
    subprocess.run(["strace", "-f", "--seccomp-bpf", "-qq", "-xx", "-s", str(MOST_BYTES), "-e", f"trace={TRACED}",
                    "-o", trace, *command], check=True, **others)
    with open(trace, encoding="ascii", errors="replace") as file:
        return file.read().splitlines()


def whole_calls(lines):
    """(name, arguments, result) of each call that did not fail, in the order in which they ended."""
    begun = {}
    for line in lines:
        thread, _, text = line.partition(" ")
        text = text.strip()
        if match := UNFINISHED.match(text):
            begun[thread] = match.group(1)
            continue
        if match := RESUMED.match(text):
            text = begun.pop(thread, match.group(1) + "(") + match.group(2)
        if (match := CALL.match(text)) and int(match.group(3)) >= 0:
            yield match.group(1), match.group(2), int(match.group(3))


def bytes_of(match):
    if match.group(2):
        raise ValueError(f"a call wrote more than {MOST_BYTES} bytes at once")
    return bytes.fromhex(match.group(1).replace("\\x", ""))


class Directory:
    """Follows the descriptors and files of a program, as far as they lie under `root`. Made before the program runs.

        directory = Directory(root)
        directory.follow(record(command, folder=folder))
        ... directory.calls                       what crash_states reads, one JSON object a line
    """

    def __init__(self, root):
        self.root = root
        self.calls = []
        self.open = {}  # descriptor: [path, position, appends]
        self.sizes = {}
        for folder, _, files in os.walk(root):
            self.sizes[folder] = 0
            for name in files:
                self.sizes[f"{folder}/{name}"] = os.path.getsize(f"{folder}/{name}")

    def follow(self, lines):
        for name, arguments, result in whole_calls(lines):
            self.apply(name, arguments, result)

    def add(self, kind, path, **others):
        if path == self.root or path.startswith(self.root + "/"):
            self.calls.append({"kind": kind, "path": path, **others})

    def inside(self, path):
        return path.startswith(self.root + "/")

    def path_of(self, folder, name):
        path = name.decode()
        if path.startswith("/") or folder == "AT_FDCWD":
            return os.path.normpath(path)
        return os.path.normpath(f"{self.open.get(int(folder), ['?'])[0]}/{path}")

    def write(self, path, data, offset):
        if not self.inside(path):
            return
        self.add("write", path, offset=offset, data=data.hex())
        self.sizes[path] = max(self.sizes.get(path, 0), offset + len(data))

    def opened(self, path, flags, descriptor):
        if self.inside(path):
            if "O_CREAT" in flags and path not in self.sizes:
                self.add("create", path)
                self.sizes[path] = 0
            elif "O_TRUNC" in flags and self.sizes.get(path, 0) > 0:
                self.add("truncate", path, offset=0)
                self.sizes[path] = 0
        self.open[descriptor] = [path, 0, "O_APPEND" in flags]

    def rename(self, old, new, exchange):
        if not self.inside(old) and not self.inside(new):
            return
        self.add("exchange" if exchange else "rename", old, other=new)
        moved = {path: size for path, size in self.sizes.items() if path == old or path.startswith(old + "/")}
        if not exchange:
            for path, size in moved.items():
                del self.sizes[path]
                self.sizes[new + path[len(old):]] = size

    def apply(self, name, arguments, result):
        texts = [bytes_of(match) for match in TEXT.finditer(arguments)]
        words = [word.strip() for word in TEXT.sub('""', arguments).split(",")]
        if name in ("open", "openat", "creat"):
            folder = words[0] if name == "openat" else "AT_FDCWD"
            flags = "O_CREAT|O_TRUNC" if name == "creat" else words[2 if name == "openat" else 1]
            self.opened(self.path_of(folder, texts[0]), flags, result)
        elif name in ("mkdir", "mkdirat"):
            path = self.path_of(words[0] if name == "mkdirat" else "AT_FDCWD", texts[0])
            self.add("mkdir", path)
            self.sizes[path] = 0
        elif name in ("unlink", "unlinkat", "rmdir"):
            path = self.path_of(words[0] if name == "unlinkat" else "AT_FDCWD", texts[0])
            self.add("remove", path)
            self.sizes.pop(path, None)
        elif name.startswith("rename"):
            folders = ("AT_FDCWD", "AT_FDCWD") if name == "rename" else (words[0], words[2])
            self.rename(self.path_of(folders[0], texts[0]), self.path_of(folders[1], texts[1]),
                        "RENAME_EXCHANGE" in arguments)
        elif name == "truncate":
            self.add("truncate", self.path_of("AT_FDCWD", texts[0]), offset=int(words[1]))
        elif name in ("link", "linkat"):
            if any(self.inside(self.path_of("AT_FDCWD", text)) for text in texts):
                raise ValueError("a link, which is not modelled")
        elif words[0].isdigit() and int(words[0]) in self.open:
            self.apply_to_descriptor(name, int(words[0]), words, texts, result)

    def apply_to_descriptor(self, name, descriptor, words, texts, result):
        entry = self.open[descriptor]
        path = entry[0]
        if name == "close":
            del self.open[descriptor]
        elif name.startswith("dup"):
            self.open[result] = entry
        elif name == "lseek":
            entry[1] = result
        elif name in ("write", "writev"):
            if entry[2]:
                entry[1] = self.sizes.get(path, 0)
            self.write(path, b"".join(texts)[:result], entry[1])
            entry[1] += result
        elif name.startswith("pwrite"):
            self.write(path, b"".join(texts)[:result], int(words[-1 if name == "pwrite64" else 3]))
        elif name == "ftruncate":
            self.add("truncate", path, offset=int(words[1]))
            self.sizes[path] = int(words[1])
        elif name == "fallocate" and "KEEP_SIZE" not in words[1]:
            self.add("allocate", path, offset=int(words[2]) + int(words[3]))
        elif name in ("fsync", "fdatasync"):
            self.add("sync", path)
        elif name in ("sendfile", "copy_file_range") and self.inside(path):
            raise ValueError(f"{name}, which is not modelled")
