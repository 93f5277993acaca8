//! A lock that is as it was written, with signatures that are not those of the content: who can write the lock can do that.

use harness_plugin::content::Content;
use harness_plugin::source::Source;
use harness_policy::signer::Signer;
use harness_sys::digest::digest;
use semver::Version;

use super::{FILE, Lock, LockedPlugin, LockedSignature};
use crate::{Machine, Registry};

const PLUGIN: &str = "---\nname: acme\nversion: 1.2.0\ndescription: Searches the archive.\n---\n";
const MINISIGN: &str = "RWQyUHrYd0ab27mjqZ75GRgdSpqXHVuKKq/eWWvtG2VlNaj3bNCz0hLz";
const SSH: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPwYkwYU1pOyCD0FMBSQ8AAe741BsH2dfDBN0B9fHbJm";
const STRANGER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILqIUWVyXL4Qnw8iSZsHuOvdfbrG0L+0A7a1Gtp4SEFy";

macro_rules! made {
    ($name:literal) => {
        include_str!(concat!("../../../plugin/src/signature/fixtures/", $name))
    };
}

/// The lock of a plugin that lies in the project, with signatures.
fn lock(signed: &[(&str, &str)]) -> Lock {
    let content = Content::new([("plugin.md".to_owned(), PLUGIN.as_bytes().to_vec())]).unwrap();
    let signed = signed.iter().map(|(signer, signature)| LockedSignature {
        signer: Signer::parse(signer).unwrap(),
        signature: (*signature).to_owned(),
    });
    Lock::of_plugins().with_plugin(LockedPlugin {
        name: "acme".to_owned(),
        version: Version::new(1, 2, 0),
        source: Source::parse("./acme").unwrap(),
        resolved: None,
        catalogue: None,
        parts: None,
        servers: Vec::new(),
        digest: content.digest(),
        asked: digest(""),
        granted: digest(""),
        vendored: true,
        staged: None,
        signed: signed.collect(),
        position: LockedPlugin::unwritten(),
    })
}

/// Why a project with this lock does not load.
fn told(lock: &Lock) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join(".harness/plugins/acme");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join("plugin.md"), PLUGIN).unwrap();
    std::fs::write(folder.path().join(FILE), lock.text().unwrap()).unwrap();
    let registry = Registry::load_within(folder.path(), &Machine::None);
    let wrong = registry.diagnostics().iter().find(|one| one.message.starts_with("the plugin `acme` differs"));
    assert_eq!(wrong.is_none(), registry.policy().is_some());
    wrong.map(|one| one.message.replace("the plugin `acme` differs from `harness.lock`: ", ""))
}

#[test]
fn each_load_verifies_signatures() {
    // The controls.
    assert_eq!(told(&lock(&[])), None);
    let kept = made!("acme.minisig").replacen("signature from minisign secret key", "signature", 1);
    let both = lock(&[(MINISIGN, &kept), (SSH, made!("acme.sig"))]);
    assert_eq!(told(&both), None);
    assert_eq!(Lock::parse(&both.text().unwrap()).map(|lock| lock.plugin("acme").unwrap().signers().len()), Ok(2));
    for (signer, signature, why) in [
        (SSH, made!("other_file.sig"), "its SSH signature does not verify"),
        (SSH, made!("stranger.sig"), "its signature is by another key"),
        (STRANGER, made!("acme.sig"), "its signature is by another key"),
        (SSH, "", "its SSH signature cannot be read: "),
        (MINISIGN, made!("other_file.minisig"), "does not verify with the key that has its id"),
        (MINISIGN, made!("stranger.minisig"), "which is unknown"),
    ] {
        let why_not = told(&lock(&[(signer, signature)])).unwrap();
        assert!(why_not.contains(why), "{why_not}");
        // Beside one that verifies, too.
        assert!(told(&lock(&[(SSH, made!("acme.sig")), (signer, signature)])).is_some());
    }
    let four = [(SSH, made!("acme.sig")); 4];
    let wrong = Lock::parse(&lock(&four).text().unwrap()).unwrap_err().message;
    assert!(wrong.ends_with("it has too many signatures"), "{wrong}");
    let long = "x".repeat(harness_plugin::signature::MAX_BYTES + 1);
    let wrong = Lock::parse(&lock(&[(SSH, &long)]).text().unwrap()).unwrap_err().message;
    assert!(wrong.ends_with("its signature is not as it was written"), "{wrong}");
}
