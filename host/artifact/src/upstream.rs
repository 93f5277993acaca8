//! Words of the original format and of formats near it that are none here, and what takes their place.
//!
//! A file that was written for another host should not fail, or be half read, without a word on what to write.

/// What to write instead of a key; none where nobody is known to write it.
pub(super) fn key(name: &str) -> Option<&'static str> {
    Some(match name {
        "condition" => {
            "artifacts have no conditions: what is written here always applies. A hook has `when`; otherwise let a hook decide, or keep the artifact in a folder that only some projects name in `artifact_sources`"
        }
        "type" => {
            "the folder says what an artifact is: leave it out. A bundle (`type: plugin`) belongs in `plugins/`, with its tools \
             and hooks in lists of its front matter"
        }
        "name" | "handler" => "an artifact has the name of its file: leave it out",
        "description" => "the text below the front matter is the description",
        "version" | "author" => "nothing reads it here: leave it out",
        "tools_enabled" => "write `tools: none` where this model is to have none; `tools: auto` is the default",
        "max_tool_calls_per_turn" => {
            "`exit_policy: { max_iterations: 10 }` bounds the rounds of a turn, for all models"
        }
        "priority" => "`overrides/` replaces by name; nothing else but a hook has a rank",
        "depends_on" => "names are resolved when everything is loaded: leave it out",
        "schema_version" | "kind" => "the folder says what an artifact is: leave it out",
        "compaction" => "`context.max_history` and `context.max_tokens` bound what a model sees",
        "rate_limit" | "rate_limits" => {
            "`delegation.budget` and `delegation.tree_budget` bound rounds, tokens and calls"
        }
        "verify_policy" => {
            "a call is verified once, within its own deadline, and fails if the result is rejected: leave it out"
        }
        "isolation" => "an agent has its parent's hooks and policy, and no more than its grant: leave it out",
        "disable-model-invocation" => "leave the skill out of this project, or deny `read_skill` in `tools_policy`",
        _ => return None,
    })
}

/// The event that is meant by a name of another host.
pub(super) fn event(name: &str) -> Option<&'static str> {
    Some(match name {
        "onPreToolUse" | "PreToolUse" | "pre_tool_use" => "tool.pre",
        "onPostToolUse" | "PostToolUse" | "post_tool_use" => "tool.post",
        "onSessionStart" | "SessionStart" => "session.start",
        "onSessionEnd" | "SessionEnd" => "session.end",
        "UserPromptSubmit" | "onUserPrompt" | "agent.start" => "turn.start",
        "Stop" | "onStop" => "agent.stop",
        "agent.turn" => "turn.end",
        "delegate.pre" | "SubagentStart" => "delegation.pre",
        "delegate.post" | "SubagentStop" => "delegation.post",
        "onError" => "error",
        _ => return None,
    })
}

/// What to write instead of a built-in, by its name with the namespace.
pub(super) fn built_in(name: &str) -> Option<&'static str> {
    let agent = "`exit_policy.mode` makes a turn end with a call of `done`, and hooks on `agent.stop` decide on it";
    (name == "ctx.agent").then_some(agent)
}

/// What to read instead of a key of a payload.
pub(super) fn payload(key: &str) -> Option<&'static str> {
    Some(match key {
        "tool_name" | "tool" => "the name of the tool is `payload[\"name\"]`",
        "agent_name" => "the name of the agent is `payload[\"agent\"]`",
        "error" => "a call that failed has `payload[\"is_error\"]`, and its `content` says why",
        _ => return None,
    })
}

