#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| harness_fuzz::mcp_events(bytes));
