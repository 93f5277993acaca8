//! Calls a tool of a project, as the project's policy has it and as a caller that is granted less.
//!
//! ```text
//! cargo run --release --example call_tool
//! ```

#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "an example writes its project and prints")]

use std::error::Error;
use std::fs;

use harness::{Options, Outcome, Project, Run, layer};
use serde_json::json;

const POLICY: &str = "---
fs: { read: [docs, notes] }
---
";

const FIRST_LINE: &str = r#"---
parameters:
  path: { type: string, required: true }
script: |
  def run(args):
      return fs.read(args["path"]).splitlines()[0]
---
Returns the first line of a text file.
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let root = folder.path();
    fs::create_dir_all(root.join(".harness/tools"))?;
    fs::write(root.join(".harness/harness.md"), POLICY)?;
    fs::write(root.join(".harness/tools/first_line.md"), FIRST_LINE)?;
    for name in ["docs", "notes"] {
        fs::create_dir(root.join(name))?;
        fs::write(root.join(name).join("a.md"), format!("The first line of {name}.\nAnd another.\n"))?;
    }

    let project = Project::open(root, Options::default())?;
    let own = Run::new();
    // A caller that may read `docs` and nothing else, whatever the policy of the project grants.
    let (docs_only, _) = layer::parse("caller", "fs: { read: [docs] }");
    let narrowed = Run::narrowed(docs_only.into_iter().collect());

    for (caller, run) in [("own", &own), ("narrowed", &narrowed)] {
        for path in ["docs/a.md", "notes/a.md"] {
            let report = project.call("first_line", json!({"path": path}), run).await?;
            match &report.outcome {
                Outcome::Completed(_) => println!("{caller} {path}: {}", report.content),
                Outcome::Denied { refusal, .. } => println!("{caller} {path}: denied: {}", refusal.reason),
                other => println!("{caller} {path}: {}", other.name()),
            }
        }
    }
    Ok(())
}
