"""A client of `rye acp` with the Python SDK: new, prompt, permission, cancel, list, load."""

import asyncio
import os
import sys
from pathlib import Path

import acp
from acp import schema


class Recorder(acp.Client):
    """Keeps the updates, and allows each call once."""

    def __init__(self):
        self.updates = []
        self.asked = 0

    def on_connect(self, conn):
        pass

    async def session_update(self, session_id, update, **_):
        self.updates.append(update)

    async def request_permission(self, options, session_id, tool_call, **_):
        self.asked += 1
        once = next(option for option in options if option.kind == "allow_once")
        chosen = schema.AllowedOutcome(outcome="selected", option_id=once.option_id)
        return schema.RequestPermissionResponse(outcome=chosen)

    def text(self, kind):
        chunks = [update for update in self.updates if update.session_update == kind]
        return "".join(update.content.text for update in chunks)


async def drive(rye, root):
    env = {"PATH": os.environ["PATH"], "HOME": str(root / ".home")}
    command = [rye, "acp", "talk", "--script", "script.yaml"]

    recorder = Recorder()
    async with acp.spawn_agent_process(lambda _: recorder, *command, env=env, cwd=root) as (agent, _):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session = await agent.new_session(cwd=str(root), mcp_servers=[])
        done = await agent.prompt(session_id=session.session_id, prompt=[acp.text_block("go")])
        assert done.stop_reason == "end_turn", done
        assert recorder.asked == 1 and recorder.text("agent_message_chunk") == "Done.", recorder.updates
        assert (root / "out/log").read_text() == "one\n"
        waiting = asyncio.create_task(agent.prompt(session_id=session.session_id, prompt=[acp.text_block("wait")]))
        await asyncio.sleep(1)
        await agent.cancel(session_id=session.session_id)
        assert (await waiting).stop_reason == "cancelled"
        await agent.close_session(session_id=session.session_id)

    recorder = Recorder()
    async with acp.spawn_agent_process(lambda _: recorder, *command, env=env, cwd=root) as (agent, _):
        await agent.initialize(protocol_version=acp.PROTOCOL_VERSION)
        listed = await agent.list_sessions(cwd=str(root))
        assert listed.sessions[0].session_id == session.session_id and listed.sessions[0].title == "go", listed
        await agent.load_session(session_id=session.session_id, cwd=str(root), mcp_servers=[])
        assert recorder.text("agent_message_chunk").startswith("Done."), recorder.updates
        assert recorder.text("user_message_chunk").startswith("go"), recorder.updates


asyncio.run(drive(sys.argv[1], Path(sys.argv[2])))