/// What to write instead of a name or word of a script that could not be loaded, by its error.
pub(super) fn script(message: &str) -> Option<&'static str> {
    const EXCEPTIONS: &str =
        "Starlark has no exceptions; write a check before it (`fs.exists`), or return `{\"error\": ...}`";
    const IMPORTS: &str = "Starlark has no imports; write the name of a built-in as it is, such as `json.decode(text)`";
    const FILES: &str = "Starlark has no open files; write `fs.read(path)` or `fs.write(path, text)`";
    const SCOPES: &str =
        "Starlark has no variables of outer scopes to change; write a dict outside and change its entry";
    const ASYNC: &str = "Starlark has no coroutines; write the calls one after another, or `meta.parallel`";
    const WORDS: [(&str, &str); 26] = [
        ("isinstance", "Starlark has no classes; write `type(x) == \"string\"`: also int, float, bool, list, dict"),
        ("try", EXCEPTIONS),
        ("except", EXCEPTIONS),
        ("finally", EXCEPTIONS),
        ("raise", "Starlark has no `raise`; write `fail(\"why\")`, or return `{\"error\": ...}`"),
        ("assert", "Starlark has no `assert`; write `if not condition: fail(\"why\")`"),
        ("import", IMPORTS),
        ("from", IMPORTS),
        ("class", "Starlark has no classes; write a dict, and functions that take it"),
        ("while", "Starlark has no `while`; write `for` over a `range` with a bound, and `break`"),
        ("with", FILES),
        ("open", FILES),
        ("as", FILES),
        ("lambda", "write a function with `def`"),
        ("del", "Starlark has no `del`; write `d.pop(key)` of a dict, `l.remove(item)` of a list"),
        ("yield", "Starlark has no generators; write a list and return it"),
        ("global", SCOPES),
        ("nonlocal", SCOPES),
        ("async", ASYNC),
        ("await", ASYNC),
        ("sum", "Starlark has no `sum`; write a loop that adds"),
        ("sys", "Starlark has no library of Python's; write built-ins, which docs/builtins.md lists"),
        ("tool", "the name of the tool is `payload[\"name\"]`"),
        ("tool_name", "the name of the tool is `payload[\"name\"]`"),
        ("is", "Starlark has no `is`; write `==`, or `!=` for `is not`"),
        ("pow", "Starlark has no powers; write a loop that multiplies"),
    ];
    // By how the parser words it.
    const FORMS: [(&str, &str); 6] = [
        ("f-strings", "Starlark has no f-strings here; write `\"%s\" % x`, or `\"{}\".format(x)`"),
        (
            "unexpected keyword 'for', expected symbol ')'",
            "Starlark has no generators; write a list comprehension: `any([x for x in y])`",
        ),
        ("unexpected symbol '**'", "Starlark has no powers; write a loop that multiplies"),
        ("unexpected symbol ',', expected symbol ':'", "Starlark has no sets in braces; write `set([1, 2])`"),
        (
            "unexpected symbol ':', expected symbol ')'",
            "Starlark has no `:=`; write the assignment on a line before it",
        ),
        ("type annotations are not allowed", "Starlark has no type annotations here; write the name alone"),
    ];
    let named = |word: &str| message.contains(&format!("`{word}`"));
    let form = FORMS.into_iter().find(|(form, _)| message.contains(form));
    form.or_else(|| WORDS.into_iter().find(|(word, _)| named(word))).map(|(_, hint)| hint)
}

#[cfg(test)]
mod tests {
    use super::super::bundle::Bundle;
    use super::super::event::Event;
    use super::super::tool::Tool;
    use super::*;

    #[test]
    fn every_event_that_is_meant_is_one() {
        for name in
            ["onPreToolUse", "PostToolUse", "agent.start", "agent.turn", "delegate.pre", "delegate.post", "Stop"]
        {
            assert!(Event::parse(name).is_none() && Event::parse(event(name).unwrap()).is_some(), "{name}");
        }
        assert_eq!(event("tool.per"), None);
    }

    #[test]
    fn built_ins_and_keys_of_another_host() {
        assert!(built_in("ctx.agent").is_some() && built_in("ctx.get").is_none());
        assert!(payload("tool_name").is_some() && payload("name").is_none());
    }

    #[test]
    fn a_file_of_another_host_says_what_to_write() {
        let hints = |diagnostics: super::super::diagnostic::Diagnostics| -> Vec<String> {
            diagnostics.iter().map(|one| format!("{}: {}", one.message, one.hint.clone().unwrap_or_default())).collect()
        };
        let text = "---\nname: x\ntype: plugin\ndepends_on: [core]\ncondition: 'True'\nhooks:\n  - event: onPostToolUse\n---\n";
        let found = hints(Bundle::parse(".harness/plugins/x.md", "plugins/x", text).1);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("unknown key `depends_on`, it is ignored: names are resolved"), "{found:?}");
        assert!(
            found[1].starts_with("unknown key `condition`, it is ignored: artifacts have no conditions"),
            "{found:?}"
        );
        assert!(found[2].ends_with("\"onPostToolUse\" is invalid: here it is `tool.post`"), "{found:?}");
        let found = hints(Tool::parse(".harness/tools/x.md", "x", "---\ntype: plugin\n---\n").1);
        assert!(found[0].contains("A bundle (`type: plugin`) belongs in `plugins/`"), "{found:?}");
    }
}
