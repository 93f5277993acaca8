//! Plugins that are signed, and sources that are trusted. The signatures were made by minisign and ssh-keygen, with keys that
//! were made for these tests; `tests/signatures/run` has the tools themselves at the other side.

use std::path::PathBuf;
use std::process::Stdio;

use tempfile::TempDir;

use crate::project::{FINE, Project, Ran};

const PLUGIN: &str = "---\nname: acme\nversion: 1.2.0\ndescription: Searches the archive.\n---\n";
const MINISIGN: &str = "RWQyUHrYd0ab27mjqZ75GRgdSpqXHVuKKq/eWWvtG2VlNaj3bNCz0hLz";
const SSH: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPwYkwYU1pOyCD0FMBSQ8AAe741BsH2dfDBN0B9fHbJm";
const STRANGER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILqIUWVyXL4Qnw8iSZsHuOvdfbrG0L+0A7a1Gtp4SEFy";

macro_rules! made {
    ($name:literal) => {
        include_str!(concat!("../../host/plugin/src/signature/fixtures/", $name))
    };
}

/// A project, a plugin beside it, and a cache.
struct Place {
    project: Project,
    cache: TempDir,
}

impl Place {
    fn new() -> Self {
        let project = Project::new().tool("it", "", FINE).file("acme/plugin.md", PLUGIN);
        Self { project, cache: tempfile::tempdir().unwrap() }
    }

    /// With a signature in the folder of the plugin.
    fn signed(self, name: &str, text: &str) -> Self {
        self.project.write(&format!("acme/{name}"), text);
        self
    }

    fn policy(self, text: &str) -> Self {
        self.project.write(".harness/harness.md", &format!("---\n{text}---\n"));
        self
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = self.project.command(arguments);
        let output = command.env("XDG_CACHE_HOME", self.cache.path()).stdin(Stdio::null()).output().unwrap();
        self.project.ran(&output)
    }

    fn add(&self, more: &[&str]) -> Ran {
        self.run(&[&["plugin", "add", "./acme", "--grant", "none"], more].concat())
    }

    /// Adds it, or updates it to 1.3.0 with a signature.
    fn next(&self, name: &str, text: &str) -> &Self {
        self.project.write("acme/plugin.md", &PLUGIN.replace("1.2.0", "1.3.0"));
        self.project.write(&format!("acme/{name}"), text);
        self
    }

    fn path(&self, path: &str) -> PathBuf {
        self.project.path(path)
    }

    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }
}

#[test]
fn a_signer_is_shown_kept_and_verified_at_each_load() {
    let place = Place::new().signed("plugin.sig", made!("acme.sig")).signed("plugin.minisig", made!("acme.minisig"));
    // Of minisign the key has to be known.
    place
        .add(&[])
        .says(3, "is by the key with the id DB9B4677D87A5032, which is unknown: give the key with `--signer`");
    assert!(!place.path("harness.lock").exists());
    let added = place.add(&["--signer", MINISIGN]);
    assert_eq!(added.code, 0, "{added}");
    assert!(added.out.contains(&format!("  signed by {MINISIGN}: the key of `--signer`\n")), "{added}");
    assert!(added.out.contains("    comment of the signer: timestamp:"), "{added}");
    assert!(added.out.contains(&format!("  signed by {SSH}: an unknown key: anybody can make one\n")), "{added}");
    let lock = place.text("harness.lock");
    assert!(lock.contains(&format!("[[plugin.signed]]\nsigner = \"{SSH}\"\n")), "{lock}");
    assert!(lock.contains("untrusted comment: signature\n"), "{lock}");
    // Without the files, and without a network.
    std::fs::remove_dir_all(place.path("acme")).unwrap();
    place.run(&["call", "it"]).gives("fine");
    place.run(&["plugin", "verify"]).gives("verified: 1 plugin");
    let shown = place.run(&["plugin", "show", "acme"]);
    assert!(shown.out.contains(&format!("signed by {SSH}: the signer of the version in use")), "{shown}");
    let listed = place.run(&["plugin", "list", "--json"]).json();
    assert_eq!(listed[0]["signed_by"][1], serde_json::json!({"signer": SSH, "known": "lock"}));
    // An entry that was edited, in each of its parts.
    let base64 = made!("acme.sig").lines().nth(2).unwrap();
    let other = made!("stranger.sig").lines().nth(2).unwrap();
    for (from, to) in
        [(SSH, STRANGER), (base64, other), ("signer = ", "signed = "), ("[[plugin.signed]]\nsigner", "signer")]
    {
        place.project.write("harness.lock", &lock.replacen(from, to, 1));
        place.run(&["call", "it"]).says(2, "`harness.lock`");
    }
    place.project.write("harness.lock", &lock);
    place.run(&["call", "it"]).gives("fine");
}

