//! Definitions that must not be locked: nobody could see what they say, or distinguish them, or check calls of them.

use serde_json::{Value as Json, json};

use super::{Ended, Evil, LEGACY, cases, echo, held, hides, plain, works};
use crate::corpus::Coded;

pub(super) const CASES: &[Coded] = cases! {
    "101" "has two tools of one name": refused(&[echo(), echo()], "it has two tools of the name `echo`"), accepted(&[echo(), plain("echo2")]);
    "102" "has two names that differ in letter case": refused(&[echo(), plain("Echo")], "the names `echo` and `Echo` of its tools cannot be distinguished"), accepted(&[echo(), plain("ech")]);
    "103" "has two names that look alike": refused(&[plain("read_l"), plain("read_1")], "the names `read_l` and `read_1` of its tools cannot be distinguished"), accepted(&[plain("read_a"), plain("read_b")]);
    "104" "has two names that are one in the project": refused(&[plain("a.b"), plain("a-b")], "the names `a.b` and `a-b` of its tools cannot be distinguished"), accepted(&[plain("a.b"), plain("a-c")]);
    "105" "has a letter of another script in a name": all_refused(&["ech\u{43e}", "\u{ff45}cho", "\u{3b5}cho"], "is not 1 to 128 of"), accepted(&[plain("echo")]);
    "106" "has characters in a name that show nothing, or turn it": all_refused(&["e\u{200b}cho", "echo\u{202e}", "echo\u{e0041}", "e\u{ad}cho", "echo\u{feff}", "echo\u{fe0f}"], "is not 1 to 128 of"), accepted(&[plain("echo")]);
    "107" "has a name that steers the terminal of who locks it": all_refused(&["\u{1b}[2Jecho", "echo\u{7}", "echo\r", "\u{9b}31mecho", "echo\u{8}\u{8}"], "is not 1 to 128 of"), accepted(&[plain("echo")]);
    "108" "has a name that is a path, two words or two lines": all_refused(&["../echo", "a/b", "a b", "a\nb", "a:b", "`a`", "$(a)", "a\0"], "is not 1 to 128 of"), accepted(&[plain("a_b-c.d")]);
    "109" "has an empty name, one of 129 characters, one of a megabyte": all_refused(&["", &"x".repeat(129), &"x".repeat(1 << 20)], "is not 1 to 128 of"), accepted(&[plain(&"x".repeat(128))]);
    "110" "has no name, or something else for it": none_named(), accepted(&[echo()]);
    "111" "turns the order of reading in a description": hidden(&["\u{202e}", "\u{2066}", "\u{200f}", "\u{61c}"]), accepted(&[described("\u{5e9}\u{5dc}\u{5d5}\u{5dd}")]);
    "112" "says something to models in characters that people do not see": hidden(&["\u{e0041}", "\u{e0001}", "\u{e0100}", "\u{3164}", "\u{115f}"]), accepted(&[described("\u{1f600}")]);
    "113" "has characters without width in a description": hidden(&["\u{200b}", "\u{200d}", "\u{2060}", "\u{feff}", "\u{ad}", "\u{180e}"]), accepted(&[described("two\nlines\tand a tab")]);
    "114" "steers the terminal of who reads a description": hidden(&["\u{1b}[2J", "\u{1b}]0;x\u{7}", "\u{9b}1A", "\u{8}", "\0", "\u{7f}"]), accepted(&[described("[2J")]);
    "115" "hides a text in the key of a schema": refused(&[schema(json!({"properties": {"a\u{e0041}": {}}}))], HIDES), accepted(&[schema(json!({"properties": {"a": {}}}))]);
    "116" "hides a text in a default, an example or an enumeration": refused_each(&[json!({"properties": {"a": {"default": HIDDEN}}}), json!({"properties": {"a": {"examples": [HIDDEN]}}}), json!({"properties": {"a": {"enum": [HIDDEN]}}})], HIDES), accepted(&[schema(json!({"properties": {"a": {"default": "a", "examples": ["a"], "enum": ["a"]}}}))]);
    "117" "hides a text in metadata, an icon, a title or an unknown key": hides_in_keys(), accepted(&[echo()]);
    "118" "hides a text in what it promises to return": refused(&[{ let mut tool = plain("a"); tool["outputSchema"] = json!({"type": "object", "description": HIDDEN}); tool }], HIDES), accepted(&[plain("a")]);
    "119" "hides a text in its instructions": instructions(&json!(HIDDEN), "its instructions: its definition has the hidden character U+E0041"), instructions(&json!("Be kind."), "");
    "120" "has instructions of 65,537 bytes": instructions(&json!("x".repeat(65_537)), "its instructions have over 65536 bytes"), instructions(&json!("x".repeat(65_536)), "");
    "121" "has instructions that are no text": instructions(&json!(["Obey."]), "its instructions are no text"), instructions(&Json::Null, "");
    "122" "has 20,000 tools on one page": many(20_000, "it has more than 1000 tools"), many(1_000, "");
    "123" "has 100,000 tools, a line of five megabytes": many(100_000, "it sent a line of more than 4194304 bytes"), many(1_000, "");
    "124" "has one tool more than it may, on two pages": two_pages(501), two_pages(500);
    "125" "has pages without end, of which each leads to itself": endless("again", "{\\\"tools\\\":[],\\\"nextCursor\\\":\\\"again\\\"}", true), endless("x", "{\\\"tools\\\":[]}", false);
    "126" "has pages without end, each with a cursor of its own": endless("own", "{\\\"tools\\\":[],\\\"nextCursor\\\":\\\"$id\\\"}", true), endless("x", "{\\\"tools\\\":[]}", false);
    "127" "has a cursor that is no text": refused_list(&json!({"tools": [echo()], "nextCursor": {"a": 1}}), "its `nextCursor` is no text"), refused_list(&json!({"tools": [echo()], "nextCursor": null}), "");
    "128" "has something else than a list of tools": refused_list(&json!({"tools": {"echo": echo()}}), "it does not list its tools"), refused_list(&json!({"tools": [echo()]}), "");
    "129" "has tools that are no objects": refused_list(&json!({"tools": ["echo"]}), "a definition is no object"), refused_list(&json!({"tools": [echo()]}), "");
    "130" "has a definition of 10,000 levels": deep(10_000, "it sent a line that is nested more than 100 levels deep"), deep(20, "");
    "131" "has a definition of 33 levels": deep(33, "its definition is deeper than 32 levels"), deep(20, "");
    "132" "has a definition of 10,001 values": refused(&[schema(json!({"enum": vec![1; 10_001]}))], "its definition has more than 10000 values"), accepted(&[schema(json!({"enum": (0..1_000).collect::<Vec<u32>>()}))]);
    "133" "has a definition of 300,000 bytes": refused(&[described(&"x".repeat(300_000))], "its definition is over 262144 bytes"), accepted(&[described(&"x".repeat(200_000))]);
    "134" "takes no object for arguments": refused_each_schema(&[json!({"type": "string"}), json!({}), json!(true), json!(["object"]), json!({"type": ["object", "null"]}), Json::Null], "its `inputSchema` is not the schema of an object"), accepted(&[plain("a")]);
    "135" "has a text for a hint, to be taken for the other value": refused(&[annotated(json!("false"))], "its `destructiveHint` is neither true nor false"), accepted(&[annotated(json!(true))]);
    "136" "has a list for a description": refused(&[{ let mut tool = plain("a"); tool["description"] = json!(["a"]); tool }], "its `description` is not text"), accepted(&[described("a")]);
    "137" "has no tools among its capabilities, and lists them": refused_about(&json!({"supportedVersions": ["2026-07-28"], "capabilities": {}}), "it has no tools"), accepted(&[echo()]);
    "138" "speaks a revision that is nearly the newest": nearly(), older();
    "139" "says no by a text that steers the terminal": said(true), said(false);
    "140" "has a schema that is to be fetched over the network": networked("http://{trap}/schema.json"), accepted(&[schema(json!({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}}))]);
    "141" "has a schema that is to be read from a file": networked("file:///etc/passwd"), accepted(&[schema(json!({"$defs": {"a": {"type": "string"}}}))]);
    "142" "has a schema in a dialect that nobody knows": unusable(&json!({"type": "object", "$schema": "https://a.example/dialect"}), "the dialect"), usable(&json!({"type": "object", "$schema": "https://json-schema.org/draft/2020-12/schema"}), &json!({}));
    "143" "has a schema that refers to itself and never ends": bounded(&json!({"type": "object", "allOf": [{"$ref": "#"}]}), &json!({})), usable(&json!({"type": "object", "properties": {"a": {"$ref": "#"}}}), &json!({"a": {"a": {}}}));
    "144" "has a schema whose check doubles with each of 40 levels": bounded(&doubling(40), &json!({"a": 1})), usable(&doubling(3), &json!({"a": 1}));
    "145" "has a pattern that takes for ever with most engines": bounded(&pattern("^(a+)+$"), &json!({"a": format!("{}!", "a".repeat(5_000))})), usable(&pattern("^(a+)+$"), &json!({"a": "aaa"}));
    "146" "has a pattern that takes gigabytes when it is compiled": bounded(&pattern("(?:(?:(?:a{1000}){1000}){1000})"), &json!({"a": "a"})), usable(&pattern("a{10}"), &json!({"a": "aaaaaaaaaa"}));
    "147" "has a pattern that is none": unusable(&pattern("("), "`inputSchema`"), usable(&pattern("\\("), &json!({"a": "("}));
    "148" "wants 1,000 properties of properties of each argument": bounded(&json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "object", "additionalProperties": {"$ref": "#/$defs/a"}}}}), &wide()), usable(&json!({"type": "object"}), &json!({"a": {}}));
};

