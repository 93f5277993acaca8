//! Plugins with bundles of sigstore. A program without the feature `sigstore` refuses each of them; one with it verifies them
//! with keys that an operator named. The bundles themselves are tested in `host/plugin`.

use std::process::Stdio;

use tempfile::TempDir;

use crate::project::{FINE, Project, Ran};

const PLUGIN: &str = "---\nname: acme\nversion: 1.2.0\ndescription: Searches the archive.\n---\n";
const BUNDLE: &str = include_str!("../../host/plugin/src/signature/fixtures/acme.sigstore.json");
const STRANGER: &str = include_str!("../../host/plugin/src/signature/fixtures/stranger.sigstore.json");
const KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE7sQpRDN47VJKbd8dXd3rmq3+OV1t6151/jhaWCCISssLxY4/UXvWA7SdgivrVWO7qgBZjLg32QqwJiZGKLul3Q==";

struct Place {
    project: Project,
    cache: TempDir,
}

impl Place {
    /// With a bundle, and with a policy that trusts the key for plugins beside the project.
    fn new(bundle: &str) -> Self {
        let (first, second) = KEY.split_at(64);
        let policy = format!(
            "---\ntrusted_sources:\n  - source: ./acme\n    require: signature\n    signers:\n      - |\n        -----BEGIN PUBLIC KEY-----\n        {first}\n        {second}\n        -----END PUBLIC KEY-----\n---\n"
        );
        let project = Project::new().tool("it", "", FINE).file("acme/plugin.md", PLUGIN);
        let project = project.file("acme/plugin.sigstore.json", bundle).file(".harness/harness.md", &policy);
        Self { project, cache: tempfile::tempdir().unwrap() }
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = self.project.command(arguments);
        let output = command.env("XDG_CACHE_HOME", self.cache.path()).stdin(Stdio::null()).output().unwrap();
        self.project.ran(&output)
    }

    fn add(&self) -> Ran {
        self.run(&["plugin", "add", "./acme", "--grant", "none"])
    }
}

/// A policy with a key of sigstore loads in either program. One that is not signed is not trusted.
#[test]
fn a_key_of_sigstore_requires_its_signature() {
    let place = Place::new(BUNDLE);
    std::fs::remove_file(place.project.path("acme/plugin.sigstore.json")).unwrap();
    assert_eq!(place.run(&["call", "it"]).code, 0);
    let refused = place.add();
    assert!(
        refused.code == 2 && refused.err.contains("`trusted_sources` refuses `plugins/acme`: it is not signed"),
        "{refused}"
    );
    assert!(!place.project.path("harness.lock").exists());
}

#[cfg(not(feature = "sigstore"))]
#[test]
fn a_program_without_the_feature_refuses_a_bundle() {
    let why = "error: `./acme` is refused: its sigstore bundle cannot be verified: this program was built without the feature `sigstore`\n";
    for bundle in [BUNDLE, STRANGER, ""] {
        let place = Place::new(bundle);
        let refused = place.add();
        assert_eq!((refused.code, refused.err.as_str()), (3, why), "{refused}");
        assert!(!place.project.path("harness.lock").exists());
    }
}

#[cfg(feature = "sigstore")]
#[test]
fn a_bundle_is_verified_kept_and_verified_at_each_load() {
    let place = Place::new(BUNDLE);
    let added = place.add();
    assert!(
        added.code == 0 && added.out.contains(&format!("signed by {KEY}: a signer of `trusted_sources`")),
        "{added}"
    );
    assert_eq!(place.run(&["plugin", "verify"]).code, 0);
    let lock = std::fs::read_to_string(place.project.path("harness.lock")).unwrap();
    assert!(lock.contains(KEY) && !lock.contains("hint"), "{lock}");
    // Another signer, and a bundle that is gone.
    let stranger = Place::new(STRANGER);
    let refused = stranger.add();
    assert!(refused.code == 3 && refused.err.contains("does not verify with any of the keys"), "{refused}");
    place.project.write("acme/plugin.md", &PLUGIN.replace("1.2.0", "1.3.0"));
    let refused = place.run(&["plugin", "update", "acme"]);
    assert!(refused.code == 3 && refused.err.contains("is of another plugin"), "{refused}");
    assert_eq!(place.run(&["call", "it"]).code, 0);
}