#[test]
fn what_does_not_verify_is_not_unsigned() {
    for (name, text, why) in [
        ("plugin.sig", made!("other_file.sig"), "its SSH signature does not verify"),
        ("plugin.sig", made!("other_namespace.sig"), "is for the namespace `file`, and not for `harness`"),
        ("plugin.sig", made!("rsa.sig"), "is by a key of the kind `ssh-rsa`"),
        ("plugin.sig", "", "its SSH signature cannot be read"),
        ("plugin.minisig", made!("legacy.minisig"), "is in the form before prehashing"),
        ("plugin.minisig", made!("escapes.minisig"), "it has a control character"),
        ("plugin.minisig", made!("other_file.minisig"), "does not verify with the key that has its id"),
    ] {
        let place = Place::new().signed(name, text);
        let signer = if name == "plugin.sig" { SSH } else { MINISIGN };
        let refused = place.add(&["--signer", signer]);
        refused.says(3, why);
        place.run(&["plugin", "show", "./acme", "--signer", signer]).says(3, why);
        assert!(!place.path("harness.lock").exists() && !refused.err.contains('\u{1b}'), "{refused}");
    }
    // The controls: the same without a signature, and beside a packed file.
    let place = Place::new();
    assert!(place.add(&[]).out.contains("  not signed\n"));
    let place = Place::new();
    let packed = place.run(&["plugin", "pack", "acme"]);
    assert_eq!(packed.code, 0, "{packed}");
    place.project.write("acme-1.2.0.tar.sig", made!("acme.sig"));
    let add = |key: &str| place.run(&["plugin", "add", "./acme-1.2.0.tar", "--grant", "none", "--signer", key]);
    add(STRANGER).says(3, &format!("it is signed by `{SSH}`, and not by `{STRANGER}`"));
    assert_eq!(add(SSH).code, 0);
    // One that is expected and not there.
    Place::new().add(&["--signer", SSH]).says(3, &format!("it is signed by nobody, and not by `{SSH}`"));
    Place::new().add(&["--signer", "DB9B4677D87A5032"]).says(2, "is not the public key of a signer");
}

#[test]
fn another_signer_needs_consent() {
    let start = || {
        let place = Place::new().signed("plugin.sig", made!("acme.sig"));
        assert_eq!(place.add(&[]).code, 0);
        place
    };
    // The control: the same signer.
    let place = start();
    let updated = place.next("plugin.sig", made!("next.sig")).run(&["plugin", "update", "acme"]);
    assert_eq!((updated.code, updated.out.contains("signed by")), (0, false), "{updated}");
    place.run(&["plugin", "list"]).gives("acme 1.3.0  ./acme");
    // Another one, and none any more.
    let place = start();
    place.next("plugin.sig", made!("next_stranger.sig"));
    let staged = place.run(&["plugin", "update", "acme"]);
    assert!(
        staged.out.contains(&format!("  signed by: + {STRANGER}: an unknown key: anybody can make one\n")),
        "{staged}"
    );
    assert!(staged.out.contains(&format!("  signed by: - {SSH}\n")), "{staged}");
    staged.says(1, "`acme` 1.3.0 is staged: it needs your consent");
    assert!(place.text("harness.lock").contains("version = \"1.2.0\""));
    let place = start();
    place.next("plugin.sig", made!("next.sig"));
    std::fs::remove_file(place.path("acme/plugin.sig")).unwrap();
    let staged = place.run(&["plugin", "update", "acme"]);
    assert!(staged.out.contains(&format!("  signed by: - {SSH}\n")), "{staged}");
    staged.says(1, "is staged: it needs your consent");
    place.run(&["call", "it"]).gives("fine");
    // The same content, signed by somebody else.
    let place = start();
    place.project.write("acme/plugin.sig", made!("stranger.sig"));
    let staged = place.run(&["plugin", "update", "acme"]);
    assert!(staged.out.contains(&format!("  signed by: - {SSH}\n")) && !staged.out.contains("its content"), "{staged}");
    staged.says(1, "is staged: it needs your consent");
    // A signature that does not verify stops the update.
    place.project.write("acme/plugin.sig", made!("other_file.sig"));
    place.run(&["plugin", "update", "acme"]).says(3, "its SSH signature does not verify");
}