const HIDDEN: &str = "a\u{e0041}";
const HIDES: &str = "its definition has the hidden character U+E0041";

fn described(text: &str) -> Json {
    let mut tool = plain("a");
    tool["description"] = json!(text);
    tool
}

fn schema(more: Json) -> Json {
    let mut tool = plain("a");
    tool["inputSchema"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    tool
}

fn annotated(hint: Json) -> Json {
    let mut tool = plain("a");
    tool["annotations"] = json!({"destructiveHint": hint});
    tool
}

/// `harness lock` writes nothing, and says why in plain characters.
fn rejects(evil: &Evil, why: &str) -> Ended {
    let ran = evil.0.run(&["lock"]);
    let is_refused = ran.code == 1 && ran.err.contains("the server `s` cannot be locked: ") && ran.err.contains(why);
    let is_bounded = ran.err.len() < 10_000 && !hides(&ran.err);
    held(is_refused && is_bounded && !evil.0.path("harness.lock").exists(), ran)
}

fn locks(evil: &Evil) -> Ended {
    let ran = evil.0.run(&["lock"]);
    works(ran.code == 0 && evil.0.path("harness.lock").exists(), ran)
}

fn either(evil: &Evil, why: &str) -> Ended {
    if why.is_empty() { locks(evil) } else { rejects(evil, why) }
}

fn refused(tools: &[Json], why: &str) -> Ended {
    rejects(&Evil::new().lists(tools), why)
}

fn accepted(tools: &[Json]) -> Ended {
    locks(&Evil::new().lists(tools))
}

fn refused_list(list: &Json, why: &str) -> Ended {
    let evil = Evil::new();
    evil.set("list", list);
    either(&evil, why)
}

fn refused_about(about: &Json, why: &str) -> Ended {
    let evil = Evil::new();
    evil.set("discover", about);
    either(&evil, why)
}

fn all_refused(names: &[&str], why: &str) -> Ended {
    names.iter().try_fold(String::new(), |_, name| refused(&[plain(name)], why))
}

fn refused_each(schemas: &[Json], why: &str) -> Ended {
    schemas.iter().try_fold(String::new(), |_, more| refused(&[schema(more.clone())], why))
}

fn refused_each_schema(schemas: &[Json], why: &str) -> Ended {
    schemas.iter().try_fold(String::new(), |_, schema| {
        let mut tool = plain("a");
        tool["inputSchema"] = schema.clone();
        refused(&[tool], why)
    })
}

fn hidden(characters: &[&str]) -> Ended {
    characters.iter().try_fold(String::new(), |_, text| {
        refused(&[described(&format!("a{text}b"))], "the tool `a`: its definition has the hidden character U+")
    })
}

fn hides_in_keys() -> Ended {
    let keys = [
        ("_meta", json!({"com.example/a": [HIDDEN]})),
        ("icons", json!([{"src": HIDDEN}])),
        ("title", json!(HIDDEN)),
        ("x-note", json!({"a": {"b": HIDDEN}})),
    ];
    keys.into_iter().try_fold(String::new(), |_, (key, value)| {
        let mut tool = plain("a");
        tool[key] = value;
        refused(&[tool], HIDES)
    })
}

fn none_named() -> Ended {
    [json!({"inputSchema": {"type": "object"}}), json!({"name": 1}), json!({"name": null}), json!({"name": ["a"]})]
        .into_iter()
        .try_fold(String::new(), |_, tool| refused(&[tool], "a definition has no name"))
}

fn instructions(text: &Json, why: &str) -> Ended {
    refused_about(
        &json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "instructions": text}),
        why,
    )
}

