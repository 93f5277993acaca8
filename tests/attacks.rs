//! The attack corpus: what the sandbox promises, tried by someone who knows its code.
//!
//! A case says what is tried and what must come of it, and holds its own control: the same with the grant present, or its
//! harmless twin, which must succeed. After each case the runner looks whether anything was touched or told that lies
//! outside of the grant, whatever the verdict was, and at the end whether the host itself has grown.
//!
//! - `cases/*.toml`: the cases, one file for each area of `docs/security.md`
//! - `guests/`: WebAssembly written by hand, instead of the interpreter
//! - `case`: a case as the files have it
//! - `world`: the folder, the servers and the secrets that it is tried in
//! - `attempt`: one call, and how it ended
//! - `answers`: a client that answers what scripts ask
//! - `corpus`: a case with its control, from beginning to end
//! - `guests`, `compose`: a guest that is no interpreter, and how a component is made of it
//! - `imports`, `forged`: every function of the contract, called by such a guest in every bad way that its type allows
//! - `races`, `state`, `mounts`, `printed`, `logs`: what no table can say
//! - `tenants`: two projects of one host, of which one is after the other
//! - `host`: what a broken-out guest would do in the host's own process
//! - `clients`: clients of the Model Context Protocol that are after the project behind `harness mcp serve`
//! - `servers`: servers of other programs that are after the project which has started them
//! - `plugins`: plugins from elsewhere that are after the operator who reviews them
//! - `page`: whether `docs/security.md` shows the true numbers
//! - `process`: what the runner looks at in its own process
//! - `soak`: very many calls
//! - `million`: a folder with a million entries
//! - `mutants`: what of this fails when a check of the host is taken away
//!
//! It has a `main` of its own, for the table and because nothing else may run in the process:
//!
//! ```text
//! cargo test --release --test attacks                      all but the long ones
//! cargo test --release --test attacks -- paths network-01  those whose id begins so
//! cargo test --release --test attacks -- --confined        in a process that has given up what it does not need
//! cargo test --release --test attacks -- --ignored soak    a million calls; ATTACKS_SOAK_CALLS sets how many
//! cargo test --release --test attacks -- --ignored million a folder with a million entries, which takes half a minute
//! cargo test --release --test attacks -- --ignored mutants the mutation score
//! ```

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::expect_used,
    clippy::string_slice,
    dead_code,
    reason = "a test ends where something is not as expected, and this one is a program too"
)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The areas of one of the two processes that share a whole run: they take about as long as all others together.
const HALF: [&str; 4] = ["guests", "clients", "servers", "plugins"];

/// The argument that names areas.
const AREAS: &str = "--areas=";

#[path = "attacks/answers.rs"]
mod answers;
#[path = "attacks/attempt.rs"]
mod attempt;
#[path = "attacks/case.rs"]
mod case;
#[path = "mcp/client.rs"]
mod client;
#[path = "attacks/clients.rs"]
mod clients;
#[path = "attacks/compose.rs"]
mod compose;
#[path = "attacks/corpus.rs"]
mod corpus;
#[path = "attacks/forged.rs"]
mod forged;
#[path = "attacks/guests.rs"]
mod guests;
#[path = "attacks/host.rs"]
mod host;
#[path = "attacks/imports.rs"]
mod imports;
#[path = "attacks/logs.rs"]
mod logs;
#[path = "attacks/million.rs"]
mod million;
#[path = "attacks/mounts.rs"]
mod mounts;
#[path = "attacks/mutants.rs"]
mod mutants;
#[path = "attacks/page.rs"]
mod page;
#[path = "attacks/plugins.rs"]
mod plugins;
#[path = "attacks/printed.rs"]
mod printed;
#[path = "attacks/process.rs"]
mod process;
#[path = "cli/project.rs"]
mod project;
#[path = "attacks/races.rs"]
mod races;
#[path = "attacks/server.rs"]
mod server;
#[path = "attacks/servers.rs"]
mod servers;
#[path = "attacks/soak.rs"]
mod soak;
#[path = "attacks/state.rs"]
mod state;
#[path = "attacks/tenants.rs"]
mod tenants;
#[path = "mcp/web.rs"]
mod web;
#[path = "attacks/world.rs"]
mod world;

