"""
Builds the Cython core: one extension for each .pyx file below mqcore/.

MQCORE_DEBUG=1           bounds, invariants and sanitizers on (`make debug`); with CC=clang
                         coverage, too, and tests/fuzz/targets (`make fuzz`)
MQCORE_THREADS=1         ThreadSanitizer (tests/debug/threads.py)
MQCORE_PROBES=1          rooms called probes, too, which only tests use; whoever debugs has them
MQCORE_BUILD_JOBS        how many at a time; the processors at hand
MQCORE_BUILD_ONLY        dotted names of the only modules to build, `none` for none
MQCORE_CYTHON_CACHE      a folder of Cython's results, which checkouts may share
"""
import gc
import hashlib
import importlib
import multiprocessing
import multiprocessing.connection
import os
import re
import shutil
import sys
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, ExecError
from setuptools.modified import newer_group

ROOT = Path(__file__).resolve().parent
THREADS = bool(os.environ.get("MQCORE_THREADS"))
DEBUG = bool(os.environ.get("MQCORE_DEBUG"))
CLANG = DEBUG and "clang" in os.environ.get("CC", "")
PROBES = DEBUG or THREADS or bool(os.environ.get("MQCORE_PROBES"))
JOBS = int(os.environ.get("MQCORE_BUILD_JOBS", len(os.sched_getaffinity(0))))
CYTHON_DIR = "build/{}cython".format(
    "threads/" if THREADS else "debug/" if DEBUG else "")
SHARED = "mqcore._cyutility"            # what Cython's modules have in common, compiled once
KNOWN_CYTHON = "3.3."                   # whose insides `Translator` knows; others are asked plainly
NEEDS = """a C compiler, the headers of libc and those of Python are needed
  Debian, Ubuntu   apt install gcc libc6-dev python3-dev
  Fedora, RHEL     dnf install gcc glibc-devel python3-devel"""
YOUNG_OBJECTS_MAX = 200_000             # Python objects made between two looks for garbage
SANITIZERS = "-fsanitize=address,undefined,float-cast-overflow"
if CLANG:
    SANITIZERS += ",fuzzer-no-link"
FLAGS = ["-std=gnu11", "-fno-strict-aliasing", "-fwrapv", "-Wno-unused-function",
         "-Wno-format-truncation", "-Wno-maybe-uninitialized"]
# -- under sanitizers gcc takes twice as long at -O1, clang three times as long as at -O0
FLAGS += ["-O0" if CLANG else "-Og", "-g1", "-fno-omit-frame-pointer", "-UNDEBUG", "-DMQ_DEBUG",
          SANITIZERS] if DEBUG else ["-O2", "-g0"]
if CLANG:
    FLAGS += ["-fno-sanitize-recover=all", "-Wno-unknown-warning-option"]
if THREADS:
    SANITIZERS = "-fsanitize=thread"
    FLAGS += ["-Og", "-g1", "-Wno-tsan", SANITIZERS]
LINK_FLAGS = ["-pthread", *([SANITIZERS] if DEBUG or THREADS else [])]
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": DEBUG,
    "embedsignature": True,
    "emit_code_comments": DEBUG,
    # -- an eighth of the machine code was for what nobody does with a native class: pickle it, look
    #    into its functions. Modules whose classes users see have binding=True at their head
    "auto_pickle": False,
    "binding": False,
}
COMMON = (ROOT / "mqcore/include/mq_common.h").read_text(encoding="ascii")
# -- of what Cython wrote, the functions that are there for Python (doors to native ones, what they
#    share, types) are most of gcc's work. At -Og it is quicker at them. Native functions stay
#    at -O2, and in QUICK modules, whose functions Python calls for each message, all that does not
#    run once, at an import or for an error. Under clang's sanitizers what is around the bodies of
#    functions is no coverage: a quarter less for clang to do, and a half for who looks at it
PLAIN = """\
#if defined(__GNUC__) && !defined(__clang__)
#define MQ_PLAIN __attribute__((optimize("Og")))
#elif defined(__clang__) && defined(MQ_DEBUG)
#define MQ_PLAIN __attribute__((no_sanitize("coverage")))
#else
#define MQ_PLAIN
#endif
"""
# -- two short cuts through an object's insides, which modules of other kinds do without
SMALL = """\
#define CYTHON_USE_PYLONG_INTERNALS 0
#define CYTHON_FAST_THREAD_STATE 0
"""
QUICK = (SHARED, "mqcore.client.", "mqcore.wire.", "mqcore.store.crc32")
QUICK_CLASS = "CoordinatorRings"        # beside others that are not
MARKED = r"(?m)^static (?!CYTHON_INLINE)(?=[\w ]+[ *](?:%s)\w*\([^;{]*\{)"
FOR_PYTHON = MARKED % rf"__pyx_(?!f_|fuse_|\w*\d{QUICK_CLASS}_)|__Pyx"
NO_COVERAGE = MARKED % "__pyx_(?!f_|fuse_|pf_|gb_)|__Pyx"
LOOP = r"\b(?:for|while) \("
WITHOUT_LOCK = "PyEval_SaveThread"
ONCE = MARKED % (
    "__Pyx_(?:AddTraceback|ApiExport|CreateCode|Export|Import|Init|Raise|check_|modinit)")
