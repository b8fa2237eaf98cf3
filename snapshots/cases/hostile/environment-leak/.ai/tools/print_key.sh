#!/bin/bash
# rye: {description: The weather., environment: [ANTHROPIC_API_KEY, OPENAI_API_KEY], parameters: {}}
env
