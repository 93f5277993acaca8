//! `harness skills`: the skills, and which of them agents are shown.

use harness_artifact::escape;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::skill::Skill;
use harness_artifact::tool::READ_SKILL;
use harness_policy::layer::Service;
use serde_json::{Value as Json, json};

use super::args::{Listing, ProjectArgs};
use super::exit::Exit;
use super::printer::Printer;
use super::project;

pub(crate) fn run(command: &Listing, place: &ProjectArgs, printer: &Printer) -> Exit {
    let registry = project::registry(place);
    project::report(&registry, *printer);
    let Some(policy) = registry.policy() else { return Exit::Usage };
    if command.json {
        printer.json(&json!(registry.skills().iter().map(|skill| as_json(skill, policy)).collect::<Vec<_>>()));
    } else {
        let mut text = String::new();
        for skill in registry.skills() {
            text.push_str(&format!("{}  {}\n", escape::line(&skill.name), escape::line(&skill.source.file)));
            text.push_str(&lines(skill, policy));
        }
        match text.is_empty() {
            true => printer.say("no skills: write one in `.harness/skills/`"),
            false => printer.data(&text),
        }
    }
    if registry.diagnostics().has_errors() { Exit::Usage } else { Exit::Completed }
}

/// What is said of a skill below its name.
pub(crate) fn lines(skill: &Skill, policy: &ProjectPolicy) -> String {
    let mut text = format!("    {}\n", escape::line(&skill.description));
    if !skill.files.is_empty() {
        let bytes: u64 = skill.files.iter().map(|file| file.bytes).sum();
        let files = skill.files.len();
        text.push_str(&format!("    beside it: {files} file{}, {bytes} bytes\n", if files == 1 { "" } else { "s" }));
    }
    if let Err((why, hint)) = shown(skill, policy) {
        text.push_str(&format!("    not shown to agents: {}; {}\n", escape::line(&why), escape::line(&hint)));
    }
    text
}

/// Whether agents are shown it; else why not, and what would change that.
fn shown(skill: &Skill, policy: &ProjectPolicy) -> Result<(), (String, String)> {
    let service = policy.grant_for(&skill.source_name, None).decide_service(Service::Prompt);
    let tool = policy.tools.decide(READ_SKILL);
    service.and(tool).map_err(|refusal| (refusal.reason, refusal.hint))
}

pub(crate) fn as_json(skill: &Skill, policy: &ProjectPolicy) -> Json {
    json!({
        "name": skill.name,
        "description": skill.description.value,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "allowed_tools": skill.tools.iter().map(|tool| &tool.value).collect::<Vec<_>>(),
        "files": skill.files.iter().map(|file| json!({"path": file.path, "bytes": file.bytes, "sha256": file.sha256})).collect::<Vec<_>>(),
        "shown": shown(skill, policy).is_ok(),
        "file": &*skill.source.file,
        "line": skill.source.line,
        "source": skill.source_name,
    })
}