TABLES = ("participants", "figures")    # rows in Python, whose numbers native code has as constants
DISCOVERED = "mqcore/spark/discovered"  # modules at the top of the path, where Spark looks for them
UNIT = "_native"                        # of each room: its native modules
HEAD = re.compile(r"# cython: .*\n")    # directives of a module
IMPORT = re.compile(r"(?m)^\s*(?:from\s+(mqcore[\w.]*)\s+c?import|c?import\s+(mqcore[\w.]*))")
PACKAGES = {
    "mqcore": "mqcore",
    "mqcore.processes": "workers",      # one small file a process
    "mqcore.config": "config",          # the shipped settings are package data
}


def declare_tables() -> None:
    """Write the .pxd of each table; one that says what it said keeps its time."""
    sys.path.insert(0, str(ROOT))
    for table in TABLES:
        text = importlib.import_module(f"mqcore.{table}").declarations()
        update(ROOT / "mqcore" / f"{table}.pxd", text)
    del sys.path[0]


def update(target: Path, text: str) -> None:
    if not target.exists() or target.read_text(encoding="ascii") != text:
        target.write_text(text, encoding="ascii")


def packages() -> dict[str, str]:
    found = dict(PACKAGES)
    for init in (ROOT / "mqcore").rglob("__init__.py"):
        folder = init.parent.relative_to(ROOT)
        if PROBES or folder.name != "probes":
            found[".".join(folder.parts)] = str(folder)
    return found


def knows_cython() -> bool:
    import Cython

    return Cython.__version__.startswith(KNOWN_CYTHON)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


