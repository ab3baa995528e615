/* What libFuzzer calls: starts the interpreter once, asks tests/fuzz/loading.py for the address of the
   target that MQCORE_FUZZ_TARGET names, and calls that without the interpreter's lock from then on.
   With MQCORE_FUZZ_LINES, lines of Python in files whose path has that text count as coverage. */
#include <Python.h>
#include <stdio.h>
#include <string.h>

#define LINES 4096
#define FILES 512

typedef int (*fuzz_target)(const uint8_t *data, size_t size);

static fuzz_target target;
static const char *watched;
__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t lines[LINES];
/* By their names' addresses; 0: not watched */
static struct { PyObject *name; unsigned hash; } files[FILES];

static unsigned hash_of(PyObject *name) {
  size_t at = ((size_t)name >> 4) % FILES;
  const char *text;
  unsigned hash = 0;
  if (files[at].name == name) return files[at].hash;
  text = PyUnicode_AsUTF8(name);
  if (text == NULL) {
    PyErr_Clear();
    return 0;
  }
  if (strstr(text, watched))
    for (hash = 1; *text; text++) hash = hash * 31 + (unsigned char)*text;
  Py_XSETREF(files[at].name, Py_NewRef(name));   /* kept, so that the address stays its own */
  files[at].hash = hash;
  return hash;
}

static int line_runs(PyObject *self, PyFrameObject *frame, int what, PyObject *argument) {
  PyCodeObject *code;
  unsigned hash;
  (void)self;
  (void)argument;
  if (what != PyTrace_LINE) return 0;
  code = PyFrame_GetCode(frame);
  hash = hash_of(code->co_filename);
  if (hash) {
    uint8_t *line = &lines[(hash + (unsigned)PyFrame_GetLineNumber(frame) * 2654435761u) % LINES];
    *line += *line < 255;
  }
  Py_DECREF(code);
  return 0;
}

static void give_up(const char *what) {
  if (PyErr_Occurred()) PyErr_Print();
  fprintf(stderr, "fuzz: %s\n", what);
  exit(2);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  PyConfig config;
  PyObject *loading, *address;
  (void)argc;
  (void)argv;
  PyConfig_InitPythonConfig(&config);
  config.install_signal_handlers = 0;
  if (PyStatus_Exception(PyConfig_SetBytesString(&config, &config.program_name,
                                                 getenv("MQCORE_FUZZ_PYTHON"))) ||
      PyStatus_Exception(Py_InitializeFromConfig(&config)))
    give_up("the interpreter does not start");
  PyConfig_Clear(&config);
  loading = PyImport_ImportModule("tests.fuzz.loading");
  if (loading == NULL) give_up("the targets cannot be loaded");
  address = PyObject_CallMethod(loading, "address_of", "s", getenv("MQCORE_FUZZ_TARGET"));
  if (address == NULL) give_up("there is no such target");
  target = (fuzz_target)PyLong_AsVoidPtr(address);
  Py_DECREF(address);
  Py_DECREF(loading);
  watched = getenv("MQCORE_FUZZ_LINES");
  if (watched) PyEval_SetTrace(line_runs, NULL);
  PyEval_SaveThread();
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return target(data, size); }