#[test]
fn a_source_has_to_be_trusted() {
    let entry = |more: &str| format!("trusted_sources:\n  - {{ source: ./acme, {more} }}\n");
    let signature = entry(&format!("require: signature, signers: [\"{SSH}\"]"));
    let place = Place::new().policy(&signature);
    place.add(&[]).says(2, "`trusted_sources` refuses `plugins/acme`: it is not signed");
    assert!(!place.path("harness.lock").exists());
    let place = Place::new().policy(&signature).signed("plugin.sig", made!("stranger.sig"));
    place.add(&[]).says(2, &format!("it is signed by `{STRANGER}`, which is not one of the signers"));
    let place = Place::new().policy(&signature).signed("plugin.sig", made!("acme.sig"));
    let added = place.add(&[]);
    assert_eq!(added.code, 0, "{added}");
    assert!(
        added.out.contains(&format!("signed by {SSH}: a signer of `trusted_sources` (.harness/harness.md:3)")),
        "{added}"
    );
    place.run(&["call", "it"]).gives("fine");
    // At each load, too.
    let place = place.policy(&signature.replace(SSH, STRANGER));
    place.run(&["call", "it"]).says(2, "which is not one of the signers");
    let place = place.policy("trusted_sources: [{ source: ./other/* }]\n");
    place.run(&["call", "it"]).says(2, "it comes from `./acme`, which no entry is about");
    let place = place.policy("trusted_sources: [{ source: ./* }]\n");
    place.run(&["call", "it"]).gives("fine");
    // A key of minisign that an entry names is known.
    let place = Place::new()
        .policy(&entry(&format!("require: signature, signers: [{MINISIGN}]")))
        .signed("plugin.minisig", made!("acme.minisig"));
    assert_eq!(place.add(&[]).code, 0);
}

#[test]
fn a_project_does_not_loosen_the_host_policy() {
    let place = Place::new().policy("trusted_sources: [{ source: '*' }]\n").signed("plugin.sig", made!("acme.sig"));
    place.project.write(
        "host.yaml",
        &format!("trusted_sources: [{{ source: './*', require: signature, signers: [\"{STRANGER}\"] }}]\n"),
    );
    let add = |place: &Place| place.run(&["--policy", "host.yaml", "plugin", "add", "./acme", "--grant", "none"]);
    add(&place).says(2, "which is not one of the signers");
    place.project.write(
        "host.yaml",
        &format!("trusted_sources: [{{ source: './*', require: signature, signers: [\"{SSH}\"] }}]\n"),
    );
    assert_eq!(add(&place).code, 0);
    // And the host policy does not loosen the project.
    let place = place.policy("trusted_sources: [{ source: './other/*' }]\n");
    place.run(&["--policy", "host.yaml", "call", "it"]).says(2, "which no entry is about");
}

#[test]
fn what_lies_in_the_project_loads_unless_an_entry_is_about_it() {
    let place = Place::new();
    place.project.write(".harness/plugins/ours/bundle.md", "---\n---\n");
    let with = |place: Place, list: &str| place.policy(&format!("trusted_sources: {list}\n"));
    let place = with(place, "[{ source: ./acme }]");
    place.run(&["call", "it"]).gives("fine");
    let place = with(place, "[{ source: .harness/plugins/* }]");
    place.run(&["call", "it"]).says(2, "`trusted_sources` refuses `plugins/ours`: it is not in `harness.lock`");
    let signed = format!("[{{ source: .harness/plugins/*, require: signature, signers: [{MINISIGN}] }}]");
    let place = with(place, &signed);
    place.run(&["call", "it"]).says(2, "it is not in `harness.lock`, which keeps signatures");
    let place = with(place, "[{ source: .harness/plugins/ours, require: none }, { source: .harness/plugins/* }]");
    place.run(&["call", "it"]).gives("fine");
}

#[test]
fn a_plugin_gets_no_more_than_its_source_may() {
    let tool = "---\nscript: |\n  def run(args):\n      return env('HARNESS_TEST_VARIABLE')\n---\nReads it.\n";
    let with = |max: &str| {
        let place = Place::new().policy(&format!(
            "trusted_sources: [{{ source: .harness/plugins/*, require: none{max} }}]\nsandbox:\n  env: [HARNESS_TEST_VARIABLE]\n  sources: {{ plugins/ours: {{ env: [HARNESS_TEST_VARIABLE] }} }}\n"
        ));
        place.project.write(".harness/plugins/ours/tools/theirs.md", tool);
        place
    };
    with("").run(&["call", "theirs"]).gives("a value");
    with(", max: { env: [HARNESS_TEST_VARIABLE] }").run(&["call", "theirs"]).gives("a value");
    let place = with(", max: { env: [] }");
    place
        .run(&["call", "theirs"])
        .says(3, "add `HARNESS_TEST_VARIABLE` to `trusted_sources[0].max.env` in `.harness/harness.md:2:");
    let shown = place.run(&["policy", "show", "theirs"]);
    assert!(shown.out.contains("the most for its source (`trusted_sources[0]`):"), "{shown}");
    // What it does not name it does not grant, and an artifact of the project is not under it.
    with(", max: { network: [] }").run(&["call", "theirs"]).says(3, "trusted_sources[0].max.env");
    place.run(&["call", "it"]).gives("fine");
    // The host policy's bounds as well.
    let place = with("");
    place.project.write("host.yaml", "trusted_sources: [{ source: '*', require: none, max: { env: [] } }]\n");
    place
        .run(&["--policy", "host.yaml", "call", "theirs"])
        .says(3, "add `HARNESS_TEST_VARIABLE` to `trusted_sources[0].max.env` in `host.yaml:1:");
}