class Units:
    """
    Which modules are compiled as one: those of a room. What gcc, the linker and Cython do for a
    module before its first line is more than what most of them hold.

    A unit is a .pyx and a .pxd that include those of its members; who asks for a member is given
    the unit: Cython by `declarations`, Python by mqcore/__init__.py. It takes Cython's insides:
    with another Cython each module is alone, and the units are empty.
    """

    def __init__(self) -> None:
        self.members: dict[str, list[str]] = {}     # unit -> modules, those that others need first
        self._files: dict[str, list[Path]] = {}     # module -> its .pxd, its .pyx
        for path in sorted([*ROOT.glob("mqcore/**/*.pxd"), *ROOT.glob("mqcore/**/*.pyx")]):
            if path.stem != UNIT:
                self._files.setdefault(module_of(path), []).append(path)
        self._find()
        self.unit_of = {name: unit for unit, names in self.members.items() for name in names}

    def _find(self) -> None:
        texts = {name: "".join(path.read_text(encoding="utf-8") for path in files)
                 for name, files in self._files.items()}
        self._needs = {name: {one or other for one, other in IMPORT.findall(text)} & texts.keys()
                       for name, text in texts.items()}
        for room in sorted({name.rpartition(".")[0] for name in texts} - {"mqcore"}):
            members = self._of({name for name in texts if name.rpartition(".")[0] == room})
            if sum(map(self._has_body, members)) > 1:
                self.members[f"{room}.{UNIT}"] = self._ordered(members) if knows_cython() else []
                # -- who needs one of them needs all that they need
                self._needs |= dict.fromkeys(members, set().union(
                    members, *map(self._needs.get, members)))

    def _has_body(self, name: str) -> bool:
        return self._files[name][-1].suffix == ".pyx"

    def _of(self, members: set[str]) -> set[str]:
        """Without what others need that a member needs, and declarations without any body."""
        while back := members & self._reached(self._reached(members) - members):
            members = members - back
        bodies = set(filter(self._has_body, members))
        return bodies | {name for name in members if self._reached({name}) & bodies}

    def _reached(self, names: set[str]) -> set[str]:
        """All that these need, and what that needs, and so on."""
        found: set[str] = set()
        left = list(names)
        while left:
            new = self._needs[left.pop()] - found
            found |= new
            left += new
        return found

    def _ordered(self, members: set[str]) -> list[str]:
        order: dict[str, None] = {}

        def add(name: str) -> None:
            for needed in sorted(self._needs[name] & members - order.keys() - {name}):
                add(needed)
            order[name] = None

        for name in sorted(members):
            add(name)
        return list(order)

    def write(self) -> None:
        """The files of each unit; one that says what it said keeps its time."""
        written = set()
        for unit, members in self.members.items():
            for suffix in (".pxd", ".pyx"):
                target = ROOT / (unit.replace(".", "/") + suffix)
                files = [path for name in members for path in self._files[name]
                         if path.suffix == suffix]
                heads = {found[0] for path in files
                         if (found := HEAD.match(path.read_text(encoding="utf-8")))}
                update(target, "".join([*sorted(heads),
                                        self._named(members) if suffix == ".pyx" else "",
                                        *(f'include "{path.name}"\n' for path in files)]))
                written.add(target)
        for left in {*ROOT.glob(f"mqcore/**/{UNIT}.p[xy][dx]")} - written:
            left.unlink()

    def _named(self, members: list[str]) -> str:
        """Python's line by which it is known what a unit holds (mqcore/__init__.py)."""
        names = "".join(f'"{name.rpartition(".")[2]}", ' for name in members
                        if self._has_body(name))
        return f"MEMBERS = ({names})\n" if names else ""

    def sources(self) -> dict[str, str]:
        """Module, or unit -> its .pyx."""
        alone = {name: str(files[-1].relative_to(ROOT)) for name, files in self._files.items()
                 if name not in self.unit_of and self._has_body(name)}
        return alone | {unit: unit.replace(".", "/") + ".pyx" for unit in self.members}

    def size(self, extension: Extension) -> int:
        """Bytes of source, by which gcc's time can be guessed."""
        members = self.members.get(extension.name)
        return sum(os.path.getsize(path) for path in (
            [self._files[name][-1] for name in members] if members else extension.sources))

    def asked(self, name: str, by: str | None) -> str | None:
        """What is read for the module `name` that the file `by` asks for: None, it is there."""
        unit = self.unit_of.get(name, name)
        inside = by and (ROOT / by).is_relative_to(ROOT)        # and not Cython's own file
        asking = inside and self.unit_of.get(module_of(ROOT / by))
        return None if asking == unit else unit


UNITS = Units()


def extensions() -> list[Extension]:
    only = {UNITS.unit_of.get(name, name)
            for name in os.environ.get("MQCORE_BUILD_ONLY", "").split()}
    sources = {SHARED: "mqcore/_cyutility.c", **UNITS.sources()}
    for target in sorted((ROOT / "tests/fuzz/targets").glob("*.pyx")) if CLANG else ():
        sources[f"fuzz_targets.{target.stem}"] = str(target.relative_to(ROOT))
    headers = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "mqcore/include").glob("*.h"))
    return [
        Extension(name, [source], include_dirs=["mqcore/include"],
                  depends=[] if name == SHARED else headers,
                  extra_compile_args=FLAGS, extra_link_args=LINK_FLAGS)
        for name, source in sources.items()
        if (name in only if only else PROBES or ".probes." not in name)
    ]


