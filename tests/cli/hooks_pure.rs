//! `builtin.pre` and `builtin.post` of built-ins that compute inside the instance.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use crate::project::{Project, Ran};

/// Logs all that it hears.
const SPY: &str = "log.info(event + ' ' + json.encode(payload))\nreturn allow()";

/// What hooks heard, in order: the event and its payload.
fn heard(ran: &Ran) -> Vec<(String, Json)> {
    let line = |line: &str| {
        let rest = line.strip_prefix("[info] spy")?;
        let (event, payload) = rest.split_once(": ")?.1.split_once(' ')?;
        Some((event.to_owned(), serde_json::from_str(payload).unwrap()))
    };
    ran.err.lines().filter_map(line).collect()
}

/// Each pure built-in there is.
const ALL: &str = r"def run(args):
    x = [math.abs(-1), math.min(1, 2), math.max(1, 2, 3), math.floor(1.5), math.ceil(1.5)]
    x = [json.decode(json.encode([1])), hash.sha256(''), hash.md5(''), base64.decode(base64.encode('a'))]
    x = [re.match('a', 'a'), re.search('a', 'a'), re.find_all('a', 'a'), re.findall('a', 'a'), re.replace('a', 'b', 'a'), re.split('a', 'a')]
    x = [string.upper('a'), string.lower('a'), string.trim('a'), string.split('a', ','), string.join(['a'], ','), string.truncate('a', 1)]
    x = [string.pad_left('a', 2), string.pad_right('a', 2), crypto.hmac_sha256('a', 'b'), url.parse('http://h/'), url.encode({})]
    x = [fs.diff('a', 'b'), template.render('a', {}), validate.email('a'), validate.url('a'), validate.json('a'), assert_that(True)]
    a = set.new([1])
    x = [set.contains(a, 1), set.union(a, a), set.intersect(a, a), set.diff(a, a), set.values(a), set.size(a)]
    x = [os.platform(), os.arch(), allow(), block('a'), modify({})]
    x = [content.image('AA==', 'image/png'), content.audio('AA==', 'audio/wav'), content.link('a:b', 'c')]
    x = content.result([content.text('a'), content.resource('a:b', 'c')])
    return 1
";

/// The page has exactly those that are heard, and all of them.
#[test]
fn hooks_hear_of_each_pure_built_in() {
    let page = include_str!("../../docs/hooks.md");
    let rows = page.lines().filter(|line| line.starts_with("| pure: "));
    let listed: BTreeSet<String> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    let ran = Project::with_script(ALL).with_handle("spy", "builtin.pre", "", SPY).run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "1\n"), "{ran}");
    let named = |(_, payload): (String, Json)| payload["function"].as_str().unwrap().to_owned();
    assert_eq!(heard(&ran).into_iter().map(named).collect::<BTreeSet<_>>(), listed);
}

#[test]
fn hooks_hear_what_a_pure_built_in_gets_and_gives() {
    let script = "def run(args):\n    f = string.pad_left\n    text = f('7', char = '0', n = 3)\n    math.max(1, 2, 3, 4)\n    set.contains(set.new([1]), 1)\n    return json.decode('[' + text)\n";
    let project = Project::with_script(script).with_handle("spy", "builtin.pre", "", SPY).with_handle(
        "spy_post",
        "builtin.post",
        "",
        SPY,
    );
    let ran = project.run(&["call", "it"]);
    assert_eq!(ran.code, 1, "{ran}");
    let agent = json!({"name": "", "depth": 0, "path": []});
    let pre = |function: &str, arguments: &Json| json!({"tool": "it", "function": function, "arguments": arguments, "agent": agent});
    let mut expected = Vec::new();
    let error = "json.decode: invalid number at line 1 column 3";
    for (function, arguments, result, error) in [
        ("string.pad_left", json!({"s": "7", "n": 3, "char": "0"}), json!("007"), json!(null)),
        ("math.max", json!({"a": 1, "b": 2, "more": [3, 4]}), json!(4), json!(null)),
        ("set.new", json!({"items": [1]}), json!([1]), json!(null)),
        ("set.contains", json!({"set": [1], "item": 1}), json!(true), json!(null)),
        ("json.decode", json!({"s": "[007"}), json!(null), json!(error)),
    ] {
        let mut post = pre(function, &arguments);
        post["result"] = result;
        post["error"] = error;
        expected.push(("builtin.pre".to_owned(), pre(function, &arguments)));
        expected.push(("builtin.post".to_owned(), post));
    }
    let mut heard = heard(&ran);
    heard.iter_mut().chain(&mut expected).for_each(|(_, payload)| payload.sort_all_objects());
    assert_eq!(heard, expected, "{ran}");
    // What the spies call themselves, `json.encode` and `log`, is fired for nobody.
    assert_eq!(ran.err.matches("[info]").count(), 10, "{ran}");
}