#[test]
fn a_name_that_looks_like_another_is_noted() {
    let place = Place::new();
    assert_eq!(place.add(&[]).code, 0);
    place.project.write("acrne/plugin.md", &PLUGIN.replace("acme", "acrne"));
    let shown = place.run(&["plugin", "show", "./acrne"]);
    assert!(shown.out.contains("  its name looks like that of the plugin `acme`, which is there already\n"), "{shown}");
    place.project.write("other/plugin.md", &PLUGIN.replace("acme", "other"));
    assert!(!place.run(&["plugin", "show", "./other"]).out.contains("looks like"));
}
/// Consent by a digest is to the signers too, and of a plugin without one to its content.
#[test]
fn a_review_is_of_the_signers_too() {
    let place = Place::new().signed("plugin.sig", made!("acme.sig"));
    let shown = || place.run(&["plugin", "show", "./acme", "--json"]).json();
    let text = |json: &serde_json::Value, key: &str| json[key].as_str().unwrap().to_owned();
    let add = |digest: &str| place.run(&["plugin", "add", "./acme", "--grant-digest", digest]);
    let (content, review) = (text(&shown(), "digest"), text(&shown(), "review"));
    assert_ne!(content, review);
    let printed = place.run(&["plugin", "show", "./acme"]);
    assert!(printed.out.contains(&format!("  with its signers: {review}\n")), "{printed}");
    for (name, signature) in
        [("the content alone", Some(made!("acme.sig"))), ("a stranger", Some(made!("stranger.sig"))), ("nobody", None)]
    {
        match signature {
            Some(signature) => place.project.write("acme/plugin.sig", signature),
            None => std::fs::remove_file(place.path("acme/plugin.sig")).unwrap(),
        }
        let digest = if name == "the content alone" { &content } else { &review };
        let refused = add(digest);
        assert_eq!(refused.code, 3, "{name}: {refused}");
        assert!(refused.err.contains(&format!("and {digest} was reviewed")) && !place.path("harness.lock").exists());
    }
    assert_eq!(text(&shown(), "review"), content);
    place.project.write("acme/plugin.sig", made!("acme.sig"));
    assert_eq!(add(&review).code, 0);
}

/// Each bit of a lock with signatures and a staged version, and of the vendored plugin, turned once: by the library, and a
/// sample of them by the program.
#[test]
fn no_bit_of_a_signed_and_vendored_plugin_is_turned_unseen() {
    let place = Place::new().signed("plugin.sig", made!("acme.sig")).signed("plugin.minisig", made!("acme.minisig"));
    assert_eq!(place.add(&["--vendor", "--signer", MINISIGN]).code, 0);
    place.next("plugin.sig", made!("next_stranger.sig"));
    std::fs::remove_file(place.path("acme/plugin.minisig")).unwrap();
    place.run(&["plugin", "update", "acme"]).says(1, "`acme` 1.3.0 is staged");
    let machine = harness_registry::Machine::None;
    let loads = || {
        let host = harness_registry::Host::new(&machine, None);
        harness_registry::Registry::load_within(place.project.root(), host).policy().is_some()
    };
    let runs = || place.run(&["call", "it"]).code;
    assert!(loads() && runs() == 0);
    for path in ["harness.lock", ".harness/plugins/acme/plugin.md"] {
        let whole = std::fs::read(place.path(path)).unwrap();
        for at in 0..whole.len() * 8 {
            let mut turned = whole.clone();
            turned[at / 8] ^= 1 << (at % 8);
            std::fs::write(place.path(path), &turned).unwrap();
            assert!(!loads(), "bit {at} of {path}");
            if at % 131 == 0 {
                assert_eq!(runs(), 2, "bit {at} of {path}");
            }
        }
        std::fs::write(place.path(path), &whole).unwrap();
        assert!(loads() && runs() == 0);
    }
}
