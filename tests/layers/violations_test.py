"""Plants one violation at a time into a small tree and expects scripts/check-layers to name its file and line."""

import subprocess
import sys
import tempfile
from pathlib import Path

CLEAN = {
    "lib/base/error.h": "#pragma once\n#include <string>\n",
    "lib/tensor/dtype.h": '#pragma once\n#include "base/error.h"\n',
    "lib/gguf/file.h": '#pragma once\n#include "tensor/dtype.h"\n',
    "lib/graph/graph.h": '#pragma once\n#include "tensor/dtype.h"\n',
    "lib/backend/backend.h": '#pragma once\n#include "graph/graph.h"\n',
    "lib/backend/host/host.h": '#pragma once\n#include "backend/backend.h"\n',
    "lib/backend/cpu/cpu.h": '#pragma once\n#include "backend/host/host.h"\n#include <omp.h>\n',
    "lib/backend/blas/blas.h": '#pragma once\n#include "backend/host/host.h"\n',
    "lib/backend/registry/registry.cpp": '#include "backend/blas/blas.h"\n#include "backend/cpu/cpu.h"\n',
    "lib/runtime/model.cpp": '#include "backend/backend.h"\n// printf( in a comment\nconst char* s = "abort(";\n',
    "models/llama.cpp": '#include "gguf/file.h"\n',
    "apps/common/app.h": "#pragma once\n#include <CLI/CLI.hpp>\n",
    "apps/run/main.cpp": '#include "common/app.h"\n#include "backend/cpu/cpu.h"\n',
}
# file, what to append, what must be said
VIOLATIONS = [
    ("lib/base/error.h", '#include "tensor/dtype.h"', "base may not include tensor"),
    ("lib/graph/graph.h", '#include "gguf/file.h"', "graph may not include gguf"),
    ("lib/backend/backend.h", '#include "backend/host/host.h"', "backend may not include backend/host"),
    ("lib/backend/host/host.h", '#include "backend/cpu/cpu.h"', "backend/host may not include backend/cpu"),
    ("lib/backend/cpu/cpu.h", '#include "backend/blas/blas.h"', "backend/cpu may not include backend/blas"),
    ("lib/backend/cpu/cpu.h", '#include "../blas/blas.h"', "backend/cpu may not include backend/blas"),
    ("lib/backend/cpu/cpu.h", '#include "gguf/file.h"', "backend/cpu may not include gguf"),
    ("lib/runtime/model.cpp", '#include "common/app.h"', "runtime may not include apps/common"),
    ("models/llama.cpp", '#include "backend/backend.h"', "models may not include backend"),
    ("models/llama.cpp", '#include "gone.h"', "not a file of this project"),
    ("lib/other/new.h", "", "not in the table of layers"),
    ("lib/runtime/model.cpp", "#include <nlohmann/json.hpp>", "belongs to apps"),
    ("lib/gguf/file.h", "#include <iostream>", "belongs to apps"),
    ("apps/run/main.cpp", "#include <CLI/CLI.hpp>", "belongs to apps/common"),
    ("lib/gguf/file.h", 'inline void f() { std::fprintf(stderr, "x"); }', "never prints"),
    ("lib/gguf/file.h", "inline void f() { std::abort(); }", "never prints"),
    ("lib/gguf/file.h", "\n" * 1000, "longer than 1000 lines"),
]


def run(script, files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        result = subprocess.run([sys.executable, script, "--root", folder], capture_output=True, text=True)
    return result.returncode, result.stdout + result.stderr


def main():
    failures = []
    code, output = run(sys.argv[1], CLEAN)
    if code != 0:
        failures.append(f"the clean tree fails:\n{output}")
    for name, line, expected in VIOLATIONS:
        before = CLEAN.get(name, "")
        code, output = run(sys.argv[1], {**CLEAN, name: before + line + "\n"})
        lines = [x for x in output.splitlines() if x.startswith(f"{name}:") and expected in x]
        if code != 1 or len(lines) != 1 or "1 violation" not in output:
            failures.append(f"{name} with {line.strip()!r}: expected {expected!r}, exit code {code}, got:\n{output}")
    print("\n".join(failures) or f"{len(VIOLATIONS)} planted violations found")
    sys.exit(bool(failures))


main()
