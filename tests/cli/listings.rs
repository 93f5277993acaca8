//! What is there, told: `validate`, `inspect`, `hooks`, `agents`, `schema`; names that are replaced, taken twice, or
//! refer to nothing.

use harness_registry::Registry;
use insta::assert_snapshot;
use serde_json::json;

use crate::artifacts::{BLOCKS, artifact, bundle, each, entry, gives, problems, with_root};
use crate::project::{FINE, Project};

/// A project in which `overrides/` stands instead of a tool, a hook and an agent.
fn overridden() -> Project {
    let guard = artifact("event: tool.pre\n", BLOCKS);
    let lists = format!(
        "tools:\n{}hooks:\n  - handler: guard\n    event: tool.pre\nagents:\n  - name: helper\n    description: The new one.\n",
        entry("name: it", "", &gives("'new'"))
    );
    Project::new()
        .tool("it", "", &gives("'old'"))
        .tool("other", "", FINE)
        .policy("sandbox: { sources: { plugins/acme: { events: [tool.pre] } } }\n")
        .file(".harness/plugins/acme/hooks/guard.md", &guard)
        .file(".harness/agents/helper.md", "---\ndescription: The old one.\n---\n")
        .file(".harness/overrides/mine.md", &bundle(&lists))
}

#[test]
fn what_overrides_replace_is_told_and_gone() {
    let project = overridden();
    // The guard that was replaced no longer guards.
    project.run(&["call", "it"]).gives("new");
    project.run(&["call", "other"]).gives("fine");
    assert_snapshot!(project.run(&["validate"]), @"
    exit 0
    --- stdout
    tools: it, other
    hooks: guard
    agents: helper
    replaced: tool `it` of .harness/tools/it.md:1:1 by .harness/overrides/mine.md:3:11
    replaced: hook `guard` of .harness/plugins/acme/hooks/guard.md:1:1 by .harness/overrides/mine.md:8:14
    replaced: agent `helper` of .harness/agents/helper.md:1:1 by .harness/overrides/mine.md:11:11
    valid: 2 tools, 1 hook, 1 agent; 0 errors, 1 warning
    --- stderr
    warning: tool `it` has no description
     --> .harness/overrides/mine.md:3:11
      |
    3 |   - name: it
      |           ^^
      |
      = hint: write it below the front matter, or as `description:` in a list: a model chooses tools by it
    ");
    let replaced = json!([
        {"kind": "tool", "name": "it", "by": ".harness/overrides/mine.md:3:11", "what": ".harness/tools/it.md:1:1"},
        {"kind": "hook", "name": "guard", "by": ".harness/overrides/mine.md:8:14", "what": ".harness/plugins/acme/hooks/guard.md:1:1"},
        {"kind": "agent", "name": "helper", "by": ".harness/overrides/mine.md:11:11", "what": ".harness/agents/helper.md:1:1"},
    ]);
    assert_eq!(project.run(&["validate", "--json"]).json()["replaced"], replaced);
    assert_eq!(project.run(&["inspect", "--json"]).json()["replaced"], replaced);
    assert_eq!(project.run(&["inspect", "it", "--json"]).json()["replaced"], json!([replaced[0]]));
    let inspected = project.run(&["inspect", "helper"]);
    assert!(inspected.out.contains("replaced: agent `helper` of .harness/agents/helper.md:1:1 by "), "{inspected}");
    let agents = project.run(&["agents", "--json"]).json();
    assert_eq!((agents.as_array().unwrap().len(), &agents[0]["description"]), (1, &json!("The new one.")));
    // Without the override, what it replaced holds again.
    std::fs::remove_file(project.path(".harness/overrides/mine.md")).unwrap();
    project
        .run(&["call", "it"])
        .says(3, "blocked by hook \"guard\" of plugins/acme, a third party, which says: \"no\"");
    assert_eq!(project.run(&["validate", "--json"]).json()["replaced"], json!([]));
}

/// A hook replaces one of its name only, whatever it is on; what has another name stays.
#[test]
fn overrides_replace_by_name_and_in_their_own_place() {
    let project = overridden().file(".harness/overrides/more/tools/it.md", &artifact("", FINE));
    let ran = project.run(&["call", "it"]);
    ran.says(2, "tool \"it\" is defined more than once");
    ran.says(2, "--> .harness/overrides/more/tools/it.md:1:1");
    ran.says(2, "it is first defined at .harness/overrides/mine.md:3:11");
    // Two below do not become one because a third is above them.
    let project = overridden().file(".harness/builtins/b/tools/it.md", &artifact("", FINE));
    let ran = project.run(&["validate"]);
    ran.says(2, "tool \"it\" is defined more than once");
    ran.says(2, "it is first defined at .harness/builtins/b/tools/it.md:1:1");
}

/// The places that a name can come from, within one level.
const PLACES: [&str; 7] = [
    ".harness/harness.md",
    ".harness/SINGLES/x.md",
    ".harness/plugins/p.md",
    ".harness/plugins/q/bundle.md",
    ".harness/plugins/q/SINGLES/x.md",
    ".harness/builtins/b.md",
    "further/SINGLES/x.md",
];

#[test]
fn a_name_taken_twice_names_both_places() {
    for (kind, named, front) in
        [("tool", "name", ""), ("hook", "handler", "event: builtin.pre\n"), ("agent", "name", "description: d\n")]
    {
        let list = format!("{kind}s:\n  - {named}: x\n    {front}").trim_end().to_owned() + "\n";
        let write = |place: &str| {
            let file = place.replace("SINGLES", &format!("{kind}s"));
            let single = place.contains("SINGLES");
            let text = if single { bundle(front) } else { bundle(&list) };
            let at = if single { "1:1".to_owned() } else { format!("3:{}", 7 + named.len()) };
            (file.clone(), text, format!("{file}:{at}"))
        };
        for (n, one) in PLACES.iter().enumerate() {
            for other in &PLACES[n + 1..] {
                let (a, b) = (write(one), write(other));
                let with_roots = "artifact_sources: [{ type: local, path: further }]\n";
                let project = Project::new().file("further/x", "").policy(with_roots);
                for (file, text, _) in [&a, &b] {
                    // What stands after the lists does not move them.
                    let text = if file == PLACES[0] {
                        text.replace("\n---\n", &format!("\n{with_roots}---\n"))
                    } else {
                        text.clone()
                    };
                    project.write(file, &text);
                }
                let registry = Registry::load(project.root());
                let found: Vec<_> = registry.diagnostics().iter().collect();
                assert_eq!(found.len(), 1, "{one} {other}: {found:?}");
                assert_eq!(found[0].message, format!("{kind} \"x\" is defined more than once"), "{one} {other}");
                let place = found[0].position.as_ref().unwrap().to_string();
                let (second, first) = if place == a.2 { (&a, &b) } else { (&b, &a) };
                assert_eq!(place, second.2);
                let hint = found[0].hint.clone().unwrap();
                assert!(hint.starts_with(&format!("it is first defined at {};", first.2)), "{one} {other}: {hint}");
            }
        }
    }
    // Seen from outside: nothing runs, and both commands say why.
    let project = Project::with_script(FINE).policy(&format!("tools:\n{}", entry("name: it", "", FINE)));
    for arguments in [["call", "it"], ["validate", "--strict"]] {
        let ran = project.run(&arguments);
        ran.says(2, "error: tool \"it\" is defined more than once\n --> .harness/tools/it.md:1:1");
        ran.says(2, "it is first defined at .harness/harness.md:3:11");
    }
}

#[test]
fn names_of_other_kinds_are_other_names() {
    let project = Project::with_script(FINE)
        .file(".harness/hooks/it.md", "---\nevent: error\n---\n")
        .file(".harness/agents/it.md", "---\ndescription: Helps.\n---\n");
    assert_eq!(project.run(&["validate", "--strict"]).code, 0);
    let inspected = project.run(&["inspect", "it", "--json"]).json();
    assert_eq!(["tools", "hooks", "agents"].map(|kind| each(&inspected[kind], "name")), [["it"], ["it"], ["it"]]);
}

#[test]
fn hooks_in_the_order_they_are_called() {
    let hook = |front: &str| artifact(front, BLOCKS);
    let project = Project::new()
        .file(".harness/hooks/late.md", &hook("event: tool.pre\npriority: 30\n"))
        .file(".harness/hooks/b.md", &hook("event: tool.pre\nwhen: payload[\"name\"] == \"x\"\n"))
        .file(".harness/hooks/a.md", "---\nevent: tool.pre\n---\n")
        .file(".harness/hooks/first.md", &hook("event: tool.pre\npriority: -1\n"))
        .file(".harness/hooks/start.md", &hook("event: session.start\n"))
        .file(".harness/hooks/mine.md", &hook("event: custom.deployed\n"))
        .file(".harness/plugins/p.md", &bundle("hooks:\n  - event: tool.pre\n    priority: 30\n"))
        .policy("sandbox: { sources: { plugins/p: { events: [tool.pre] } } }\n");
    assert_snapshot!(project.run(&["hooks"]), @r#"
    exit 0
    --- stdout
    session.start
         0  start  .harness/hooks/start.md
    tool.pre
        -1  first  .harness/hooks/first.md
         0  a  .harness/hooks/a.md  (no script: does nothing)
         0  b  .harness/hooks/b.md  when payload["name"] == "x"
        30  late  .harness/hooks/late.md
        30  plugins/p.hooks[0]  .harness/plugins/p.md  (no script: does nothing)
    custom.deployed
         0  mine  .harness/hooks/mine.md
    --- stderr
    "#);
    let listed = project.run(&["hooks", "--json"]).json();
    assert_eq!(each(&listed, "name"), ["start", "first", "a", "b", "late", "plugins/p.hooks[0]", "mine"]);
    assert_eq!(
        listed[3],
        json!({"name": "b", "event": "tool.pre", "priority": 0, "when": "payload[\"name\"] == \"x\"", "file": ".harness/hooks/b.md", "line": 1, "source": "hooks/b", "script": true, "cases": 0})
    );
    let none = Project::new();
    assert_snapshot!(none.run(&["hooks"]), @"
    exit 0
    --- stdout
    --- stderr
    no hooks: write one in `.harness/hooks/`
    ");
    assert_eq!(none.run(&["hooks", "--json"]).json(), json!([]));
}

/// The page's own example of an agent, with what it refers to.
const RESEARCHER: &str = "model: gpt-4o-mini\ndescription: Researches topics.\ntools:\n  - name: fetch_url\n    parameters:\n      url: { type: string, required: true }\n    script: |\n      def run(args):\n          return http.get(args[\"url\"], {}, 30)\n  - search_text\nhooks:\n  - researcher_guard\n  - event: tool.pre\n";

fn researcher() -> Project {
    Project::new()
        .tool("search_text", "", FINE)
        .file(".harness/hooks/researcher_guard.md", "---\nevent: tool.pre\n---\n")
        .file(
            ".harness/agents/researcher.md",
            &format!("---\n{RESEARCHER}---\n\n# Researcher\n\nYou look.  \n\n```\nx\n```\n"),
        )
}

#[test]
fn agents_and_what_each_has() {
    let project =
        researcher().file(".harness/agents/code-reviewer.md", "---\n---\n").file(".harness/agents/notes.txt", "x");
    assert_snapshot!(project.run(&["agents"]), @"
    exit 0
    --- stdout
    code-reviewer  .harness/agents/code-reviewer.md
        model: the caller's
    researcher  .harness/agents/researcher.md
        Researches topics.
        model: gpt-4o-mini
        tools: fetch_url (its own), search_text
        hooks: researcher_guard, researcher.hooks[1] (its own)
    --- stderr
    ");
    let listed = project.run(&["agents", "--json"]).json();
    assert_eq!(
        listed[0],
        json!({"name": "code-reviewer", "description": null, "model": null, "tools": [], "hooks": [], "file": ".harness/agents/code-reviewer.md", "line": 1, "source": "agents/code-reviewer"})
    );
    let found = project.run(&["validate", "--json"]).json();
    assert_eq!((&found["agents"], &found["valid"]), (&json!(["code-reviewer", "researcher"]), &json!(true)));
    assert!(
        project.run(&["validate"]).out.contains("agents: code-reviewer, researcher\nvalid: 1 tool, 1 hook, 2 agents; ")
    );
    // Its own tool is its own: no model of the project sees it, and nobody calls it.
    assert_eq!(each(&project.run(&["tools", "--json"]).json(), "name"), ["search_text"]);
    project.run(&["call", "fetch_url", "url=x"]).says(2, "there is no tool `fetch_url`");
    assert_eq!(project.run(&["hooks", "--json"]).json().as_array().unwrap().len(), 1);
    // The prose is the prompt, every character of it.
    let registry = Registry::load(project.root());
    assert_eq!(registry.agents()[1].system_prompt, "\n# Researcher\n\nYou look.  \n\n```\nx\n```\n");
    let none = Project::new();
    assert_eq!(none.run(&["agents"]).err, "no agents: write one in `.harness/agents/`\n");
    assert_eq!(none.run(&["agents", "--json"]).json(), json!([]));
}

#[test]
fn an_agent_is_the_same_in_harness_md() {
    let facts = |project: &Project| {
        let registry = Registry::load(project.root());
        assert_eq!(registry.diagnostics().len(), 0, "{:?}", registry.diagnostics());
        let mut listed = project.run(&["agents", "--json"]).json();
        let object = listed[0].as_object_mut().unwrap();
        assert!(object.remove("file").is_some() && object.remove("line").is_some());
        (listed, registry.agents()[0].system_prompt.trim().to_owned())
    };
    let base = || Project::new().tool("t", "", FINE).file(".harness/hooks/h.md", "---\nevent: error\n---\n");
    let file =
        base().file(".harness/agents/r.md", "---\nmodel: m\ndescription: d\ntools: [t]\nhooks: [h]\n---\nYou.\n");
    let inline = "agents:\n  - name: r\n    model: m\n    description: d\n    tools: [t]\n    hooks: [h]\n    system_prompt: You.\n";
    let wanted = facts(&file);
    assert_eq!(
        (&wanted.0[0]["tools"], &wanted.0[0]["source"], wanted.1.as_str()),
        (&json!(["t"]), &json!("agents/r"), "You.")
    );
    assert_eq!(facts(&base().policy(inline)), wanted);
}

/// What an agent refers to is looked for when everything is there, wherever it is.
#[test]
fn references_that_resolve() {
    let tools = |name: &str| bundle(&format!("tools:\n  - name: {name}\n"));
    for (place, text) in [
        (".harness/tools/z.md", "---\n---\n".to_owned()),
        (".harness/harness.md", tools("z")),
        (".harness/plugins/p.md", tools("z")),
        (".harness/builtins/b.md", tools("z")),
        (".harness/overrides/o.md", tools("z")),
        (".harness/plugins/p/tools/z.md", "---\n---\n".to_owned()),
    ] {
        let project = Project::new().file(".harness/agents/a.md", "---\ntools: [z]\n---\n").file(place, &text);
        let ran = project.run(&["validate", "--json"]);
        assert_eq!((ran.code, problems(&ran)), (0, Vec::new()), "{place}");
        assert_eq!(project.run(&["agents", "--json"]).json()[0]["tools"], json!(["z"]), "{place}");
    }
    let names = ["z", "a"].map(|agent| (format!(".harness/agents/{agent}.md"), format!(".harness/tools/{agent}.md")));
    let texts: Vec<(&str, &str)> = names
        .iter()
        .zip(["---\ntools: [a]\n---\n", "---\ntools: [z]\n---\n"])
        .flat_map(|((agent, tool), text)| [(agent.as_str(), text), (tool.as_str(), "---\n---\n")])
        .collect();
    let listed = |texts: &[(&str, &str)]| {
        let project = texts.iter().fold(Project::new(), |project, (path, text)| project.file(path, text));
        project.run(&["agents", "--json"]).json()
    };
    let reversed: Vec<_> = texts.iter().rev().copied().collect();
    assert_eq!(each(&listed(&texts), "name"), ["a", "z"]);
    assert_eq!(listed(&texts), listed(&reversed));
}

#[test]
fn references_to_nothing() {
    let project = researcher()
        .file(".harness/agents/a.md", "---\ntools: [serch_text, zzz]\nhooks: [researcher_gard]\ndescription: a\n---\n")
        // What another agent has inline is that agent's.
        .file(".harness/agents/b.md", "---\ntools:\n  - fetch_url\ndescription: b\n---\n");
    assert_snapshot!(project.run(&["validate"]), @r#"
    exit 2
    --- stdout
    tools: search_text
    hooks: researcher_guard
    agents: a, b, researcher
    invalid: 1 tool, 1 hook, 3 agents; 4 errors, 0 warnings
    --- stderr
    error: agent "a" refers to the tool "serch_text", which no artifact defines
     --> .harness/agents/a.md:2:9
      |
    2 | tools: [serch_text, zzz]
      |         ^^^^^^^^^^
      |
      = hint: did you mean `search_text`?
    error: agent "a" refers to the tool "zzz", which no artifact defines
     --> .harness/agents/a.md:2:21
      |
    2 | tools: [serch_text, zzz]
      |                     ^^^
      |
      = hint: define it as `.harness/tools/zzz.md`, or here
    error: agent "a" refers to the hook "researcher_gard", which no artifact defines
     --> .harness/agents/a.md:3:9
      |
    3 | hooks: [researcher_gard]
      |         ^^^^^^^^^^^^^^^
      |
      = hint: did you mean `researcher_guard`?
    error: agent "b" refers to the tool "fetch_url", which no artifact defines
     --> .harness/agents/b.md:3:5
      |
    3 |   - fetch_url
      |     ^^^^^^^^^
      |
      = hint: define it as `.harness/tools/fetch_url.md`, or here
    "#);
    assert_eq!(project.run(&["call", "search_text"]).code, 2);
}

#[test]
fn agents_that_are_wrong() {
    let of = |path: &str, text: &str| problems(&Project::new().file(path, text).run(&["validate", "--json"]));
    let file = |text: &str| of(".harness/agents/a.md", text);
    assert_eq!(file("You look.\n"), [".harness/agents/a.md:1:1 error: parse agent a.md: the first line is not `---`"]);
    let open = ".harness/agents/a.md:1:1 error: parse agent a.md: the front matter is not closed: no second line is exactly `---`";
    assert_eq!(file("---\nmodel: x\n"), [open]);
    assert_eq!(file("---\nmodle: x\n---\n"), [".harness/agents/a.md:2:1 warning: unknown key `modle`, it is ignored"]);
    assert_eq!(file("---\nmodel: any/thing-4.5\n---\n"), [""; 0]);
    assert_eq!(
        file(
            "---\nmodel: 4\ntools:\n  - name: own\n    parameters: { p: { type: text } }\n  - script: x\nhooks:\n  - priority: 1\n  - 7\n---\n"
        ),
        [
            ".harness/agents/a.md:2:8 error: parse agent a.md: yaml: line 2: `model` must be a string, found an integer",
            ".harness/agents/a.md:5:30 error: tool \"own\" parameter `p` has the type `text`, must be one of string, number, boolean, object, array",
            ".harness/agents/a.md:6:5 error: tools[1].name cannot be empty",
            ".harness/agents/a.md:8:5 error: hook \"a.hooks[0]\": event field is required in frontmatter",
            ".harness/agents/a.md:9:5 error: `hooks[1]`: agent hook must be a string reference or inline hook config, found an integer",
        ]
    );
    assert_eq!(
        of(".harness/harness.md", "---\nagents:\n  - description: d\n  - name: x\n  - name: ''\n---\n"),
        [
            ".harness/harness.md:3:5 error: agents[0].name cannot be empty",
            ".harness/harness.md:5:5 error: agents[2].name cannot be empty",
        ]
    );
    let twice = Project::new().policy("agents:\n  - name: x\n  - name: x\n").run(&["validate"]);
    twice.says(2, "error: agent \"x\" is defined more than once\n --> .harness/harness.md:4:11");
    twice.says(2, "it is first defined at .harness/harness.md:3:11");
    let strict = Project::new().file(".harness/agents/a.md", "---\nmodle: x\n---\n").run(&["validate", "--strict"]);
    strict.says(2, "hint: did you mean `model`?");
    // The script of an agent's own tool is compiled with the others.
    let own = "---\ntools:\n  - name: own\n    script: |\n      def run(args):\n          return nothing\n---\n";
    assert_eq!(
        file(own),
        [".harness/agents/a.md:6:18 error: the script cannot be loaded: Variable `nothing` not found"]
    );
}

/// What is loaded, from where, and what it may do.
#[test]
fn inspect() {
    let project = researcher()
        .tool("it", "timeout_ms: 70\ncapabilities: { fs: { read: [docs] } }\n", FINE)
        .file(
            ".harness/hooks/h.md",
            &artifact("event: tool.pre\npriority: 5\nwhen: payload[\"name\"] == \"x\"\n", BLOCKS),
        )
        .file(".harness/plugins/p.md", "---\n---\n")
        .policy("network: { allowed_domains: [a.example] }\ntools_policy: { deny: [search_text] }\n");
    let short = project.run(&["inspect", "it"]);
    let expected = "tool it\n  from .harness/tools/it.md:1:1, source `tools/it`\n  timeout_ms: 70\n  fs.read: docs\n  \
                    network: a.example\n  services: cache, metrics, clock, random, events, delegate, modify, prompt\n";
    assert_eq!(short.out, expected);
    let with_meta = project.policy_of(|text| text.replacen("---\n", "---\nmeta: { enabled: true }\n", 1));
    assert!(with_meta.run(&["inspect", "it"]).out.contains("random, events, meta, delegate"));
    let project = with_meta.policy_of(|text| text.replace("meta: { enabled: true }\n", ""));
    let it = project.run(&["inspect", "it", "--full"]);
    assert_eq!((it.code, it.err.as_str()), (0, ""));
    for part in [
        "tool it\n  from .harness/tools/it.md:1:1, source `tools/it`\n",
        "  timeout_ms: 70\n",
        "hosts: a.example (.harness/harness.md:2:29)",
        "read: docs (.harness/tools/it.md:3:29)",
    ] {
        assert!(it.out.contains(part), "{part}: {it}");
    }
    assert!(!it.out.contains("search_text") && !it.out.contains("bundle"), "{it}");
    let all = project.run(&["inspect"]).out;
    for part in [
        "not callable: the tool `search_text` is denied by `search_text`\n",
        "hook h\n  from .harness/hooks/h.md:1:1, source `hooks/h`\n  on tool.pre, priority 5, 2 of 2\n  when payload[\"name\"] == \"x\" (decided without an instance)\n",
        "agent researcher\n  from .harness/agents/researcher.md:1:1, source `agents/researcher`\n",
        "bundle plugins/p\n",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    let found = project.run(&["inspect", "it", "h", "--json"]).json();
    assert_eq!(["tools", "hooks", "agents"].map(|kind| each(&found[kind], "name")), [vec!["it"], vec!["h"], vec![]]);
    let layers = each(&found["tools"][0]["grant"], "from");
    assert_eq!(layers, [".harness/harness.md", ".harness/tools/it.md:3:1, its capabilities"]);
    let own = &found["tools"][0]["grant"][1];
    assert_eq!(own["allows"]["read"], json!(["docs"]));
    assert_eq!((&own["file"], &own["line"], &own["column"]), (&json!(".harness/tools/it.md"), &json!(3), &json!(1)));
    let read = json!({"line": 3, "column": 29, "rules": [{"line": 3, "column": 30}]});
    assert_eq!(own["places"], json!({"fs": {"line": 3, "column": 21}, "fs.read": read}));
    let whole = &found["tools"][0]["grant"][0];
    assert_eq!((&whole["line"], &whole["places"]["network"]["column"]), (&json!(null), &json!(29)));
    for arguments in [&["inspect", "nobody"][..], &["inspect", "it", "nobody", "--json"]] {
        let ran = project.run(arguments);
        ran.says(2, "error: there is no tool, hook, agent, skill or MCP server `nobody`");
        assert_eq!(ran.out, "");
    }
}

/// Eight files with a fault each, all told at once, each where it is; and the ninth, without one, listed.
#[test]
fn eight_faults_at_once() {
    let project = Project::new()
        .policy("sandbox:\n  limits: { fuel: 5, feul: 6 }\n")
        .tool("fine", "", FINE)
        .file(".harness/tools/open.md", "---\nscript: x\n")
        .tool("negative", "timeout_ms: -1\n", FINE)
        .tool("broken", "", "def run(args):\n    return 1 +\n")
        .file(".harness/hooks/event.md", "---\nevent: tool.per\n---\n")
        .file(".harness/hooks/when.md", "---\nevent: tool.pre\nwhen: payload[\n---\n")
        .file(".harness/agents/a.md", "---\ntools:\n  - nothing\ndescription: a\n---\n")
        .file(".harness/plugins/p.md", "---\ntools:\n  - description: d\n---\n");
    let wanted = [
        ".harness/harness.md:3:22 error: unknown key `sandbox.limits.feul`",
        ".harness/tools/negative.md:2:13 error: tool \"negative\" timeout_ms must be >= 0",
        ".harness/tools/open.md:1:1 error: parse tool open.md: the front matter is not closed: no second line is exactly `---`",
        ".harness/hooks/event.md:2:8 error: hooks[0].event \"tool.per\" is invalid",
        ".harness/plugins/p.md:3:5 error: tools[0].name cannot be empty",
        ".harness/agents/a.md:3:5 error: agent \"a\" refers to the tool \"nothing\", which no artifact defines",
        ".harness/tools/broken.md:4:17 error: the script cannot be loaded: Parse error: unexpected new line, expected expression",
        ".harness/hooks/when.md:3:15 error: the script cannot be loaded: Parse error: unexpected new line, expected expression",
    ];
    let found = project.run(&["validate", "--json"]);
    assert_eq!((found.code, problems(&found), found.err.as_str()), (2, wanted.map(str::to_owned).to_vec(), ""));
    assert_eq!(found.json()["tools"], json!(["broken", "fine"]));
    let told = project.run(&["validate"]);
    let places: Vec<&str> = told.err.lines().filter_map(|line| line.trim_start().strip_prefix("--> ")).collect();
    let wanted_places: Vec<&str> = wanted.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!((told.code, places), (2, wanted_places), "{told}");
    assert!(told.out.ends_with("invalid: 2 tools, 1 hook, 1 agent; 8 errors, 0 warnings\n"), "{told}");
    assert_eq!(project.run(&["call", "fine"]).code, 2);
}

#[test]
fn rules_for_what_is_not_there() {
    let project = Project::with_script(FINE)
        .file(".harness/hooks/guard.md", &artifact("event: error\n", BLOCKS))
        .file(".harness/plugins/acme.md", "---\ntools:\n  - name: own\n---\n")
        .policy(
            "sandbox:\n  sources:\n    tools/itt: {}\n    tools/it: {}\n    tools: {}\n    plugins/acmee: {}\n    plugins/acme/tools/own: {}\n    hooks/nothing: {}\n  hooks:\n    named: { gaurd: allow, guard: allow }\ntools_policy: { deny: [\"raed_*\", \"no?\"] }\n",
        );
    let found = project.run(&["validate", "--json"]);
    assert_eq!(
        problems(&found),
        [
            ".harness/harness.md:4:5 warning: `sandbox.sources` names `tools/itt`, which is not there",
            ".harness/harness.md:7:5 warning: `sandbox.sources` names `plugins/acmee`, which is not there",
            ".harness/harness.md:9:5 warning: `sandbox.sources` names `hooks/nothing`, which is not there",
            ".harness/harness.md:11:14 warning: `sandbox.hooks.named` names the hook `gaurd`, which is not there",
            ".harness/harness.md:12:24 warning: `tools_policy`: no tool is named like `raed_*`",
            ".harness/harness.md:12:34 warning: `tools_policy`: no tool is named like `no?`",
        ]
    );
    let told = found.json()["problems"].clone();
    assert_eq!(
        [0, 1, 2, 3].map(|n: usize| told[n]["hint"].clone()),
        [
            json!("did you mean `tools/it`?"),
            json!("did you mean `plugins/acme`?"),
            json!(null),
            json!("did you mean `guard`?")
        ]
    );
    // A warning: the project works, and does not where it is to be strict.
    assert_eq!((found.code, project.run(&["call", "it"]).code), (0, 0));
    assert_eq!(project.run(&["validate", "--strict"]).code, 2);
}

#[test]
fn a_key_that_is_not_in_the_environment() {
    let project = Project::with_script(FINE).policy("model: { name: m, api_key_env: HARNESS_TEST_NO_KEY }\n");
    let found = project.run(&["validate", "--json"]);
    assert_eq!(
        (found.code, problems(&found)),
        (0, vec![".harness/harness.md:2:32 warning: API key env \"HARNESS_TEST_NO_KEY\" is not set".to_owned()])
    );
    assert_eq!(project.run(&["validate", "--strict"]).code, 2);
    project.run(&["call", "it"]).gives("fine");
    for (value, code) in [("secret-of-the-test", 0), ("", 2)] {
        let ran = project.shell(&format!("HARNESS_TEST_NO_KEY='{value}' \"$HARNESS\" validate --strict"));
        assert_eq!(ran.code, code, "{ran}");
        assert!(!ran.to_string().contains("secret-of-the-test"));
    }
}

#[test]
fn schemas() {
    let project = Project::new();
    for (kind, key) in [
        ("tool", "parameters"),
        ("hook", "event"),
        ("agent", "model"),
        ("skill", "description"),
        ("bundle", "hooks"),
        ("harness", "sandbox"),
    ] {
        let ran = project.run(&["schema", kind]);
        let schema = ran.json();
        assert_eq!((ran.code, ran.err.as_str(), &schema["type"]), (0, "", &json!("object")), "{kind}");
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert!(schema["properties"][key].is_object(), "{kind}: {schema}");
        // An editor can use it: the front matter of this test's own artifacts fits, and a wrong one does not.
        let validator = jsonschema::validator_for(&schema).unwrap();
        let good = match kind {
            "hook" => json!({"event": "tool.pre"}),
            "skill" => json!({"name": "review", "description": "How code is reviewed."}),
            _ => json!({}),
        };
        assert!(validator.is_valid(&good) && !validator.is_valid(&json!({"event": 7, key: 7})), "{kind}");
    }
    let ran = project.run(&["schema", "skills"]);
    ran.says(2, "[possible values: tool, hook, agent, skill, bundle, plugin, harness]");
    let help = project.run(&["schema", "--help"]).out;
    assert!(help.contains("[possible values: tool, hook, agent, skill, bundle, plugin, harness]"), "{help}");
    assert_eq!(ran.out, "");
    assert_eq!(project.run(&["schema"]).code, 2);
}

#[test]
fn roots_that_cannot_be() {
    for (item, place, message) in [
        ("{ type: local, path: nowhere }", "3:26", "cannot read `nowhere`: No such file or directory (os error 2)"),
        ("{ type: local }", "3:5", "artifact_sources local source requires path"),
        ("{ path: shared }", "3:5", "`artifact_sources[0]` has no `type`"),
        ("{ type: git, path: shared }", "3:5", "artifact_sources git source requires url"),
        ("{ type: npm, path: shared }", "3:13", "unsupported artifact source type \"npm\""),
        ("{ type: local, path: . }", "3:26", "`artifact_sources[0].path`: name a folder with artifacts"),
        (
            "{ type: local, path: /etc }",
            "3:26",
            "`artifact_sources[0].path`: write a path that is relative to the project",
        ),
        ("{ type: local, path: shared, ref: main }", "3:34", "unknown key `artifact_sources[0].ref`"),
        ("shared", "3:5", "parse harness.md: yaml: line 3: `artifact_sources[0]` must be a mapping, found a string"),
    ] {
        let project = with_root("x").policy(&format!("artifact_sources:\n  - {item}\n"));
        let ran = project.run(&["call", "it", "path=mark"]);
        assert!(ran.code == 2 && ran.err.contains(&format!("error: {message}")), "{item}: {ran}");
        assert!(ran.err.contains(&format!("--> .harness/harness.md:{place}\n")), "{item}: {ran}");
        assert!(!project.path("mark").exists(), "{item}");
    }
}

#[test]
fn hooks_that_do_nothing_and_hooks_that_are_wrong() {
    let project = Project::with_script(FINE).file(".harness/hooks/h.md", "---\nevent: tool.pre\n---\n");
    project.run(&["validate", "--strict"]).says(0, "");
    assert_eq!(project.run(&["hooks", "--json"]).json()[0]["script"], json!(false));
    project.run(&["call", "it"]).gives("fine");
    // What it returns is seen when it is called, and not before.
    project
        .write(".harness/hooks/h.md", &artifact("event: tool.pre\n", "def handle(event, payload):\n    return 42\n"));
    project.run(&["validate", "--strict"]).says(0, "");
    let ran = project.run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "fine\n"), "{ran}");
    assert!(ran.err.starts_with("warning: hook `h`: ") && ran.err.contains("int"), "{ran}");
    project.write(".harness/hooks/h.md", "---\nevent: tool.pre\nwhen: [\n---\n");
    let ran = project.run(&["validate"]);
    ran.says(2, "error: parse hook h.md: yaml: line 4: ");
    ran.says(2, "--> .harness/hooks/h.md:4:1");
}

/// A tool that edits the project's own artifacts is stopped by a guard, and without one all the same.
#[test]
fn no_tool_writes_artifacts() {
    let script = "def run(args):\n    fs.write(args['path'], args['text'])\n    return 'written'\n";
    let guard = artifact(
        "event: tool.pre\nwhen: payload[\"name\"] == \"write_file\"\n",
        "def handle(event, payload):\n    if payload['args'].get('path', '').startswith('.harness/'):\n        return block('the harness is not edited')\n    return allow()\n",
    );
    let project = Project::new().tool("write_file", "", script).file(".harness/hooks/meta_tool_guard.md", &guard);
    let write = |path: &str| project.run(&["call", "write_file", &format!("path={path}"), "text=x"]);
    write("notes.txt").gives("written");
    write(".harness/tools/x.md").says(3, "blocked by hook \"meta_tool_guard\": the harness is not edited");
    std::fs::remove_file(project.path(".harness/hooks/meta_tool_guard.md")).unwrap();
    write(".harness/tools/x.md")
        .says(3, "fs.write: writing `.harness/tools/x.md` is never allowed: the folder `.harness/` is protected");
    assert!(!project.path(".harness/tools/x.md").exists());
}
