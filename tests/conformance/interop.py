"""Lists and calls tools with the official Python SDK, over standard input and over HTTP, in each way that it begins:

    interop.py URL COMMAND [ARGUMENT...]
"""

import asyncio
import sys

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client


async def uses(server, mode):
    """What a client does first, and its answers."""
    async with Client(server, mode=mode) as client:
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28"), client.protocol_version
        # A client that names its version at once asks nothing of the server.
        assert mode not in ("legacy", "auto") or client.server_info.name == "harness", mode
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["greet"].input_schema["required"] == ["name"]
        greeted = await client.call_tool("greet", {"name": "Ada"})
        assert [block.text for block in greeted.content] == ["Hello, Ada!"] and not greeted.is_error
        assert (await client.call_tool("greet", {})).is_error
        try:
            await client.call_tool("nothing", {})
            raise AssertionError("a tool that does not exist was called")
        except MCPError as error:
            assert error.code == -32602, error


async def main(url, command, *arguments):
    for mode in ("legacy", "auto", "2026-07-28"):
        await uses(stdio_client(StdioServerParameters(command=command, args=list(arguments))), mode)
        await uses(url, mode)


asyncio.run(main(*sys.argv[1:]))
print("the Python SDK lists and calls over both transports, in both eras")
