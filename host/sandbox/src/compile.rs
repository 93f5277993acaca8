//! How guest code is compiled. The host's build script includes this file too: machine code made with other settings
//! than the engine's is refused when it is loaded.

use wasmtime::{Config, OptLevel, Result};

/// Native stack that guest code may use, in bytes. An interpreter in Rust needs a few hundred kilobytes for the
/// deepest expression that its parser takes; what runs past it ends with a stack overflow, never with the host's.
pub(crate) const MAX_STACK: usize = 1 << 20;

/// What is left for the host on the same stack, in bytes: host functions run there, a call that a script makes among them,
/// and a whole turn of an agent where it calls one. Running past it would end the process. Half a megabyte is used, optimized
/// as for a release; what is never touched takes address space and no memory.
const HOST_STACK: usize = 3 << 20;

/// The largest linear memory that is reserved as address space for an instance, and so the most that a policy can
/// grant: 4 GiB, all that 32-bit memory can be.
pub(crate) const MEMORY_RESERVATION: u64 = 1 << 32;

/// What each x86-64 processor since 2009 has, level 2 of the ABI, by the names that Cranelift has for it.
const X86_64: [&str; 6] = ["has_cmpxchg16b", "has_sse3", "has_ssse3", "has_sse41", "has_sse42", "has_popcnt"];

/// Settings that change machine code: the same when the interpreter is compiled, with the host, and when the host
/// loads it. Nothing of the machine that compiles goes in, so that the binary runs on others and is the same bytes
/// wherever it is compiled: without a target, the engine would use all that this processor has.
pub(crate) fn config(target: &str) -> Result<Config> {
    let mut config = Config::new();
    config.target(target)?;
    if target.starts_with("x86_64-") {
        for feature in X86_64 {
            #[expect(unsafe_code, reason = "there is no other way to name a feature")]
            // SAFETY: the engine refuses to load the code on a processor that lacks one of them.
            unsafe {
                config.cranelift_flag_enable(feature);
            }
        }
    }
    config.cranelift_opt_level(OptLevel::Speed);
    config.consume_fuel(true);
    config.epoch_interruption(true);
    config.max_wasm_stack(MAX_STACK);
    config.async_stack_size(MAX_STACK + HOST_STACK);
    config.memory_reservation(MEMORY_RESERVATION);
    // It never has to: all that a memory can grow to is reserved. Its place can then be kept in a register.
    config.memory_may_move(false);
    // What only debugging needs, and what the guest does not use and a hostile one should not have.
    config.generate_address_map(false);
    config.native_unwind_info(false);
    config.wasm_backtrace_max_frames(None);
    config.wasm_relaxed_simd(false);
    config.wasm_memory64(false);
    config.wasm_multi_memory(false);
    config.wasm_tail_call(false);
    config.concurrency_support(false);
    Ok(config)
}
