//! Runs untrusted tools and policy hooks for AI agents, each call in a WebAssembly instance of its own.
