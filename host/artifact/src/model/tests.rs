use super::super::agent::Agent;
use super::super::policy::ProjectPolicy;
use super::*;
use crate::diagnostic::{Diagnostic, Diagnostics};

const FILE: &str = ".harness/harness.md";

fn models(yaml: &str) -> Models {
    let (policy, diagnostics) = ProjectPolicy::parse(FILE, &format!("---\n{yaml}---\n"));
    assert_eq!(diagnostics, Diagnostics::new());
    policy.unwrap().models
}

/// Everything wrong, one thing a line: place, message, hint.
fn wrong(yaml: &str) -> String {
    let (policy, diagnostics) = ProjectPolicy::parse(FILE, &format!("---\n{yaml}---\n"));
    assert_eq!(policy.is_none(), diagnostics.has_errors());
    let line = |d: &Diagnostic| {
        let position = d.position.as_ref().unwrap();
        format!(
            "{:?} {}:{}+{} {} ({})",
            d.severity,
            position.line,
            position.column,
            position.length,
            d.message,
            d.hint.as_deref().unwrap_or("-")
        )
    };
    diagnostics.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn at<T>(value: T, line: u32, column: u32, length: u32) -> Located<T> {
    Located::new(value, Position { file: FILE.into(), line, column, length })
}

#[test]
fn a_whole_model() {
    let main = models(
        "model:\n  name: claude\n  provider: anthropic\n  base_url: https://proxy.example/v1?a=b\n  api_key_env: KEY\n  max_tokens: 4096\n  context_tokens: 128000\n  temperature: 1\n  prices: { input: 2.5, output: 10 }\n  retry: { max_retries: 0, initial_backoff_ms: 5, max_backoff_ms: 10, multiplier: 1.5 }\n  tools: prose\n  stream: false\n",
    );
    let expect = ModelConfig {
        name: at("claude".to_owned(), 3, 9, 6),
        provider: at(Provider::Anthropic, 4, 13, 9),
        base_url: Some(at(Url::parse("https://proxy.example/v1?a=b").unwrap(), 5, 13, 28)),
        api_key_env: Some(at("KEY".to_owned(), 6, 16, 3)),
        max_tokens: Some(at(4096, 7, 15, 4)),
        context_tokens: Some(at(128_000, 8, 19, 6)),
        temperature: Some(at(1.0, 9, 16, 1)),
        prices: Some(Prices { input: 2.5, output: 10.0 }),
        retry: Retry {
            max_retries: 0,
            initial_backoff: Duration::from_millis(5),
            max_backoff: Duration::from_millis(10),
            multiplier: 1.5,
        },
        stream: false,
        tools: at(ToolForm::Prose, 12, 10, 5),
        script: None,
        position: at((), 2, 1, 5).position,
    };
    assert_eq!(main, Models { main: Some(expect), others: Vec::new() });
}

#[test]
fn what_is_not_said_has_its_default() {
    let main = models("model: { name: m }\n").main.unwrap();
    assert_eq!(
        (main.provider.value, main.tools.value, main.retry),
        (Provider::OpenAi, ToolForm::Auto, Retry::default())
    );
    assert_eq!((&main.base_url, &main.temperature, main.key_variable()), (&None, &None, Some("OPENAI_API_KEY")));
    let scripted = models("model: { provider: script, script: replies.yaml }\n").main.unwrap();
    assert_eq!((scripted.name.value.as_str(), scripted.script.unwrap().value.as_str()), ("script", "replies.yaml"));
    assert_eq!(models(""), Models::default());
}

/// A key of one provider is not for whoever stands at another address.
#[test]
fn which_variable_holds_the_key() {
    for (yaml, variable) in [
        ("name: m, provider: copilot", Some("GITHUB_TOKEN")),
        ("name: m, provider: ollama", None),
        ("name: m, base_url: 'http://127.0.0.1:8080/v1'", None),
        ("name: m, base_url: 'http://127.0.0.1:8080/v1', api_key_env: MINE", Some("MINE")),
        ("name: m, provider: azure, base_url: 'https://x.openai.azure.com'", Some("AZURE_OPENAI_API_KEY")),
    ] {
        let main = models(&format!("model: {{ {yaml} }}\n")).main.unwrap();
        assert_eq!(main.key_variable(), variable, "{yaml}");
    }
}

#[test]
fn further_models_are_asked_as_the_main_one() {
    let all = models(
        "model: { name: big, base_url: 'https://proxy.example/v1', api_key_env: KEY, temperature: 0.5 }\nmodels:\n  - { name: small }\n  - { name: local, provider: ollama }\n  - { name: apart, base_url: 'https://other.example' }\n",
    );
    let shown: Vec<_> = all
        .all()
        .map(|m| {
            let url = m.base_url.as_ref().map_or("-", |url| url.as_str());
            format!("{} {} {url} {:?} {:?}", *m.name, m.provider.word(), m.key_variable(), m.temperature.as_deref())
        })
        .collect();
    assert_eq!(
        shown,
        [
            "big openai https://proxy.example/v1 Some(\"KEY\") Some(0.5)",
            "small openai https://proxy.example/v1 Some(\"KEY\") None",
            "local ollama - None None",
            "apart openai https://other.example/ Some(\"KEY\") None",
        ]
    );
    let named = |name: &str| {
        let name = at(name.to_owned(), 9, 1, 1);
        all.named(&name).map(|m| (m.name.value.clone(), m.provider.value, m.temperature.as_deref().copied())).unwrap()
    };
    assert_eq!(named("local"), ("local".to_owned(), Provider::Ollama, None));
    assert_eq!(named("big"), ("big".to_owned(), Provider::OpenAi, Some(0.5)));
    // One that no line describes is the main one's, by another name.
    assert_eq!(named("gpt-4o"), ("gpt-4o".to_owned(), Provider::OpenAi, Some(0.5)));
    assert_eq!(Models::default().named(&at("x".to_owned(), 1, 1, 1)), None);
}

#[test]
fn what_is_no_model() {
    insta::assert_snapshot!(wrong("model: gpt-4o\nmodels: {}\n"), @"
    Error 2:8+6 parse harness.md: yaml: line 2: `model` must be a mapping, found a string (-)
    Error 3:9+2 parse harness.md: yaml: line 3: `models` must be a list, found a mapping (write an item for each model: `- { name: qwen3, provider: ollama, tools: auto }`)
    ");
    insta::assert_snapshot!(wrong("model: {}\nmodels:\n  - { name: '' }\n  - { name: \" a\" }\n  - { name: 5 }\n"), @"
    Error 2:8+2 model.name cannot be empty (give it a line such as `name: gpt-4o-mini`)
    Error 4:13+3 `models[0].name`: the name of a model cannot be empty (write a name such as `gpt-4o-mini`)
    Error 5:13+5 `models[1].name`: the name of a model must not begin or end with a space, nor hold control characters (write it on one line)
    Error 6:13+1 parse harness.md: yaml: line 6: `models[2].name` must be a string, found an integer (put it in quotes)
    ");
    insta::assert_snapshot!(wrong("model: { name: m, provider: opnai }\nmodels:\n  - { name: x, provider: lmstudio }\n  - { name: y, provider: azure }\n"), @"
    Error 2:29+5 `model.provider`: `opnai` is none of openai, anthropic, ollama, copilot, azure, script (did you mean `openai`?)
    Error 4:26+8 `models[0].provider`: `lmstudio` is none of openai, anthropic, ollama, copilot, azure, script (a server that speaks OpenAI's form is `provider: openai` with its `base_url`)
    Error 5:5+28 `models[1]` has no `base_url` (add a line such as `base_url: https://NAME.openai.azure.com/openai/v1`)
    ");
    insta::assert_snapshot!(wrong("model: { name: m, base_ur: x, temprature: 1 }\n"), @"
    Error 2:19+7 unknown key `model.base_ur` (did you mean `base_url`?)
    Warning 2:31+10 unknown key `model.temprature`, it is ignored (did you mean `temperature`?)
    ");
    insta::assert_snapshot!(wrong("model:\n  name: m\n  base_url: ftp://x\n  api_key_env: sk-123\n  max_tokens: 0\n  context_tokens: lots\n  temperature: 2.5\n  tools: some\n  retry: { max_retries: -1, multiplier: 0.5, backoff: 1 }\n"), @"
    Error 4:13+7 `model.base_url`: write a URL that begins with `https://` or `http://` (-)
    Error 5:16+6 `model.api_key_env`: write the name of the variable that holds the key, not the key (-)
    Error 6:15+1 parse harness.md: yaml: line 6: `model.max_tokens` must be between 1 and 10000000 (-)
    Error 7:19+4 parse harness.md: yaml: line 7: `model.context_tokens` must be an integer, found a string (-)
    Error 8:16+3 parse harness.md: yaml: line 8: `model.temperature` must be between 0 and 2 (-)
    Error 9:10+4 `model.tools`: `some` is none of auto, structured, prose, none (-)
    Error 10:25+2 parse harness.md: yaml: line 10: `model.retry.max_retries` must be between 0 and 100 (-)
    Error 10:41+3 parse harness.md: yaml: line 10: `model.retry.multiplier` must be between 1 and 100 (-)
    Warning 10:46+7 unknown key `model.retry.backoff`, it is ignored (did you mean `max_backoff_ms`?)
    ");
    insta::assert_snapshot!(wrong("models:\n  - { name: a, base_url: 'https://me:pw@x.example' }\n  - { name: b, base_url: 'https://x.example/#f' }\n  - { name: c, base_url: x.example }\n  - { name: d, temperature: .nan }\n  - { name: e, temperature: hot }\n"), @"
    Error 3:26+26 `models[0].base_url`: leave user and password out, and name a variable with the key in `api_key_env` (-)
    Error 4:26+23 `models[1].base_url`: leave out what follows `#`, it is never sent (-)
    Error 5:26+9 `models[2].base_url`: write a URL such as `https://models.example/v1` (-)
    Error 6:29+4 parse harness.md: yaml: line 6: `models[3].temperature` must be between 0 and 2 (-)
    Error 7:29+3 parse harness.md: yaml: line 7: `models[4].temperature` must be a number, found a string (-)
    ");
    insta::assert_snapshot!(wrong("model: { provider: script }\nmodels:\n  - { name: a, provider: openai, script: r.yaml }\n  - { name: b, provider: script, script: '' }\n"), @"
    Error 2:8+20 `model` has no `script` (name the file of replies: `script: replies.yaml`)
    Error 4:42+6 `models[0].script` has no meaning with the provider `openai` (write `provider: script`)
    Error 5:42+3 `models[1].script`: write the path of a file with replies, such as `replies.yaml` (-)
    ");
    insta::assert_snapshot!(wrong("model: { name: m }\nmodels: [{ name: n }, { name: m, provider: ollama }, { name: n, max_tokens: 5 }]\n"), @r#"
    Error 3:31+1 model "m" is defined more than once (it is first defined at .harness/harness.md:2:16)
    Error 3:62+1 model "n" is defined more than once (it is first defined at .harness/harness.md:3:18)
    "#);
    // Who says the same twice has said it once.
    assert_eq!(wrong("model: { name: m }\nmodels: [{ name: n }, { name: m }, { name: n }]\n"), "");
}

#[test]
fn an_agent_names_a_model() {
    let of = |yaml: &str| {
        let (agent, found) = Agent::parse("a.md", "a", &format!("---\nmodel: {yaml}\n---\n"));
        let line = |d: &Diagnostic| {
            format!("{} {} ({})", d.position.as_ref().unwrap(), d.message, d.hint.as_deref().unwrap_or("-"))
        };
        (agent.and_then(|agent| agent.model).map(|model| model.value), found.iter().map(line).collect::<Vec<_>>())
    };
    for good in ["gpt-4o-mini", "llama3.2:latest", "org/model-4.5@2026"] {
        assert_eq!(of(good), (Some(good.to_owned()), Vec::new()));
    }
    let wrong = ["''", "' '", "\"a\\nb\"", "{ name: m }", "[m]", &"m".repeat(257)].map(|yaml| of(yaml).1.join(" "));
    insta::assert_snapshot!(wrong.join("\n"), @"
    a.md:2:8 `model`: the name of a model cannot be empty (write a name such as `gpt-4o-mini`)
    a.md:2:8 `model`: the name of a model cannot be empty (write a name such as `gpt-4o-mini`)
    a.md:2:8 `model`: the name of a model must not begin or end with a space, nor hold control characters (write it on one line)
    a.md:2:8 parse agent a.md: yaml: line 2: `model` must be a string, found a mapping (write its name; its service is in `models:` of the policy)
    a.md:2:8 parse agent a.md: yaml: line 2: `model` must be a string, found a list (-)
    a.md:2:8 `model`: the name of a model may have at most 256 bytes (write what its provider calls it)
    ");
}
