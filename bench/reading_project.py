"""The project of `turns.py`, `rig.py` and `instructions.py`: a directive that reads a note many times, and a provider on loopback."""

import os
import subprocess

DIRECTIVE = """# Read

```xml
<directive name="{name}" version="1.0.0">
  <metadata>
    <description>Read a note many times.</description>
    <model provider="local"/>
    <limits turns="{turns}" tokens="1000000000" spend="1000"/>
    <permissions><execute><tool>rye.file-system.read</tool></execute></permissions>
    <nudge>never</nudge>
  </metadata>
</directive>
```

Read the note again and again.
"""

PROVIDER = """id: local
wire: openai-chat
base_url: http://127.0.0.1:{port}/v1
default_tier: general
tiers: {{ general: model }}
models:
  - {{ id: model, context_window: 100000000, max_output: 4096, prices: none }}
"""


def write_project(folder, rye, port):
    """Writes a project with the directive `loop` into an empty folder and trusts it. The provider listens on a port of this machine.
    Returns the environment for `rye`."""
    for path in (".ai/directives", ".ai/config/agent/providers", "user/.ai"):
        (folder / path).mkdir(parents=True)
    (folder / "note.txt").write_text("a note\n")
    (folder / ".ai/directives/loop.md").write_text(DIRECTIVE.format(name="loop", turns=100))
    (folder / ".ai/config/agent/providers/local.yaml").write_text(PROVIDER.format(port=port))
    env = {**os.environ, "RYE_USER_SPACE": str(folder / "user"), "NO_COLOR": "1"}
    subprocess.run([rye, "trust", "--project", folder], env=env, check=True, capture_output=True)
    return env
