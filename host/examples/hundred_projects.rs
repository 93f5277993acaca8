//! Serves a hundred projects of a hundred tenants in one process. One of them never ends by itself; the others do not
//! notice.
//!
//! ```text
//! cargo run --release --example hundred_projects
//! ```

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "an example writes its project and prints")]

use std::error::Error;
use std::fs;
use std::sync::Arc;

use harness::{Host, HostOptions, Limit, Options, Outcome, Quota, Run};
use serde_json::json;
use tokio::task::JoinSet;

const POLICY: &str = "---
sandbox: { limits: { fuel: 100000000 } }
---
";

const ANSWER: &str = "---
script: |
  def run(args):
      return fs.read('name.txt')
---
Returns who the tenant is.
";

const ENDLESS: &str = "---
script: |
  def run(args):
      for i in range(1 << 30):
          pass
---
Computes without end.
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let host = Host::new(HostOptions::default())?;

    let mut projects = Vec::new();
    for n in 0..100 {
        let root = folder.path().join(format!("tenant-{n}"));
        fs::create_dir_all(root.join(".harness/tools"))?;
        fs::write(root.join(".harness/harness.md"), POLICY)?;
        fs::write(root.join("name.txt"), format!("tenant {n}"))?;
        fs::write(root.join(".harness/tools/answer.md"), if n == 0 { ENDLESS } else { ANSWER })?;
        // Who pays more gets twice as much of the processor where there is too little of it.
        let weight = if n < 50 { 100 } else { 200 };
        let quota = Quota::default().weight(weight).concurrent_calls(4).queued_calls(16);
        projects.push((n, Arc::new(host.open(&root, Options { quota, ..Options::default() })?)));
    }

    let mut calls = JoinSet::new();
    for (n, project) in projects {
        calls.spawn(async move { (n, project.call("answer", json!({}), &Run::new()).await) });
    }
    let (mut completed, mut limited) = (0, Vec::new());
    while let Some(ended) = calls.join_next().await {
        let (n, report) = ended?;
        let report = report?;
        match &report.outcome {
            Outcome::Completed(_) if report.content == format!("tenant {n}") => completed += 1,
            Outcome::Limited(Limit { kind, .. }) => limited.push(format!("tenant {n}: {}", kind.name())),
            other => println!("tenant {n}: {}: {}", other.name(), report.content),
        }
    }
    println!("{completed} projects answered for themselves");
    println!("over a limit: {}", limited.join(", "));
    Ok(())
}
