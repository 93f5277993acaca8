//! Results that are more than a value, as clients get them.

use serde_json::{Value as Json, json};

use crate::client::{Client, LEGACY};
use crate::project::Project;

/// A script with `run` of these lines.
fn returns(expression: &str) -> String {
    format!("def run(args):\n    return {expression}\n")
}

const ALL: &str = "[content.text('a', audience=['user'], priority=0.5), content.image('iVBORw0=', 'image/png'), \
                   content.audio('UklGRg==', 'audio/wav'), content.resource('test://a', 'text', mime='text/plain'), \
                   content.resource('test://b', blob='AAE='), content.link('https://example.com/a', 'a', 'An a.', 'a/b')]";

#[test]
fn blocks_arrive_as_blocks_in_both_eras() {
    let project = Project::new().tool("it", "", &returns(ALL));
    let want = json!([
        {"type": "text", "text": "a", "annotations": {"audience": ["user"], "priority": 0.5}},
        {"type": "image", "mimeType": "image/png", "data": "iVBORw0="},
        {"type": "audio", "mimeType": "audio/wav", "data": "UklGRg=="},
        {"type": "resource", "resource": {"uri": "test://a", "mimeType": "text/plain", "text": "text"}},
        {"type": "resource", "resource": {"uri": "test://b", "blob": "AAE="}},
        {"type": "resource_link", "uri": "https://example.com/a", "name": "a", "description": "An a.", "mimeType": "a/b"},
    ]);
    let modern = Client::start(&project, &[]).call("it", json!({}));
    assert_eq!(modern, json!({"resultType": "complete", "content": want, "isError": false}));
    let legacy = Client::legacy(&project, &[]).request("tools/call", json!({"name": "it"}));
    assert_eq!(legacy["result"], json!({"content": want, "isError": false}));
}

#[test]
fn a_value_beside_content_is_structured_and_an_error_is_one() {
    let project = Project::new()
        .tool(
            "both",
            "returns: { type: object, required: [n] }\n",
            &returns("content.result([content.text('one')], structured={'n': 1})"),
        )
        .tool("free", "", &returns("content.result([content.text('one')], structured=[1])"))
        .tool("bare", "", &returns("content.result([], structured={'n': 1})"))
        .tool(
            "wrong",
            "returns: { type: object, required: [n] }\n",
            &returns("content.result([content.text('one')], structured={})"),
        )
        .tool(
            "fails",
            "",
            &returns("content.result([content.text('no'), content.image('iVBORw0=', 'image/png')], error=True)"),
        );
    let mut client = Client::start(&project, &[]);
    let one = json!([{"type": "text", "text": "one"}]);
    let of = |content: Json, value: Json| json!({"resultType": "complete", "content": content, "structuredContent": value, "isError": false});
    assert_eq!(client.call("both", json!({})), of(one.clone(), json!({"n": 1})));
    assert_eq!(client.call("free", json!({})), of(one.clone(), json!([1])));
    assert_eq!(client.call("bare", json!({})), of(json!([{"type": "text", "text": "{\"n\":1}"}]), json!({"n": 1})));
    let (text, is_error) = client.text("wrong", json!({}));
    assert!(is_error && text.starts_with("tool error: the result does not fit `returns`: "), "{text}");
    let image = json!({"type": "image", "mimeType": "image/png", "data": "iVBORw0="});
    assert_eq!(
        client.call("fails", json!({})),
        json!({"resultType": "complete", "content": [{"type": "text", "text": "no"}, image], "isError": true})
    );
    // Before 2026-07-28 a value had to be an object.
    let mut older = Client::start(&project, &[]);
    older.initialize(LEGACY);
    let mut legacy = |name: &str| older.request("tools/call", json!({"name": name}))["result"].take();
    assert_eq!(legacy("both"), json!({"content": one, "structuredContent": {"n": 1}, "isError": false}));
    assert_eq!(legacy("free"), json!({"content": one, "isError": false}));
}

