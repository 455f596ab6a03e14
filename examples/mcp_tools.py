"""What an agent does with mcp.json, its list of tool servers: python mcp_tools.py mcp.json

Needs: pip install mcp
"""

import asyncio
import json
import sys
from pathlib import Path

from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client


async def main(config: Path) -> None:
    url = json.loads(config.read_text())["mcpServers"]["memory"]["url"]
    async with Client(streamable_http_client(url)) as client:
        print("tools:", [tool.name for tool in (await client.list_tools()).tools])
        await client.call_tool("add_memory", {"text": "Eve moved to Lisbon."})
        found = await client.call_tool("search_memories", {"query": "Where does Eve live?"})
        print("found:", found.structured_content)


asyncio.run(main(Path(sys.argv[1])))
