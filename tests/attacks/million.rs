//! A folder with a million entries. It takes longer to make than all other cases together, so it is not one of them.

use std::time::Instant;

use harness_dispatch::Run;
use harness_sandbox::outcome::Outcome;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::process::Held;
use crate::races::project;
use crate::world::{Servers, World};

const ENTRIES: u32 = 1_000_000;
/// What is asked of it, and what must come of that: the message of a failure, or a result.
const ASKED: [(&str, Result<&str, &str>); 9] = [
    ("fs.list('many')", Err("over the limit of 100000")),
    ("fs.glob('many/*')", Err("over the limit of 100000")),
    ("fs.glob('**/*')", Err("over the limit of 100000")),
    ("fs.glob('many/f99999?')", Err("over the limit of 100000")),
    ("fs.copy('many', 'mine')", Err("kind: Files, allowed: 10000")),
    ("fs.remove('many')", Err("not empty")),
    ("fs.read('many/f999999')", Ok("\"\"")),
    ("fs.stat('many')['is_dir']", Ok("true")),
    ("len(fs.glob('src/*'))", Ok("1")),
];
/// By how much the host may be larger for it, in KiB.
const MAY_GROW: u64 = 64 << 10;

/// Whether each ended as it must, in time and without the host growing.
pub(crate) fn run(runtime: &Runtime) -> bool {
    let servers = runtime.block_on(Servers::start());
    let mut world = World::new(&servers);
    let started = Instant::now();
    world.add(&["many".to_owned(), "many".to_owned(), ENTRIES.to_string()]);
    println!("{ENTRIES} entries made in {:.1} s", started.elapsed().as_secs_f64());
    let mut fine = true;
    for (what, wanted) in ASKED {
        let project = project(&world, "sandbox: { audit: false }", &format!("def run(args):\n    return {what}\n"));
        let before = Held::from_here();
        let started = Instant::now();
        let report = runtime.block_on(project.call("it", json!({}), &Run::new())).unwrap();
        let (took, more) = (started.elapsed(), Held::peak().saturating_sub(before));
        let told = match &report.outcome {
            Outcome::Completed(_) => Ok(report.result.to_string()),
            other => Err(format!("{other:?}")),
        };
        let as_wanted = match (&told, wanted) {
            (Ok(told), Ok(wanted)) => told == wanted,
            (Err(told), Err(wanted)) => told.contains(wanted),
            _ => false,
        };
        println!("{what:<28} {:<10} {took:>12.1?} {:>4} MiB more", report.outcome.name(), more >> 10);
        if !as_wanted || more > MAY_GROW || took > report.grant.limits().timeout {
            println!("FAILED it must be {wanted:?} and was {told:?}");
            fine = false;
        }
    }
    fine
}
