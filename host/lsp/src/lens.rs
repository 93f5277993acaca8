//! Lenses over test cases: commands that run one, or all of an artifact.

use harness_artifact::agent::{Agent, Use};
use harness_artifact::cases::Case;
use harness_artifact::diagnostic::Position;
use harness_registry::Registry;
use lsp_types::{CodeLens, Command, Uri};
use serde_json::json;

use crate::{Cases, document};

/// The command that runs cases.
pub(crate) const RUN: &str = "harness.runCases";

/// The lenses of a file.
pub(crate) fn of(registry: &Registry, file: &str, uri: &Uri, text: &str) -> Vec<CodeLens> {
    let mut lenses = Vec::new();
    for tool in registry.tools() {
        add(&mut lenses, ("tool", tool.name.clone()), &tool.source, &tool.cases);
    }
    for hook in registry.hooks() {
        add(&mut lenses, ("hook", hook.name.clone()), &hook.source, &hook.cases);
    }
    for agent in registry.agents() {
        let own = |agent: &Agent, name: &str| format!("{}/{name}", agent.name);
        for tool in agent.tools.iter().filter_map(Use::inline) {
            add(&mut lenses, ("tool", own(agent, &tool.name)), &tool.source, &tool.cases);
        }
        for hook in agent.hooks.iter().filter_map(Use::inline) {
            add(&mut lenses, ("hook", own(agent, &hook.name)), &hook.source, &hook.cases);
        }
    }
    let here = lenses.into_iter().filter(|lens| &*lens.at.file == file);
    here.map(|lens| lens.shown(uri, text)).collect()
}

/// A lens before its place is known to a client.
struct Lens {
    at: Position,
    title: String,
    runs: Cases,
}

impl Lens {
    fn shown(self, uri: &Uri, text: &str) -> CodeLens {
        let arguments = Some(vec![json!(uri), json!(self.runs)]);
        let command = Command { title: self.title, command: RUN.to_owned(), arguments };
        CodeLens { range: document::range_of(text, &self.at), command: Some(command), data: None }
    }
}

fn add(lenses: &mut Vec<Lens>, (kind, name): (&str, String), source: &Position, cases: &[Case]) {
    if cases.is_empty() {
        return;
    }
    let runs = |case| Cases { kind: kind.to_owned(), name: name.clone(), case };
    let all = if cases.len() == 1 { "run 1 case".to_owned() } else { format!("run {} cases", cases.len()) };
    lenses.push(Lens { at: source.clone(), title: all, runs: runs(None) });
    for case in cases {
        let (at, title) = (case.position.clone(), "run this case".to_owned());
        lenses.push(Lens { at, title, runs: runs(Some(case.name.clone())) });
    }
}
