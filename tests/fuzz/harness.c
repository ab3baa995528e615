/* What libFuzzer calls: starts the interpreter once, asks tests/fuzz/loading.py for the address of the
   target that MQCORE_FUZZ_TARGET names, and calls that without the interpreter's lock from then on. */
#include <Python.h>
#include <stdio.h>

typedef int (*fuzz_target)(const uint8_t *data, size_t size);

static fuzz_target target;

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
  PyEval_SaveThread();
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return target(data, size); }
