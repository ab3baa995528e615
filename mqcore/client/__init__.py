"""The client side of the remoting protocol, free of I/O, with an asyncio transport."""