#[test]
fn hooks_block_and_change_pure_built_ins() {
    let script = "def run(args):\n    return json.encode({'a': 1})\n";
    for (event, body, code, out, err) in [
        ("builtin.pre", "return block('not that')", 3, "", "json.encode: blocked by hook \"guard\": not that"),
        ("builtin.pre", "return modify({'arguments': {'val': [2]}})", 0, "[2]\n", ""),
        ("builtin.pre", "return modify({'arguments': {'value': [2]}})", 1, "", "are not those of `json.encode`"),
        ("builtin.pre", "return modify({'arguments': {}})", 1, "", "are not those of `json.encode`"),
        ("builtin.pre", "return modify({'arguments': [2]})", 1, "", "are not those of `json.encode`"),
        ("builtin.pre", "return modify({'function': 'fs.write'})", 0, "{\"a\":1}\n", "cannot be changed"),
        ("builtin.pre", "fail('broken')", 3, "", "the hook failed: broken"),
        ("builtin.post", "return modify({'result': payload['result'].upper()})", 0, "{\"A\":1}\n", ""),
        ("builtin.post", "return modify({'result': [7]})", 0, "[7]\n", ""),
        ("builtin.post", "return block('kept back')", 3, "", "json.encode: blocked by hook \"guard\": kept back"),
    ] {
        let project = Project::with_script(script).with_handle(
            "guard",
            event,
            "when: payload['function'] == 'json.encode'\n",
            body,
        );
        let ran = project.run(&["call", "it"]);
        assert!(ran.code == code && ran.out == out && ran.err.contains(err), "{event} {body}: {ran}");
    }
    // What a hook leaves as it was is the script's own value, also where JSON has no place for it.
    let script = "def run(args):\n    nan = float('nan')\n    return string.join(['a', 'b'], '-') + str(math.min(2, nan)) + type(set.union(set.new([1]), [2])) + string.pad_left('x', 3)\n";
    let body = "if payload['function'] == 'string.join':\n    return modify({'arguments': {'parts': payload['arguments']['parts'], 'sep': '+'}})\nif payload['function'] == 'set.union':\n    return modify({'arguments': {'a': payload['arguments']['a'], 'b': [3]}})\nif payload['function'] == 'math.min':\n    return modify({'arguments': {'a': 1, 'b': payload['arguments']['b']}})\nif payload['function'] == 'string.pad_left':\n    return modify({'arguments': {'s': 'y', 'n': 2, 'char': '.'}})\nreturn allow()";
    let ran = Project::with_script(script).with_handle("guard", "builtin.pre", "", body).run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "a+b1set.y\n"), "{ran}");
    // Of a call that failed nothing can be made.
    let script = "def run(args):\n    return json.decode('[')\n";
    let project =
        Project::with_script(script).with_handle("guard", "builtin.post", "", "return modify({'result': 'fine'})");
    project.run(&["call", "it"]).says(1, "json.decode: ");
    // Arguments that are not the function's are the function's own error, and nobody hears of them.
    let script = "def run(args):\n    return json.encode()\n";
    let project = Project::with_script(script).with_handle("guard", "builtin.pre", "", "return block('no')");
    project.run(&["call", "it"]).says(1, "Missing parameter `val` for call to `json.encode`");
}

/// No host call, no fuel and no event where no hook listens to just that event of just this tool.
#[test]
fn nothing_is_fired_where_nobody_listens() {
    let script = "def run(args):\n    for i in range(100):\n        json.encode(i)\n    return 1\n";
    let usage = |project: &Project| {
        let ran = project.run(&["call", "it", "--json"]);
        assert_eq!(ran.code, 0, "{ran}");
        let usage = ran.json()["usage"].clone();
        (usage["fuel"].as_u64().unwrap(), usage["host_calls"].as_u64().unwrap())
    };
    let plain = usage(&Project::with_script(script));
    assert_eq!(plain.1, 0);
    let other = Project::with_script(script).with_handle("h", "custom.it", "", "return allow()");
    assert_eq!(usage(&other), plain);
    let hook = "---\nevent: builtin.pre\nscript: |\n  def handle(event, payload):\n      log('acme hears ' + payload['function'])\n      return allow()\n---\n";
    let tool = "---\nscript: |\n  def run(args):\n      return string.upper('own')\n---\nReads.\n";
    let of_a_plugin = Project::with_script(script)
        .file(".harness/plugins/acme/hooks/ear.md", hook)
        .file(".harness/plugins/acme/tools/own.md", tool);
    assert_eq!(usage(&of_a_plugin), plain);
    let ran = of_a_plugin.run(&["call", "own"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "OWN\n"), "{ran}");
    assert_eq!(ran.err.matches("acme hears string.upper").count(), 1, "{ran}");
    // One event is one host call for each call; both are two.
    let before = Project::with_script(script).with_handle("h", "builtin.pre", "", "return allow()");
    assert_eq!(usage(&before).1, 100);
    let both = before.with_handle("g", "builtin.post", "", "return allow()");
    assert_eq!(usage(&both).1, 200);
}
