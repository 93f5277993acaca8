//! What comes back from sub-agents and who judges it, beyond the plain way: agents of nothing but references, results
//! that are rewritten, several reasons at once, and what the policy denies inside them.

use serde_json::{Value as Json, json};

use crate::agent_turns::{agent, order, spied, told};
use crate::project::{Project, Ran};

const ASKS: &str = "- tool_calls: [{ name: delegate, args: { agent: worker, task: Find it. } }]\n- text: Thanks.\n";
const FINE: &str = "def run(args):\n    return 'it is 42'\n";

fn delegating(policy: &str, front: &str, replies: &str) -> Project {
    agent(policy, &format!("{ASKS}{replies}"))
        .file(".harness/agents/worker.md", &format!("---\n{front}---\nYou work.\n"))
        .tool("shared", "", FINE)
}

/// What the root's model got.
fn result(ran: &Ran) -> String {
    assert_eq!((ran.code, ran.out.as_str()), (0, "Thanks.\n"), "{ran}");
    let asked = told(ran, "completion.pre");
    let root = asked.iter().rfind(|request| request["messages"][0]["content"] == "You help.").unwrap();
    root["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned()
}

fn of_worker(ran: &Ran) -> Vec<Json> {
    let mut asked = told(ran, "completion.pre");
    asked.retain(|request| request["messages"][0]["content"] == "You work.\n");
    asked
}

/// An agent whose tools and hooks are names only has those tools, and its hook acts while it works.
#[test]
fn an_agent_of_references() {
    let front = "tools: [shared]\nhooks: [guard]\n";
    let replies =
        "- { agent: worker, tool_calls: [{ name: shared }, { name: kept }] }\n- { agent: worker, text: Found. }\n";
    let project = delegating("", front, replies).tool("kept", "", FINE).with_handle(
        "guard",
        "tool.pre",
        "when: payload['name'] == 'kept'\n",
        "return block('kept')",
    );
    let ran = spied(project, &["completion.pre"]).run(&["run", "Go"]);
    assert!(result(&ran).contains("\"response\":\"Found.\""), "{ran}");
    let messages = of_worker(&ran)[1]["messages"].clone();
    let contents: Vec<&Json> = messages.as_array().unwrap().iter().rev().take(2).map(|said| &said["content"]).collect();
    assert_eq!(contents, [&json!("tool blocked: blocked by hook \"guard\": kept"), &json!("it is 42")]);
}

/// An agent with no tools at all may be started, and one that says nothing has said nothing.
#[test]
fn an_agent_without_tools_or_words() {
    let replies = format!("{ASKS}- {{ agent: worker, text: '' }}\n");
    let project = agent("", &replies).file(".harness/agents/worker.md", "---\n---\nYou work.\n");
    let ran = spied(project, &["completion.pre"]).run(&["run", "Go"]);
    let result: Json = serde_json::from_str(&result(&ran)).unwrap();
    assert_eq!((&result["response"], &result["calls"]), (&json!(""), &json!(0)));
}

/// What the policy denies is denied to an agent's own tools as well: it is not told of them and cannot call them.
#[test]
fn what_the_policy_denies_is_denied_to_an_agents_own_tools() {
    let own = "tools:\n  - name: own\n    script: |\n      def run(args):\n          fs.write('ran', '')\n          return 'ran'\n";
    let replies = "- { agent: worker, tool_calls: [{ name: own }] }\n- { agent: worker, text: Tried. }\n";
    let ran = |policy: &str| {
        let project = spied(delegating(policy, own, replies), &["completion.pre", "tool.pre"]);
        let ran = project.run(&["run", "Go"]);
        let asked = of_worker(&ran);
        let told = asked[0]["tools"].to_string().contains("\"own\"");
        let got = asked[1]["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
        (told, got, project.path("ran").exists())
    };
    for policy in ["tools_policy: { deny: [own] }\n", "tools_policy: { mode: allowlist, allow: [shared, delegate] }\n"]
    {
        let (told, got, exists) = ran(policy);
        assert!(!told && !exists && got.starts_with("error: the tool `own` is "), "{policy}: {got}");
    }
    assert_eq!(ran(""), (true, "ran".to_owned(), true));
}

const VERIFY: &str = "delegation:\n  max_verify_retries: 1\n  verify: |\n    def run(result):\n        if 'source' in result['response']:\n            return True\n        return json.encode({'verified': False, 'reason': 'no source'})\n";

/// Both judges are asked of each result, and both reasons are told; the worker continues in its own conversation.
#[test]
fn two_reasons_and_one_conversation() {
    let replies = "- { agent: worker, tool_calls: [{ name: shared }] }\n- { agent: worker, text: It is 42. }\n\
                   - { agent: worker, expect: 'no source; blocked by hook \"judge\": too short', text: It is 42 by the source. }\n";
    let body = "return block('too short') if len(payload['result']['response']) < 15 else allow()";
    let project = delegating(VERIFY, "", replies).with_handle("judge", "delegation.post_verify", "", body);
    let ran = spied(project, &["completion.pre", "delegation.post", "delegation.post_verify"]).run(&["run", "Go"]);
    let result: Json = serde_json::from_str(&result(&ran)).unwrap();
    assert_eq!((&result["response"], &result["attempts"]), (&json!("It is 42 by the source."), &json!(2)));
    let last = of_worker(&ran).pop().unwrap();
    let roles: Vec<&str> =
        last["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "system", "user", "assistant", "tool", "assistant", "user"]);
    // The same identifier in every event of one delegation. The judge's block comes before who looks at it.
    let ids = |event: &str| -> Vec<Json> { told(&ran, event).iter().map(|payload| payload["id"].clone()).collect() };
    assert_eq!(ids("delegation.post"), ["delegation_1", "delegation_1"]);
    assert_eq!(ids("delegation.post_verify"), ["delegation_1"]);

    // Only the last reason is told when there is no attempt left.
    let never = "- { agent: worker, text: It is 42. }\n".repeat(3);
    let project = delegating(VERIFY, "", &never).with_handle("judge", "delegation.post_verify", "", body);
    let ran = spied(project, &["completion.pre"]).run(&["run", "Go"]);
    assert_eq!(
        self::result(&ran),
        "tool error: delegation verification failed after 2 attempt(s): no source; blocked by hook \"judge\": too short"
    );
}

/// A hook that looks at a judged result may put another in its place.
#[test]
fn a_result_is_rewritten_where_it_is_judged() {
    let replies = "- { agent: worker, text: It is 42 (source). }\n";
    let body = "return modify({'result': {'short': payload['result']['response'][:5]}})";
    let project = delegating(VERIFY, "", replies).with_handle("cuts", "delegation.post_verify", "", body);
    let ran = spied(project, &["completion.pre", "delegation.post", "delegation.post_verify"]).run(&["run", "Go"]);
    assert_eq!(result(&ran), "{\"short\":\"It is\"}");
    let order: Vec<String> = order(&ran).into_iter().filter(|event| event.starts_with("delegation")).collect();
    assert_eq!(order, ["delegation.post", "delegation.post_verify"]);
}

/// A delegation that a hook refused before has set nobody to work; one whose model fails says whose did.
#[test]
fn a_delegation_that_comes_to_nothing() {
    let failing = "- { agent: worker, error: 'it is \"down\"' }\n";
    let ran = spied(delegating("", "", failing), &["completion.pre", "error"]).run(&["run", "Go"]);
    assert_eq!(result(&ran), "tool error: agent \"worker\": replies.yaml answers 500: it is \"down\"");
    assert_eq!(
        told(&ran, "error"),
        [
            json!({"kind": "completion", "message": "replies.yaml answers 500: it is \"down\"", "source": "agent worker"})
        ]
    );
    // Not waited for, the same is JSON, whatever is in it.
    let replies = format!(
        "- tool_calls: [{{ name: delegate_async, args: {{ agent: worker, task: Go. }} }}]\n- tool_calls: [{{ name: delegate_await }}]\n- text: Thanks.\n{failing}"
    );
    let project = agent("", &replies).file(".harness/agents/worker.md", "---\n---\nYou work.\n");
    let ran = spied(project, &["completion.pre"]).run(&["run", "Go"]);
    let told: Json = serde_json::from_str(&result(&ran)).unwrap();
    assert_eq!(told[0]["status"], "failed");
    assert_eq!(told[0]["error"], "tool error: agent \"worker\": replies.yaml answers 500: it is \"down\"");
}

/// A few failures in a row of one tool stop nothing by themselves, and those of one tool count for no other: what bounds an
/// agent that tries again then is its rounds.
#[test]
fn a_tool_that_fails_again_and_again() {
    let calls = "- { agent: worker, tool_calls: [{ name: fails }, { name: shared }] }\n".repeat(3);
    let replies = format!("{calls}- {{ agent: worker, text: Gave up. }}\n");
    let project = |policy: &str| {
        let project = delegating(policy, "", &replies).tool("fails", "", "def run(args):\n    fail('no')\n");
        spied(project, &["completion.pre"]).run(&["run", "Go"])
    };
    let ran = project("");
    assert!(result(&ran).contains("Gave up."), "{ran}");
    let last = of_worker(&ran).pop().unwrap()["messages"].to_string();
    assert_eq!((last.matches("tool error: no").count(), last.matches("it is 42").count()), (3, 3));
    let ran = project("delegation: { iterations_per_depth: [5, 2] }\n");
    assert!(result(&ran).starts_with("tool error: agent \"worker\": max tool rounds reached (2)"), "{ran}");
}

/// Where the policy does not say how deep agents set agents to work, it is three levels.
#[test]
fn three_levels_unless_the_policy_says_otherwise() {
    let asks = "- { agent: worker, tool_calls: [{ name: delegate, args: { agent: worker, task: Deeper. } }] }\n";
    let ends = "- { agent: worker, text: Back. }\n".repeat(3);
    let replies = format!("{ASKS}{}{ends}", asks.repeat(3));
    let levels = |policy: &str| {
        let project = spied(delegating(policy, "", &replies), &["completion.pre", "delegation.pre"]);
        let ran = project.run(&["run", "Go"]);
        let depths: Vec<u64> =
            told(&ran, "delegation.pre").iter().map(|payload| payload["depth"].as_u64().unwrap()).collect();
        (depths, ran.to_string().contains("delegation depth limit reached (3/3)"))
    };
    assert_eq!(levels("delegation: { allow_recursive: true }\n"), (vec![1, 2, 3], true));
    assert_eq!(levels("delegation: { allow_recursive: true, max_depth: 4 }\n"), (vec![1, 2, 3, 4], false));
}
