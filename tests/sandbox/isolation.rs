//! What one call leaves for the next: nothing but what its session keeps on purpose.

use std::sync::Arc;

use harness_dispatch::{Options, Project, Run};
use harness_policy::limits::Limits;
use harness_sandbox::outcome::{Entry, Outcome};
use serde_json::json;

use crate::kit::{Kit, failure};

/// What is changed in one call is as the script left it in the next. What the top level made is frozen to begin with.
#[tokio::test]
async fn a_call_sees_nothing_of_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let tools = folder.path().join(".harness/tools");
    std::fs::create_dir_all(&tools).unwrap();
    let counts = "def run(args):\n    n = cache.get('n', 0) + 1\n    cache.set('n', n)\n    seen = {'list': []}\n    seen['list'].append(n)\n    return seen['list']\n";
    let changes = "shared = [0]\n\ndef run(args):\n    shared.append(1)\n    return shared\n";
    for (name, script) in [("counts", counts), ("changes", changes)] {
        let script: String = script.lines().map(|line| format!("  {line}\n")).collect();
        std::fs::write(tools.join(format!("{name}.md")), format!("---\nscript: |\n{script}---\n")).unwrap();
    }
    let project = Project::open(folder.path(), Options::default()).unwrap();
    let session = Run::new();
    let result =
        async |name: &str, session: &Arc<Run>| match project.call(name, json!({}), session).await.unwrap().outcome {
            Outcome::Completed(output) => output.content,
            Outcome::Failed(failure) => failure.message,
            other => panic!("{other:?}"),
        };
    for _ in 0..2 {
        let message = result("changes", &session).await;
        assert!(message.contains("this value is fixed"), "{message}");
    }
    // The cache belongs to the session: shared within, and new with each.
    assert_eq!(result("counts", &session).await, "[1]");
    assert_eq!(result("counts", &session).await, "[2]");
    assert_eq!(result("counts", &Run::new()).await, "[1]");
    assert_eq!(result("counts", &session).await, "[3]");
}

/// Memory that a call filled is not in the memory that the next one gets, though the slot of the pool is the same.
#[tokio::test]
async fn a_slot_is_clean_when_it_is_used_again() {
    let kit = Kit::with_room_for(1);
    let fills = kit
        .tool("def run(args):\n    x = 'secret' * 500000\n    return len(x) + len([x + str(i) for i in range(5)])\n");
    let looks = kit.tool("def run(args):\n    return len(dir(args))\n");
    let clean = kit.run(&looks, Limits::default(), "{}").await;
    for _ in 0..5 {
        assert_eq!(kit.completes(&fills, "{}").await, "3000005");
        let again = kit.run(&looks, Limits::default(), "{}").await;
        assert_eq!(
            (&again.outcome, again.usage.fuel, again.usage.peak_memory),
            (&clean.outcome, clean.usage.fuel, clean.usage.peak_memory)
        );
    }
}

#[tokio::test]
async fn metrics_are_of_the_session() {
    let kit = Kit::new();
    let image = kit.tool("def run(args):\n    return metrics.incr('calls')\n");
    assert_eq!(kit.completes(&image, "{}").await, "1");
    assert_eq!(kit.completes(&image, "{}").await, "2");
    assert_eq!(kit.session.metrics.get("calls"), 2.0);
}

/// A refusal in one call is not believed in another: a script cannot claim to have been denied.
#[tokio::test]
async fn a_script_cannot_say_that_it_was_denied() {
    let kit = Kit::new();
    let refused = kit.tool("def run(args):\n    return env('NOT_GRANTED')\n");
    let report = kit.run(&refused, Limits::default(), "{}").await;
    assert!(matches!(report.outcome, Outcome::Denied { .. }), "{report:?}");
    let claims = kit.tool("def run(args):\n    fail('env: the variable `NOT_GRANTED` is not granted')\n");
    let report = kit.run(&claims, Limits::default(), "{}").await;
    assert_eq!(failure(report), "env: the variable `NOT_GRANTED` is not granted");
    // Nor can one that was refused something and continued.
    let later = kit.tool("def run(args):\n    fs.exists('/etc/passwd')\n    fail('mine')\n");
    let report = kit.run(&later, Limits::default(), "{}").await;
    assert!(matches!(report.outcome, Outcome::Failed(_) | Outcome::Denied { .. }), "{report:?}");
}

/// A hostile top level costs its own load only.
#[test]
fn a_load_that_goes_wrong_leaves_the_others_alone() {
    let kit = Kit::new();
    let bomb = "def f():\n    x = [0] * 1000\n    for i in range(100):\n        x = x + x\n    return x\n\ny = f()\n\ndef run(args):\n    return 1\n";
    for _ in 0..20 {
        let over = "loading the script is over the limit `memory` of 33554432 bytes: move work into a function";
        assert_eq!(kit.load(bomb, Entry::Tool, None).unwrap_err().message, over);
    }
    kit.tool("def run(args):\n    return 1\n");
}