def forget_other_ways() -> None:
    """What was made with other directives, flags or units, or by another Cython, is made anew."""
    import Cython

    way = repr((Cython.__version__, DIRECTIVES, FLAGS, LINK_FLAGS, COMMON, PLAIN, SMALL, FOR_PYTHON,
                NO_COVERAGE, ONCE, LOOP, WITHOUT_LOCK, QUICK, sorted(UNITS.unit_of.items())))
    note = Path(CYTHON_DIR, "way")
    if note.exists() and note.read_text(encoding="utf-8") == way:
        return
    if note.parent.exists():
        shutil.rmtree(note.parent)
    note.parent.mkdir(parents=True)
    note.write_text(way, encoding="utf-8")


def remove_strays() -> None:
    """Modules in place that are made no more: they would still be found."""
    made = {SHARED, *UNITS.sources()}
    for module in (ROOT / "mqcore").rglob("*.so"):
        if module_of(module.with_name(module.name.partition(".")[0])) not in made:
            module.unlink()


class Translator:
    """
    Cython, each module in a process that is forked for it.

    Half of its time went into reading the same .pxd files for one module after another. Here they
    are read once, before the forks; what a module changes of them it changes in its own process.
    It needs Cython's insides: a version whose insides are not known translates all of them before
    gcc begins.
    """

    def __init__(self, extensions: list[Extension]) -> None:
        """
        Finds which modules have to be translated, and gives each extension its C file; those of
        another Cython are translated here.
        """
        self._waiting: dict[str, tuple] = {}        # C file -> what Cython would do for it
        self._context = None
        translated = self._noted(extensions) if knows_cython() else self._asked(extensions, JOBS)
        sources = {one.name: one.sources for one in translated}
        for extension in extensions:
            extension.sources = sources[extension.name]

    def _noted(self, extensions: list[Extension]) -> list[Extension]:
        """Nothing is translated: what Cython would do is noted."""
        from Cython import Utils
        from Cython.Build import Dependencies

        translate, find = Dependencies.cythonize_one, Utils.find_versioned_file
        Dependencies.cythonize_one = self._note
        # -- without a look for files of one version of Cython, which took most of the time here
        Utils.find_versioned_file = lambda folder, name, suffix: (
            path if os.path.exists(path := os.path.join(folder, name) + suffix) else None)
        try:
            return self._asked(extensions, 0)
        finally:
            Dependencies.cythonize_one, Utils.find_versioned_file = translate, find

    @staticmethod
    def _asked(extensions: list[Extension], processes: int) -> list[Extension]:
        from Cython.Build import cythonize

        return cythonize(
            extensions, build_dir=CYTHON_DIR, shared_utility_qualified_name=SHARED,
            nthreads=processes,
            cache=os.environ.get("MQCORE_CYTHON_CACHE") or False,
            emit_linenums=DEBUG,
            compiler_directives=DIRECTIVES,
        )

    def _note(self, source: str, target: str, *rest: object) -> None:
        self._waiting[target] = (source, target, *rest)

    def waits(self, extension: Extension) -> bool:
        return extension.sources[0] in self._waiting

    def read_declarations(self) -> None:
        """
        Read every .pxd that the waiting modules need. One with an error is left to them: they read
        it again and tell.
        """
        from Cython.Build.Dependencies import create_dependency_tree
        from Cython.Compiler import Errors

        known = create_dependency_tree()
        paths = {os.path.relpath(path) for source, *_ in self._waiting.values()
                 for path in known.all_dependencies(source)}
        context = declarations(next(iter(self._waiting.values()))[4])
        context.reading = True
        with Errors.local_errors(ignore=True) as errors:
            for path in sorted(paths):
                if path.endswith(".pxd") and path.startswith("mqcore" + os.sep):
                    context.find_module(path[:-len(".pxd")].replace(os.sep, "."), need_pxd=0)
        if not errors:
            context.end_reading()
            self._context = context

    def translate(self, extension: Extension) -> None:
        """In a process of its own."""
        from Cython.Build import Dependencies
        from Cython.Compiler import Main

        if not self.waits(extension):
            return
        arguments = self._waiting[extension.sources[0]]
        context = self._context or declarations(arguments[4])
        context.options = arguments[4]
        Main.compile_single = partial(Main.compile_single, context=context)
        Dependencies.cythonize_one(*arguments)
        if CLANG or not (DEBUG or THREADS):
            file = Path(extension.sources[0])
            which = (NO_COVERAGE if CLANG else
                     ONCE if extension.name.startswith(QUICK) else FOR_PYTHON)
            file.write_text(with_plain(file.read_text(encoding="utf-8"), which), encoding="utf-8")


