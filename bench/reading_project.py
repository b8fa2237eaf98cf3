"""The project of `turns.py` and `rig.py`: a directive that reads a note many times, and a provider on loopback."""

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