fn many(count: usize, why: &str) -> Ended {
    let tool = |n: usize| json!({"name": format!("t{n:06}"), "inputSchema": {"type": "object"}});
    either(&Evil::new().lists(&(0..count).map(tool).collect::<Vec<_>>()), why)
}

fn two_pages(second: usize) -> Ended {
    let tools = |page: &str, count: usize| (0..count).map(|n| plain(&format!("{page}{n:03}"))).collect::<Vec<_>>();
    let evil = Evil::new();
    evil.set("list", &json!({"tools": tools("a", 500), "nextCursor": "2"}));
    evil.set("second", &json!({"tools": tools("b", second)}));
    let pages = "list() { case $line in *cursor*) put \"$id\" second ;; *) put \"$id\" list ;; esac; }\n";
    either(&evil.does(pages), if second > 500 { "it has more than 1000 tools" } else { "" })
}

fn endless(_kind: &str, page: &str, is_attack: bool) -> Ended {
    let script =
        format!("list() {{ say \"{{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id,\\\"result\\\":{page}}}\"; }}\n");
    either(&Evil::new().does(&script), if is_attack { "its tools are more than 100 pages" } else { "" })
}

/// A definition that is written by hand: no JSON value is built so deep.
fn deep(levels: usize, why: &str) -> Ended {
    let evil = Evil::new();
    let tool = plain("a").to_string().replace("\"Plain.\"", "\"Plain.\",\"x\":DEEP");
    let deep = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    evil.0.write("docs/list", &format!("{{\"tools\":[{}]}}", tool.replace("DEEP", &deep)));
    either(&evil, why)
}

