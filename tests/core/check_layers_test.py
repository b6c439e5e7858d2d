#!/usr/bin/env python3
"""tools/check_layers.py finds each kind of breach and passes a clean tree."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "check_layers.py"


class CheckLayers(unittest.TestCase):
    def check(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            done = subprocess.run([sys.executable, TOOL, folder], capture_output=True, text=True)
            return done.returncode, done.stdout

    def assert_clean(self, name, text):
        code, out = self.check(name, text)
        self.assertEqual(code, 0, out)

    def assert_breach(self, name, text, line):
        code, out = self.check(name, text)
        self.assertEqual(code, 1, out)
        self.assertTrue(out.startswith(f"{name}:{line}: "), out)

    def test_includes_go_up_the_list_only(self):
        self.assert_clean("src/tensor/a.cpp", '#include <vector>\n#include "core/x.hpp"\n#include "tensor/y.hpp"\n')
        self.assert_breach("src/tensor/a.cpp", '#include "core/x.hpp"\n#include "engine/e.hpp"\n', 2)
        self.assert_breach("src/core/a.hpp", '  #  include "tensor/x.hpp"\n', 1)
        self.assert_breach("src/graph/deep/a.cpp", '#include "backends/b.hpp"\n', 1)
        self.assert_breach("src/memory/a.cpp", '#include "neighbour.hpp"\n', 1)

    def test_a_new_folder_must_be_in_the_list(self):
        self.assert_breach("src/misc/a.cpp", '#include "core/x.hpp"\n', 1)

    def test_programs_and_tests_may_use_everything(self):
        self.assert_clean("apps/quipu/a.cpp", '#include "engine/x.hpp"\n#include "common.hpp"\n')
        self.assert_clean("tests/core/a.cpp", '#include "engine/x.hpp"\n')

    def test_public_headers_stand_alone(self):
        self.assert_clean("include/quipu/quipu.hpp", '#include <string>\n#include "quipu/quipu.h"\n')
        self.assert_breach("include/quipu/quipu.hpp", '#include "engine/engine.hpp"\n', 1)
        self.assert_clean("src/api/a.cpp", '#include "quipu/quipu.hpp"\n#include "engine/x.hpp"\n')
        self.assert_breach("src/engine/a.cpp", '#include "quipu/quipu.hpp"\n', 1)

    def test_files_have_at_most_600_lines(self):
        self.assert_clean("docs/a.md", "line\n" * 600)
        self.assert_breach("docs/a.md", "line\n" * 601, 601)

    def test_leftovers_are_found(self):
        for word in ("TO" + "DO", "FIX" + "ME"):
            self.assert_breach("src/core/a.cpp", f"int a;\n// {word}: later\n", 2)
        for path in ("/ho" + "me/me/model", "/wo" + "rk/x", "/ro" + "ot/x"):
            self.assert_breach("tests/core/a.cpp", f'open("{path}");\n', 1)
        self.assert_clean("docs/a.md", "the frame/wo" + "rk/of things\n")

    def test_only_tests_may_name_the_temporary_folder(self):
        path = "/t" + "mp/x"
        self.assert_clean("tests/core/a.cpp", f'open("{path}");\n')
        self.assert_breach("src/core/a.cpp", f'open("{path}");\n', 1)
        self.assert_breach("scripts/a", f"cat {path}\n", 1)

    def test_other_encodings_are_found(self):
        self.assert_breach("src/core/a.cpp", b"// \xff\n", 1)

    def test_golden_data_is_left_alone(self):
        self.assert_breach("tools/goldens/a.py", "TO" + "DO\n", 1)
        self.assert_clean("README.md", "quipu\n")
        code, out = self.check("tests/goldens/a.txt", "TO" + "DO\n")
        self.assertEqual((code, out), (1, "0 files checked, 0 breaches\n"))  # nothing to check is no success


if __name__ == "__main__":
    unittest.main()
