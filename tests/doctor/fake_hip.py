"""A small HIP library, compiled for a test: two devices that answer as the real one does, and fail on demand."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

NUM_DEVICES = 2

# Each function first asks `refused`, so that FAKE_HIP_FAIL=name=status makes any call fail; FAKE_HIP_LOG gets a line
# for each one that did not. Functions named in WITHOUT_* are left out, as from an older release.
SOURCE = r"""
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char reserved[64]; } Handle;
static int current = -1;
static char page[4096];

static int refused(const char *name) {
  const char *fail = getenv("FAKE_HIP_FAIL"), *log = getenv("FAKE_HIP_LOG");
  size_t length = strlen(name);
  if (fail && !strncmp(fail, name, length) && fail[length] == '=') return atoi(fail + length + 1);
  if (log) {
    FILE *file = fopen(log, "a");
    fprintf(file, "%s %d\n", name, current);
    fclose(file);
  }
  return 0;
}

#define ASK(name) int status = refused(name); if (status) return status
#define DEVICE(device) if ((device) < 0 || (device) >= NUM_DEVICES) return 101

int hipGetDeviceCount(int *count) { ASK("hipGetDeviceCount"); *count = NUM_DEVICES; return 0; }
int hipDriverGetVersion(int *version) { ASK("hipDriverGetVersion"); *version = 71426015; return 0; }
#ifndef WITHOUT_hipRuntimeGetVersion
int hipRuntimeGetVersion(int *version) { ASK("hipRuntimeGetVersion"); *version = 71426016; return 0; }
#endif
#ifndef WITHOUT_hipDeviceGetPCIBusId
int hipDeviceGetPCIBusId(char *text, int bytes, int device) {
  ASK("hipDeviceGetPCIBusId"); DEVICE(device);
  snprintf(text, bytes, "0000:%02X:00.0", 0x75 + device);
  return 0;
}
#endif
#ifndef WITHOUT_hipDeviceGetAttribute
int hipDeviceGetAttribute(int *value, int attribute, int device) {
  ASK("hipDeviceGetAttribute"); DEVICE(device);
  if (attribute != 63) return 1;
  *value = 256;
  return 0;
}
#endif
#ifndef WITHOUT_hipDeviceCanAccessPeer
int hipDeviceCanAccessPeer(int *can, int device, int peer) {
  ASK("hipDeviceCanAccessPeer"); DEVICE(device); DEVICE(peer);
  *can = device != peer;
  return 0;
}
#endif
#ifndef WITHOUT_hipSetDevice
int hipSetDevice(int device) { ASK("hipSetDevice"); DEVICE(device); current = device; return 0; }
#endif
#ifndef WITHOUT_hipMemGetInfo
int hipMemGetInfo(size_t *free, size_t *total) {
  ASK("hipMemGetInfo"); DEVICE(current);
  *free = (size_t)287 << 30;
  *total = (size_t)288 << 30;
  return 0;
}
#endif
#ifndef WITHOUT_hipExtMallocWithFlags
int hipExtMallocWithFlags(void **address, size_t bytes, unsigned flags) {
  ASK("hipExtMallocWithFlags"); DEVICE(current);
  if (flags != 3 || bytes % 4096) return 1;
  *address = page;
  return 0;
}
#endif
#ifndef WITHOUT_hipFree
int hipFree(void *address) { ASK("hipFree"); return address == page ? 0 : 17; }
#endif
#ifndef WITHOUT_hipIpcGetMemHandle
int hipIpcGetMemHandle(Handle *handle, void *address) {
  ASK("hipIpcGetMemHandle");
  if (address != page) return 17;
  memset(handle, 0, sizeof *handle);
  snprintf(handle->reserved, sizeof handle->reserved, "%d of %d", current, getpid());
  return 0;
}
#endif
#ifndef WITHOUT_hipIpcOpenMemHandle
int hipIpcOpenMemHandle(void **address, Handle handle, unsigned flags) {
  ASK("hipIpcOpenMemHandle"); DEVICE(current);
  int owner, process;
  if (flags != 1 || sscanf(handle.reserved, "%d of %d", &owner, &process) != 2) return 1;
  /* A process cannot import its own memory; a peer imports it on another device. */
  if (process == getpid()) return 201;
  if (owner == current) return 1;
  *address = page;
  return 0;
}
#endif
#ifndef WITHOUT_hipIpcCloseMemHandle
int hipIpcCloseMemHandle(void *address) { ASK("hipIpcCloseMemHandle"); return address == page ? 0 : 17; }
#endif
"""


def build(folder: Path, without: Iterable[str] = ()) -> Path:
    """The folder that holds `libamdhip64.so.7`, for LD_LIBRARY_PATH."""
    source = folder / "fake_hip.c"
    source.write_text(SOURCE)
    defines = [f"-DNUM_DEVICES={NUM_DEVICES}", *(f"-DWITHOUT_{name}" for name in without)]
    command = ["cc", "-Wall", "-Werror", "-shared", "-fPIC", *defines, "-o", folder / "libamdhip64.so.7", source]
    subprocess.run(command, check=True)
    return folder
