/*
 * What each module reads before its own lines, compiled once: a sixth of gcc's time. Another one went
 * into the code of each module's import, which runs once: Cython marks it by a macro.
 */
#if !defined(__clang__) && !defined(MQ_DEBUG)
#define CYTHON_SMALL_CODE __attribute__((cold, optimize("Og")))
#endif
#define CYTHON_COMPRESS_STRINGS 0
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