def with_plain(text: str, which: str) -> str:
    """
    C that Cython wrote, with a mark at functions for Python: those that match `which`. One that
    loops without the interpreter's lock does native work itself, and keeps its speed. By the first
    line Cython knows that the file is its own.
    """
    done = text.index("\n") + 1
    pieces = [text[:done], PLAIN, "" if which == ONCE else SMALL]
    for found in re.finditer(which, text):
        end = text.find("\n}\n", found.end())
        body = text[found.end():end]
        if WITHOUT_LOCK in body and re.search(LOOP, body):
            continue
        pieces += [text[done:found.end()], "MQ_PLAIN "]
        done = found.end()
    return "".join([*pieces, text[done:]])


def declarations(options: Any) -> Any:
    """
    A context of Cython in which the .pxd of many modules are read, and then one module is
    translated, byte for byte as if its own had been read alone. So of each .pxd is kept what it
    asks for, includes and uses; the module takes that of those that it asks for, in its order.
    """
    from Cython.Compiler.Code import IncludeCode
    from Cython.Compiler.Main import Context

    class Declarations(Context):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self._asked: list[Any] = []         # by what is being read: scopes, numbers of includes
            self._used: list[Any] = []          # ... entries of scopes
            self._included = IncludeCode.counter
            self.reading = False                # ahead, for all that are translated
            self._needs: dict[Any, tuple[list[Any], list[Any]]] = {}    # scope -> both
            self._read: dict[Any, tuple[str, Any]] = {}     # scope -> name and tree of its .pxd
            self._taken: set[Any] = set()
            self._numbers: dict[int, int] = {}  # of includes, before and after they are taken

        def process_pxd(self, source: Any, scope: Any, name: str) -> Any:
            self._note()
            outer, self._asked, self._used = (self._asked, self._used), [], []
            self._needs[scope] = self._asked, self._used
            result = super().process_pxd(source, scope, name)
            self._note()
            self._asked, self._used = outer
            return result

        def _note(self) -> None:
            """What was included and used since the last call, by the .pxd that is being read."""
            if not self.reading:
                return
            self._asked.extend(range(self._included, IncludeCode.counter))
            self._included = IncludeCode.counter
            for scope in self._needs:
                for entry in scope.entries.values():
                    if entry.used:
                        self._used.append(entry)
                        entry.used = 0

        def find_module(self, name: str, from_module: Any = None, pos: Any = None,
                        *arguments: Any, **named: Any) -> Any:
            unit = UNITS.asked(str(name), pos[0].filename if pos else None)
            if unit is None:
                return None
            scope = super().find_module(unit, from_module, pos, *arguments, **named)
            self._asked.append(scope)
            self._take(scope)
            return scope

        def end_reading(self) -> None:
            self.reading = False
            self._read = {tree[1]: (name, tree) for name, tree in self.pxds.items()}
            self.pxds = {}

        def _take(self, scope: Any) -> None:
            if scope not in self._read or scope in self._taken:
                return
            self._taken.add(scope)
            asked, used = self._needs[scope]
            for one in asked:
                if isinstance(one, int):
                    self._numbers[one] = IncludeCode.counter
                    IncludeCode.counter += 1
                else:
                    self._take(one)
            for entry in used:
                entry.used = 1
            scope.c_includes = self._renumbered(scope.c_includes)
            for include in scope.c_includes.values():
                include.order = self._numbers.get(include.order, include.order)
                include.pieces = self._renumbered(include.pieces)
            name, tree = self._read[scope]
            self.pxds[name] = tree

        def _renumbered(self, includes: dict[Any, Any]) -> dict[Any, Any]:
            return {self._numbers.get(key, key): value for key, value in includes.items()}

    add = IncludeCode.dict_update

    def add_copy(include: Any, known: dict[str, Any], key: str) -> None:
        own = copy(include)                     # each scope has its own
        own.pieces = dict(include.pieces)
        add(own, known, key)

    IncludeCode.dict_update = add_copy
    return Declarations.from_options(options)


