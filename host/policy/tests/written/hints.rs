//! Hints are rules that allow what was refused, and nothing more.

use harness_artifact::policy::ProjectPolicy;
use harness_policy::command::CommandRule;
use harness_policy::grant::Grant;
use harness_policy::network::Target;
use proptest::prelude::*;
use url::Url;

fn target(url: &str) -> Target {
    Target::of(&Url::parse(url).unwrap()).unwrap()
}

#[test]
fn the_hint_is_a_rule_that_allows_it() {
    let nothing = ProjectPolicy::absent(".harness/harness.md").grant_for("tools/it", None);
    for (url, host, scheme) in [
        ("https://example.com:8443/", "example.com:8443", "https"),
        ("https://EXAMPLE.com./", "example.com:443", "https"),
        ("http://0x7f.1:8080/", "127.0.0.1:8080", "http"),
        ("http://[::1]:8080/", "[::1]:8080", "http"),
    ] {
        let refusal = nothing.decide_target(&target(url)).unwrap_err();
        let item = format!("{{ host: {host:?}, methods: [GET], scheme: {scheme} }}");
        assert_eq!(refusal.hint, format!("add `{item}` to `network.allowed_domains` in `.harness/harness.md`"));
        let (layer, wrong) = harness_artifact::policy::layer::parse("x", &format!("network: [{item}]"));
        let Some(layer) = layer else { panic!("{item}: {wrong:?}") };
        assert_eq!(Grant::new(vec![layer]).decide_target(&target(url)), Ok(()), "{url}");
    }
}

proptest! {
    #[test]
    fn a_hint_allows_what_was_refused_and_nothing_more(
        args in prop::collection::vec("[a-c*? \"`#,\n\\\\-]{0,5}", 0..4),
        other in prop::collection::vec("[a-c*? \"`#,\n\\\\-]{0,5}", 0..4),
    ) {
        let Some(Ok(shown)) = CommandRule::shown_for("git", &args) else { panic!("{args:?}") };
        for item in [CommandRule::item_for("git", &args).unwrap(), shown] {
            let (layer, wrong) = harness_artifact::policy::layer::parse("x", &format!("exec: {{ allow: [{item}, x] }}"));
            let Some(layer) = layer else { panic!("{item}: {wrong:?}") };
            let grant = Grant::new(vec![layer]);
            prop_assert_eq!(grant.decide_command("git", &args), Ok(()), "{}", item);
            prop_assert_eq!(grant.decide_command("git", &other).is_ok(), args == other, "{}", item);
        }
    }
}
