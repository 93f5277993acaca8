use super::*;
use crate::policy::ProjectPolicy;
use harness_policy::compare::wider;

fn path(text: &str, access: Access) -> (String, Request) {
    ("tools/it".to_owned(), Request::Path(WorkspacePath::parse(text, "/w").unwrap(), access))
}

pub(super) fn policy(text: &str) -> Option<ProjectPolicy> {
    ProjectPolicy::parse("harness.md", &format!("---\n{text}---\n")).0
}

/// Whatever was asked is allowed; and without any one line something of it is not, or what the line had closed is.
#[test]
fn every_line_is_needed() {
    let command = |args: &[&str]| {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        ("tools/it".to_owned(), Request::Command("git".to_owned(), args))
    };
    let target = |url: &str| harness_policy::network::Target::of(&url::Url::parse(url).unwrap()).unwrap();
    let asked = Asked {
        requests: vec![
            path("a b/[x].md", Access::Read),
            path("src/deep/a.rs", Access::Read),
            path("src", Access::Read),
            path("out/true", Access::Write),
            command(&["status"]),
            command(&["log", "--format=%H \"x\""]),
            command(&["log", "a b"]),
            ("tools/it".to_owned(), Request::Host(target("http://127.0.0.1:8080/"), [127, 0, 0, 1].into())),
            ("tools/it".to_owned(), Request::Host(target("https://a.test/"), [10, 0, 0, 1].into())),
            ("plugins/p/tools/x".to_owned(), Request::Variable("CI".to_owned())),
            ("hooks/h".to_owned(), Request::Service(Service::Clock)),
        ],
    };
    let text = Draft::of(asked.clone(), Kept::default()).text();
    insta::assert_snapshot!(text, @r#"
    network:
      allowed_domains:
        - { host: "127.0.0.1:8080", methods: [GET], scheme: http }
        - { host: "a.test:443", methods: [GET], scheme: https, private: true }
    sandbox:
      fs:
        read:
          - "a b/[[]x[]].md"
          - src
        write:
          - out/true
      exec:
        allow:
          - "git log \"a b\""
          - "git status"
          - { argv: [git, log, "--format=%H \"x\""] }
      env:
        - CI
      services:
        - clock
      sources:
        plugins/p:
          env:
            - CI
    "#);
    let allows = |text: &str| {
        policy(text).is_some_and(|policy| {
            asked.requests.iter().all(|(source, request)| request.allowed(&policy.grant_for(source, None)))
        })
    };
    assert!(allows(&text));
    let lines: Vec<&str> = text.lines().collect();
    for number in 0..lines.len() {
        let less: String =
            lines.iter().enumerate().filter(|(n, _)| *n != number).map(|(_, line)| format!("{line}\n")).collect();
        let opens = || {
            let grant = |text: &str| policy(text).unwrap().grant_for("tools/it", None);
            wider(&grant(&text), &grant(&less)) != []
        };
        assert!(!allows(&less) || opens(), "without line {number}:\n{less}");
    }
}

/// What nobody sees in a command is seen in the rule for it, which still is for that command.
#[test]
fn hidden_characters_are_written_as_numbers() {
    let run = Request::Command("echo".to_owned(), vec!["a\u{202e}b".to_owned()]);
    let text = Draft::of(Asked { requests: vec![("tools/it".to_owned(), run.clone())] }, Kept::default()).text();
    insta::assert_snapshot!(text, @r#"
    sandbox:
      fs: {}
      services: []
      exec:
        allow:
          - { argv: [echo, "a\U0000202eb"] }
    "#);
    assert!(run.allowed(&policy(&text).unwrap().grant_for("tools/it", None)));
}

#[test]
fn what_was_not_asked_is_closed() {
    let kept = Kept {
        variables: vec!["HOME".to_owned()],
        folders: vec!["/opt/go".to_owned()],
        network: true,
        unconfined: false,
        limits: vec![(LimitKey::Fuel, 20_000_000_000)],
        secrets: Vec::new(),
    };
    insta::assert_snapshot!(Draft::of(Asked::default(), Kept::default()).text(), @"
    sandbox:
      fs: {}
      services: []
    ");
    insta::assert_snapshot!(Draft::of(Asked::default(), kept.clone()).text(), @"
    sandbox:
      fs: {}
      services: []
      limits:
        fuel: 20000000000
    ");
    let run = Request::Command("true".to_owned(), Vec::new());
    insta::assert_snapshot!(Draft::of(Asked { requests: vec![("tools/it".to_owned(), run)] }, kept).text(), @r#"
    sandbox:
      fs: {}
      services: []
      exec:
        allow:
          - { argv: ["true"] }
        env:
          - HOME
        folders:
          - "/opt/go"
        network: true
      limits:
        fuel: 20000000000
    "#);
}