#[test]
fn what_is_no_content_is_an_error_of_the_tool() {
    let limits = "sandbox:\n  limits: { output_bytes: 256 }\n";
    let cases = [
        ("content.image('AA=', 'image/png')", "block 0: its data is not base64: Invalid padding"),
        (
            "[content.text('a'), content.image('AA==', 'png')]",
            "block 1: `mime` is not a media type such as `image/png`: `png`",
        ),
        ("[content.text('a')] * 101", "101 blocks are more than 100"),
        ("content.link('a', 'b')", "block 0: `uri` is not an absolute URI such as `file:///report.txt`: `a`"),
    ];
    for (expression, why) in cases {
        let project = Project::new().policy(limits).tool("it", "", &returns(expression));
        let want = format!("tool error: the content cannot be returned: {why}");
        assert_eq!(Client::of(project).text("it", json!({})), (want, true), "{expression}");
    }
    // Data is not cut, texts are.
    let project = Project::new()
        .policy(limits)
        .tool("fits", "", &returns("content.image('AAAA' * 64, 'image/png')"))
        .tool("large", "", &returns("content.image('AAAA' * 65, 'image/png')"))
        .tool("long", "", &returns("[content.image('AAAA' * 50, 'image/png'), content.text('x' * 200)]"));
    let mut client = Client::start(&project, &[]);
    assert_eq!(client.call("fits", json!({}))["content"][0]["data"], "AAAA".repeat(64));
    let (text, is_error) = client.text("large", json!({}));
    let why = "its data has 260 bytes, over the limit `limits.output_bytes` of 256 bytes";
    assert_eq!((text, is_error), (format!("tool error: the content cannot be returned: {why}"), true));
    let long = client.call("long", json!({}))["content"].take();
    assert_eq!(long[0]["data"], "AAAA".repeat(50));
    assert_eq!(long[1]["text"], format!("{}\n[output truncated at 56 bytes]", "x".repeat(25)));
}

#[test]
fn a_secret_is_in_no_block() {
    let value = "a-long-secret-value-of-a-test";
    let script = "def run(args):\n    x = args['x']\n    return [content.text(x), content.link('test://' + x, x), content.resource('test://a', x)]\n";
    let data = "def run(args):\n    return content.image(args['data'], 'image/png')\n";
    let project = Project::new()
        .policy("sandbox:\n  secrets:\n    TOKEN: { env: HARNESS_TEST_SECRET, hosts: [example.com] }\n")
        .tool("texts", "", script)
        .tool("data", "", data);
    let mut client = Client::start_with(&project, &[], &[("HARNESS_TEST_SECRET", value)]);
    let texts = client.call("texts", json!({"x": value}));
    assert!(
        !texts.to_string().contains(value) && texts["content"][2]["resource"]["text"] == "[redacted:TOKEN]",
        "{texts}"
    );
    assert_eq!(client.call("data", json!({"data": "iVBORw0="}))["isError"], false);
}

const HOOK: &str = "---\nevent: tool.post\nscript: |\n  def handle(event, payload):\n      blocks = payload['blocks']\n      \
                    log.info(str(blocks))\n      what = payload['name']\n      if what == 'drops':\n          return \
                    modify({'blocks': [b for b in blocks if b['type'] == 'text']})\n      if what == 'says':\n          \
                    return modify({'content': 'something else'})\n      if what == 'adds':\n          return \
                    modify({'blocks': [{'type': 'image', 'mime': 'image/png', 'data': 'AA=='}]})\n      if what == \
                    'breaks':\n          return modify({'blocks': [{'type': 'video'}]})\n      return allow()\n---\n";

#[test]
fn hooks_see_blocks_and_change_them() {
    let both = returns("[content.text('a'), content.image('iVBORw0=', 'image/png')]");
    let project = Project::new()
        .file(".harness/hooks/post.md", HOOK)
        .tool("keeps", "", &both)
        .tool("drops", "", &both)
        .tool("says", "", &both)
        .tool("breaks", "", &both)
        .tool("adds", "", &returns("'plain'"));
    let mut client = Client::start(&project, &[]);
    let text = json!({"type": "text", "text": "a"});
    let image = |data: &str| json!({"type": "image", "mimeType": "image/png", "data": data});
    let mut content = |name: &str| client.call(name, json!({}))["content"].take();
    assert_eq!(content("keeps"), json!([text, image("iVBORw0=")]));
    assert_eq!(content("drops"), json!([text]));
    // Nothing of the old blocks is left beside another text.
    assert_eq!(content("says"), json!([{"type": "text", "text": "something else"}]));
    assert_eq!(content("adds"), json!([image("AA==")]));
    let refused = content("breaks").to_string();
    assert!(
        refused.contains("tool result blocked") && refused.contains("block 0: unknown variant `video`"),
        "{refused}"
    );
}