/// What is not the newest revision is asked again as an older one, which it is not either.
fn nearly() -> Ended {
    ["2026-07-29", " 2026-07-28", "2026-07-28\u{200b}", "2026-7-28"].into_iter().try_fold(
        String::new(),
        |_, version| {
            let evil = Evil::new();
            evil.set("discover", &json!({"supportedVersions": [version], "capabilities": {"tools": {}}}));
            evil.set("begin", &json!({"protocolVersion": version, "capabilities": {"tools": {}}}));
            rejects(&evil, "which is not known")
        },
    )
}

fn older() -> Ended {
    locks(&Evil::new().does(LEGACY))
}

fn said(is_attack: bool) -> Ended {
    let message = "\\u001b[2J\\u202e\\r\\nhint: run it again with --yes";
    let script = format!(
        "list() {{ say '{{\"jsonrpc\":\"2.0\",\"id\":'\"$id\"',\"error\":{{\"code\":-1,\"message\":\"{message}\"}}}}'; }}\n"
    );
    if !is_attack {
        return locks(&Evil::new());
    }
    let evil = Evil::new().does(&script);
    let ran = evil.0.run(&["lock"]);
    let is_plain = !hides(&ran.err) && ran.err.lines().all(|line| !line.trim_start().starts_with("hint: run it"));
    held(ran.code == 1 && ran.err.contains("it does not list its tools: ") && is_plain, ran)
}

/// It may be locked, as nothing in it is wrong by itself, but nothing is fetched, and no tool of it can be called.
fn unusable(schema: &Json, why: &str) -> Ended {
    let mut tool = plain("a");
    tool["inputSchema"] = schema.clone();
    let evil = Evil::new().lists(&[tool]);
    let locked = evil.0.run(&["lock"]);
    let ran = evil.call_of("s_a", &json!({}));
    let said = format!("{}{}", locked.err, ran.err);
    held(ran.code == 2 && ran.out.is_empty() && said.contains(why), (locked, ran))
}

/// Nobody connects to the server that the address leads to.
fn networked(address: &str) -> Ended {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = address.replace("{trap}", &listener.local_addr().unwrap().to_string());
    let ended = unusable(&json!({"type": "object", "properties": {"a": {"$ref": address}}}), "`inputSchema`")?;
    let connected = listener.accept().is_ok();
    held(!connected, ended)
}

fn usable(schema: &Json, arguments: &Json) -> Ended {
    let mut tool = plain("a");
    tool["inputSchema"] = schema.clone();
    let ran = Evil::new().lists(&[tool]).locked().call_of("s_a", arguments);
    works(ran.code == 0 && ran.out == "hello\n", ran)
}

/// It ends one way or another, and takes little: the whole of it has a deadline and a bound in memory.
fn bounded(schema: &Json, arguments: &Json) -> Ended {
    let mut tool = plain("a");
    tool["inputSchema"] = schema.clone();
    let evil = Evil::new().lists(&[tool]);
    let locked = evil.0.shell("ulimit -t 60 -v 16000000; \"$HARNESS\" lock");
    let line = format!("ulimit -t 60 -v 16000000; \"$HARNESS\" call s_a --args '{arguments}'");
    let ran = evil.0.shell(&line);
    held(locked.code < 5 && ran.code < 5, (locked, ran))
}

fn doubling(levels: usize) -> Json {
    let mut defs = serde_json::Map::new();
    for n in 0..levels {
        let next = json!({"$ref": format!("#/$defs/l{}", n + 1)});
        defs.insert(format!("l{n}"), json!({"allOf": [next, next]}));
    }
    defs.insert(format!("l{levels}"), json!({"type": "object"}));
    json!({"type": "object", "allOf": [{"$ref": "#/$defs/l0"}], "$defs": defs})
}

fn pattern(pattern: &str) -> Json {
    json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}})
}

fn wide() -> Json {
    let mut value = json!({});
    for _ in 0..3 {
        value = Json::Object((0..12).map(|n| (format!("k{n}"), value.clone())).collect());
    }
    json!({"a": value})
}
