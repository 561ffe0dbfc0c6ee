"""What someone who talks to MCP servers uses: discover, connect, and the calls, the same for both eras and every transport."""