class Build(build_ext):
    """Asks Cython when something is compiled, not for each look at the package's metadata."""

    def run(self) -> None:
        declare_tables()
        UNITS.write()
        if self.inplace:
            remove_strays()
        forget_other_ways()
        # -- a syntax tree lives as long as its module is translated: a third of Cython's time went
        #    into looking for garbage in it
        gc.set_threshold(YOUNG_OBJECTS_MAX)
        # -- the longest first: at the end no processor waits for one of them. What they share is
        #    such a one, and is not there yet
        self.extensions.sort(key=lambda one: UNITS.size(one) if one.name != SHARED else sys.maxsize,
                             reverse=True)
        self.translator = Translator(self.extensions)
        super().run()

    def build_extensions(self) -> None:
        """
        Each module is translated and compiled by one process, `parallel` of them at a time: gcc is
        at work beside Cython from the first on. What Cython has made already is compiled while the
        declarations are read.
        """
        if not os.environ.get("MQCORE_BUILD_ONLY") and self.compiler.compiler_type == "unix":
            header = self.precompiled()
            for extension in self.extensions:
                extension.extra_compile_args = [*FLAGS, "-include", header]
        waiting = [one for one in self.extensions if self.translator.waits(one)]
        ready = [one for one in self.extensions if one not in waiting and self.is_stale(one)]
        running: dict[Any, Any] = {}            # what tells of its end -> the process
        for extension in ready:
            self.start(extension, running)
        if waiting:
            self.translator.read_declarations()
            gc.freeze()                         # no process looks for garbage in what all have
        for extension in waiting:
            self.start(extension, running)
        while running:
            self.wait(running)

    def start(self, extension: Extension, running: dict[Any, Any]) -> None:
        if len(running) >= (self.parallel or 1):
            self.wait(running)
        process = multiprocessing.get_context("fork").Process(
            target=self.make, args=(extension,), name=extension.name)
        process.start()
        running[process.sentinel] = process

    def is_stale(self, extension: Extension) -> bool:
        return self.force or newer_group([*extension.sources, *extension.depends],
                                         self.get_ext_fullpath(extension.name), "newer")

    def make(self, extension: Extension) -> None:
        self.translator.translate(extension)
        self.build_extension(extension)

    def wait(self, running: dict[Any, Any]) -> None:
        """Until one of them ends. If it failed, the others end theirs, and no more are started."""
        for ended in multiprocessing.connection.wait(list(running)):
            process = running.pop(ended)
            process.join()
            if process.exitcode:
                for other in running.values():
                    other.join()
                raise CompileError(f"{process.name} was not built")

    def precompiled(self) -> str:
        """
        The path of a header with COMMON, and beside it what the compiler has made of it, which it
        reads in its place if it fits. It is the first that is compiled: here it is seen, and said,
        what a machine lacks that compiles nothing.
        """
        command = [*self.compiler.compiler_so, *FLAGS,
                   *(f"-I{folder}" for folder in self.compiler.include_dirs)]
        known = hashlib.sha256("\0".join([*command, COMMON]).encode()).hexdigest()[:16]
        header = Path(self.build_temp, f"common-{known}.h")
        if not Path(f"{header}.gch").exists():
            header.parent.mkdir(parents=True, exist_ok=True)
            header.write_text(COMMON, encoding="ascii")
            try:
                self.spawn([*command, "-x", "c-header", str(header), "-o", f"{header}.gch"])
            except ExecError as error:
                raise CompileError(f"{error}: {NEEDS}") from error
        return str(header)


setup(
    cmdclass={"build_ext": Build},
    packages=sorted(packages()),
    py_modules=sorted(path.stem for path in (ROOT / DISCOVERED).glob("*.py")),
    options={"build_ext": {"parallel": JOBS}, "egg_info": {"egg_base": "."}},
    package_dir={**packages(), "": DISCOVERED},
    package_data={"mqcore": ["*.pyi", "**/*.pyi", "py.typed", "page/templates/*", "page/static/*",
                             "page/static/vendor/*", "spark/jvm/*.jar"],
                  "mqcore.config": ["*.toml"]},
    exclude_package_data={} if PROBES else {"mqcore": ["*/probes/*"]},
    ext_modules=extensions(),
)