/// Arguments of `cargo test`, as far as they mean something here.
struct Arguments {
    list: bool,
    ignored: bool,
    /// Only what begins so; all where there is none.
    chosen: Vec<String>,
    /// Of these areas only: what a run tells the two processes that share it.
    areas: Option<String>,
    /// End at the first that fails.
    fail_fast: bool,
    /// Give up first what a host whose commands have the network does not need.
    confined: bool,
}

impl Arguments {
    fn read() -> Self {
        let mut arguments =
            Self { list: false, ignored: false, chosen: Vec::new(), areas: None, fail_fast: false, confined: false };
        for argument in std::env::args().skip(1) {
            match argument.as_str() {
                "--list" => arguments.list = true,
                "--ignored" => arguments.ignored = true,
                "--confined" => arguments.confined = true,
                "--fail-fast" => arguments.fail_fast = true,
                other if other.starts_with(AREAS) => arguments.areas = other.strip_prefix(AREAS).map(str::to_owned),
                other if !other.starts_with('-') => arguments.chosen.push(other.to_owned()),
                _ => {}
            }
        }
        arguments
    }

    fn takes(&self, case: &corpus::Any) -> bool {
        let id = case.id();
        self.areas.as_ref().is_none_or(|areas| areas.split(',').any(|area| area == case.area()))
            && (self.chosen.is_empty() || self.chosen.iter().any(|chosen| id.starts_with(chosen.as_str())))
    }
}

/// Runs the areas of both halves in two processes, side by side: many cases wait for something, and each process looks at
/// itself alone. Gives back how many cases failed.
fn in_two() -> usize {
    let (first, second): (Vec<&str>, Vec<&str>) = corpus::AREAS.into_iter().partition(|area| !HALF.contains(area));
    let run = |areas: Vec<&str>| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(std::env::args().skip(1)).arg(format!("{AREAS}{}", areas.join(",")));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut failed = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap) {
            println!("{line}");
            // The last line has it.
            let words: Vec<&str> = line.split(' ').collect();
            let told = words.iter().position(|word| *word == "failed,").and_then(|at| words[at - 1].parse().ok());
            failed = told.unwrap_or(failed);
        }
        // One that was ended has told nothing.
        if child.wait().unwrap().success() { 0 } else { failed.max(1) }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(second));
        run(first) + other.join().unwrap()
    })
}

fn main() {
    if host::inside() {
        return;
    }
    process::set_traps();
    let arguments = Arguments::read();
    if arguments.confined {
        host::confine();
    }
    let runtime = process::runtime();
    if arguments.ignored {
        let failed = match arguments.chosen.first().map(String::as_str) {
            Some("soak") => !soak::run(&runtime),
            Some("million") => !million::run(&runtime),
            Some("mutants") => !mutants::run(),
            _ => return println!("long ones: `soak`, `million`, `mutants`"),
        };
        std::process::exit(i32::from(failed) * 101);
    }

    let started = Instant::now();
    let mut cases = corpus::all();
    let mut wrong = Vec::new();
    if arguments.areas.is_none() {
        wrong.extend(corpus::check(&cases));
        wrong.extend(page::check(&cases));
        wrong.extend(mutants::check());
    }
    cases.retain(|case| arguments.takes(case));
    if arguments.list {
        cases.iter().for_each(|case| println!("{}: test", case.id()));
        return;
    }
    let halves = |of_half: bool| cases.iter().any(|case| HALF.contains(&case.area()) == of_half);
    let mut failed = if arguments.areas.is_none() && halves(true) && halves(false) {
        in_two()
    } else {
        let servers = runtime.block_on(world::Servers::start());
        corpus::run(&runtime, &servers, &cases, &arguments)
    };
    wrong.iter().for_each(|wrong| println!("\nFAILED the corpus: {wrong}"));
    failed += wrong.len();
    let known = cases.iter().filter(|case| case.known()).count();
    println!(
        "\n{} cases ({known} were found in others), {failed} failed, {:.1} s",
        cases.len(),
        started.elapsed().as_secs_f64()
    );
    std::process::exit(i32::from(failed > 0) * 101);
}
