"""A client in Python, generated from the description of the interface."""

import json
import sys

from harness_client import AuthenticatedClient
from harness_client.api.default import begin_run, call_tool, follow_run, list_tools, show_run
from harness_client.models import Call, CallRequest, CallRequestArguments, Problem, Run, RunRequest, Tools

client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2], timeout=60)
tools = list_tools.sync(client=client)
assert isinstance(tools, Tools) and [tool.name for tool in tools.tools] == ["greet"], tools
arguments = CallRequestArguments.from_dict({"name": "Grace"})
body = CallRequest(arguments=arguments)
called = call_tool.sync("greet", client=client, body=body, idempotency_key="generated-python")
assert isinstance(called, Call) and called.outcome == "completed" and called.content == "Hello, Grace", called
begun = begin_run.sync(client=client, body=RunRequest(input_="Greet Ada"))
assert isinstance(begun, Run) and begun.state == "running", begun
followed = follow_run.sync_detailed(begun.id, client=client)
assert followed.status_code == 200, followed
lines = followed.content.decode().splitlines()
events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
assert (events[0]["type"], events[-1]["type"]) == ("began", "end"), events
shown = show_run.sync(begun.id, client=client)
assert isinstance(shown, Run) and (shown.state, shown.kind) == ("completed", "turn"), shown
missing = show_run.sync_detailed("none", client=client)
assert missing.status_code == 404 and isinstance(missing.parsed, Problem), missing
assert missing.parsed.type_ == "urn:harness:problem:not_found", missing
assert missing.headers["content-type"] == "application/problem+json", missing
print("a generated client in Python: tools, a call, a run with its events, and an error")
