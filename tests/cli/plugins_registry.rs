//! Plugins in registries, against a server that answers as one: what is fetched, and what a hostile registry gets.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use harness_plugin::archive::pack;
use harness_plugin::content::Content;
use harness_testing::server::{Server, Step, head};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::project::{FINE, Project, Ran};

const PLUGIN: &str = "---\nname: acme\nversion: 1.0.0\ndescription: Says hello.\n---\n";
const TOOL: &str = "---\nscript: |\n  def run(args):\n      return 'hello'\n---\nSays hello.\n";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const PACKED: &str = "application/vnd.harness.plugin.v1.tar";

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn packed() -> Vec<u8> {
    let files = [("plugin.md", PLUGIN), ("tools/theirs.md", TOOL)];
    pack(&Content::new(files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))).unwrap()).unwrap()
}

fn layer(kind: &str, bytes: &[u8]) -> Json {
    json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()})
}

fn manifest(layers: &[Json]) -> Json {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": "application/vnd.harness.plugin.v1",
        "config": layer("application/vnd.oci.empty.v1+json", b"{}"),
        "layers": layers,
    })
}

/// The answers of a registry by path, and of all other paths the status 404.
type Answers = Arc<Mutex<BTreeMap<String, Vec<Step>>>>;

fn answer(bytes: &[u8]) -> Vec<Step> {
    vec![head("200 OK", "application/octet-stream", ""), Step::Send(bytes.to_vec())]
}

/// A registry with the plugin `acme:1`, and a project that may ask it.
struct Place {
    project: Project,
    cache: TempDir,
    server: Server,
    answers: Answers,
    runtime: Runtime,
}

impl Place {
    fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let answers = Answers::default();
        let known = answers.clone();
        let server = runtime.block_on(Server::new(move |request, _| {
            let known = known.lock().unwrap();
            known.get(request.path()).cloned().unwrap_or_else(|| vec![head("404 Not Found", "text/plain", "")])
        }));
        let policy = format!("trusted_sources:\n  - {{ source: \"oci://{}/*\", private: true }}\n", server.address());
        let project = Project::new().tool("it", "", FINE).policy(&policy);
        let place = Self { project, cache: tempfile::tempdir().unwrap(), server, answers, runtime };
        let packed = packed();
        place.blob(&packed);
        place.tag("1", &manifest(&[layer(PACKED, &packed)]));
        place
    }

    fn answer(&self, path: &str, steps: Vec<Step>) {
        self.answers.lock().unwrap().insert(format!("/v2/team/acme/{path}"), steps);
    }

    fn blob(&self, bytes: &[u8]) {
        self.answer(&format!("blobs/{}", digest(bytes)), answer(bytes));
    }

    fn tag(&self, tag: &str, manifest: &Json) -> String {
        let text = manifest.to_string();
        for reference in [tag, &digest(text.as_bytes())] {
            self.answer(&format!("manifests/{reference}"), answer(text.as_bytes()));
        }
        digest(text.as_bytes())
    }

    fn source(&self, rest: &str) -> String {
        format!("oci://{}/team/acme{rest}", self.server.address())
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = self.project.command(arguments);
        command.env("XDG_CACHE_HOME", self.cache.path()).stdin(Stdio::null());
        let ran = self.project.ran(&command.output().unwrap());
        let hide = |text: String| text.replace(&self.server.address().to_string(), "[registry]");
        Ran { code: ran.code, out: hide(ran.out), err: hide(ran.err) }
    }

    fn add(&self, rest: &str) -> Ran {
        self.run(&["plugin", "add", &self.source(rest), "--grant", "none"])
    }

    fn lock(&self) -> String {
        std::fs::read_to_string(self.project.path("harness.lock")).unwrap_or_default()
    }

    /// That the tag `bad` is refused for this reason, and nothing is left of it, while the tag `1` is added.
    fn refuses(&self, why: &str) {
        let ran = self.add(":bad");
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{why}: {ran}");
        assert!(ran.err.starts_with(&format!("error: cannot fetch `oci://[registry]/team/acme:bad`: {why}")), "{ran}");
        assert_eq!(self.lock(), "", "{why}");
        let ran = self.add(":1");
        assert_eq!(ran.code, 0, "{why}: {ran}");
        assert_eq!(self.run(&["plugin", "remove", "acme"]).code, 0);
    }

    fn paths(&self) -> Vec<String> {
        self.server.received().iter().map(|request| request.path().to_owned()).collect()
    }
}

#[test]
fn a_plugin_of_a_registry_is_pinned_by_the_digest_of_its_manifest() {
    let place = Place::new();
    let text = manifest(&[layer(PACKED, &packed())]).to_string();
    let resolved = digest(text.as_bytes());
    let ran = place.add(":1");
    assert_eq!(ran.code, 0, "{ran}");
    assert!(place.lock().contains(&format!("resolved = \"{resolved}\"\n")), "{}", place.lock());
    place.run(&["call", "theirs"]).gives("hello");
    let fetched = place.paths();
    assert_eq!(fetched, ["/v2/team/acme/manifests/1".to_owned(), format!("/v2/team/acme/blobs/{}", digest(&packed()))]);

    // The tag moves: another machine gets what the lock has.
    place.tag("1", &manifest(&[]));
    std::fs::remove_dir_all(place.cache.path().join("harness")).unwrap();
    let synced = place.run(&["plugin", "sync"]);
    assert_eq!((synced.code, synced.out.as_str()), (0, "acme 1.0.0: fetched\n"), "{synced}");
    assert!(place.paths().contains(&format!("/v2/team/acme/manifests/{resolved}")));

    assert_eq!(place.run(&["plugin", "remove", "acme"]).code, 0);
    let by_digest = place.add(&format!("@{resolved}"));
    assert_eq!(by_digest.code, 0, "{by_digest}");
}

#[test]
fn what_is_not_what_its_digest_says_is_refused() {
    let place = Place::new();
    let good = packed();
    // One bit of the packed plugin.
    let mut turned = good.clone();
    turned[700] ^= 1;
    place.answer(&format!("blobs/{}", digest(b"x")), answer(b"y"));
    place.tag("bad", &manifest(&[json!({"mediaType": PACKED, "digest": digest(b"x"), "size": 1})]));
    place.refuses(&format!("a part of it is {}, and its manifest has {}", digest(b"y"), digest(b"x")));
    // Shorter and longer than the manifest says.
    place.tag("bad", &manifest(&[json!({"mediaType": PACKED, "digest": digest(&good), "size": good.len() + 1})]));
    place.refuses(&format!("a part of it is {0}, and its manifest has {0}", digest(&good)));
    place.tag("bad", &manifest(&[json!({"mediaType": PACKED, "digest": digest(&good), "size": good.len() - 1})]));
    place.refuses(&format!("an answer has more than {} bytes", good.len() - 1));
    // A manifest that is another one than was asked for.
    let asked = digest(b"asked");
    place.answer(&format!("manifests/{asked}"), answer(manifest(&[layer(PACKED, &good)]).to_string().as_bytes()));
    let ran = place.add(&format!("@{asked}"));
    assert!(ran.code == 2 && ran.err.contains(&format!(", and {asked} is wanted\n")), "{ran}");
    let lies = format!("docker-content-digest: {asked}\r\n");
    let text = manifest(&[layer(PACKED, &good)]).to_string();
    place.answer("manifests/bad", vec![head("200 OK", MANIFEST, &lies), Step::Send(text.into_bytes())]);
    place.refuses(&format!("the registry says that the manifest is {asked}, and it is sha256:"));
    // What was turned is another plugin, or none, and never this one.
    place.blob(&turned);
    place.tag("bad", &manifest(&[layer(PACKED, &turned)]));
    place.refuses("it is not a plugin as `harness plugin pack` writes it: ");
}

#[test]
fn what_is_no_plugin_is_refused() {
    let place = Place::new();
    let good = layer(PACKED, &packed());
    let of = |why: &str| format!("it is not the artifact of a plugin: {why}");
    let list = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [good]});
    place.tag("bad", &list);
    place.refuses(&of("its manifest has no layers; a list of manifests is for programs of several machines"));
    let mut image = manifest(std::slice::from_ref(&good));
    image.as_object_mut().unwrap().remove("artifactType");
    place.tag("bad", &image);
    place.refuses(&of("it has no `artifactType`"));
    place.tag("bad", &manifest(&[good.clone(), layer("application/gzip", b"x")]));
    place.refuses(&of("it has a layer of the type `application/gzip`"));
    place.tag("bad", &manifest(&[json!({"mediaType": PACKED, "digest": "sha256:../../x", "size": 1})]));
    place.refuses(&of("`sha256:../../x` is not a digest of SHA-256"));
    place.answer("manifests/bad", answer(b"\x1b[31m"));
    place.refuses(&of("expected value at line 1 column 1"));
    place.answer("manifests/bad", answer(&vec![b' '; 100_000]));
    place.refuses("an answer has more than 65536 bytes");
    place.tag("bad", &manifest(&[json!({"mediaType": PACKED, "digest": digest(b"x"), "size": 1_u64 << 40})]));
    place.refuses("a part of it has more than ");
    for bytes in [&b"x"[..], b""] {
        place.blob(bytes);
        place.tag("bad", &manifest(&[layer(PACKED, bytes)]));
        place.refuses("it is not a plugin as `harness plugin pack` writes it: ");
    }
    place.answers.lock().unwrap().remove("/v2/team/acme/manifests/bad");
    place.refuses("the registry answers 404 to the manifest");
    let error = json!({"errors": [{"code": "DENIED", "message": "no\u{1b}[2J\u{202e}"}]}).to_string();
    place.answer("manifests/bad", vec![head("403 Forbidden", "application/json", ""), Step::Send(error.into_bytes())]);
    place.refuses("the registry answers 403 to the manifest: no\\u{1b}[2J\\u{202e}");
}

#[test]
fn a_redirect_is_decided_on_like_a_request() {
    let place = Place::new();
    let other = place.runtime.block_on(Server::new(|_, _| answer(&packed())));
    let to = |url: String| vec![head("307 Temporary Redirect", "text/plain", &format!("location: {url}\r\n"))];
    let good = packed();
    let blob = format!("blobs/{}", digest(&good));
    place.tag("bad", &manifest(&[layer(PACKED, &good)]));
    let refused = |url: String, why: &str| {
        place.answer(&blob, to(url));
        let ran = place.add(":bad");
        assert!(ran.code == 2 && ran.err.contains(why), "{ran}");
    };
    // No other host but public ones, and those by https alone.
    refused(other.url(), "is not allowed");
    refused(format!("https://{}/x", other.address()), "is not");
    refused("https://10.0.0.1/x".to_owned(), "is not");
    refused("https://169.254.169.254/latest/meta-data".to_owned(), "is not");
    refused("file:///etc/passwd".to_owned(), "");
    assert_eq!(other.received().len(), 0);
    // A manifest is at its registry, whatever that says.
    place.answer("manifests/bad", to(format!("{}/v2/x", other.url())));
    let ran = place.add(":bad");
    assert!(ran.code == 2 && ran.err.contains("which is another origin"), "{ran}");
    assert_eq!(other.received().len(), 0);
    // The control: to the same registry.
    place.answer(&blob, to("/elsewhere".to_owned()));
    place.answers.lock().unwrap().insert("/elsewhere".to_owned(), answer(&good));
    assert_eq!(place.add(":1").code, 0);
}

#[test]
fn a_registry_that_is_not_public_has_to_be_named() {
    let place = Place::new();
    let address = place.server.address();
    let requests = || place.server.received().len();
    for policy in [
        String::new(),
        format!("trusted_sources:\n  - {{ source: \"oci://{address}/*\" }}\n"),
        format!(
            "trusted_sources:\n  - {{ source: \"oci://{address}/other/*\", private: true }}\n  - {{ source: \"*\" }}\n"
        ),
    ] {
        place.project.write(".harness/harness.md", &format!("---\n{policy}---\n"));
        let ran = place.add(":1");
        assert!(ran.code == 2 && ran.err.contains("not"), "{policy}: {ran}");
        assert_eq!((requests(), place.lock()), (0, String::new()), "{policy}");
    }
}

#[test]
fn a_token_is_for_one_repository_and_a_password_for_its_hosts() {
    let place = Place::new();
    let token = place.runtime.block_on(Server::new(|_, _| {
        vec![head("200 OK", "application/json", ""), Step::Send(b"{\"token\":\"for-anybody\"}".to_vec())]
    }));
    let wants = |realm: &str| {
        let challenge = format!("www-authenticate: Bearer realm=\"{realm}\",service=\"here\"\r\n");
        place.answer("manifests/1", vec![head("401 Unauthorized", "text/plain", &challenge)]);
    };
    // Another host is asked by https alone, and not at an address that is not public.
    wants(&format!("{}/token", token.url()));
    let ran = place.add(":1");
    assert!(ran.code == 2 && ran.err.contains("for a token, which is no address"), "{ran}");
    wants("https://10.0.0.1/token");
    assert_eq!(place.add(":1").code, 2);
    assert_eq!(token.received().len(), 0);
    // The registry's own.
    let own = format!("http://{}/token", place.server.address());
    wants(&own);
    let path = "/token?service=here&scope=repository%3Ateam%2Facme%3Apull";
    place.answers.lock().unwrap().insert(path.to_owned(), answer(b"{\"token\":\"for-anybody\"}"));
    let ran = place.add(":1");
    assert!(ran.code == 2 && ran.err.contains("the registry wants a login"), "{ran}");
    let received = place.server.received();
    let [.., first, asked, second] = &received[..] else { panic!("{received:?}") };
    assert_eq!((first.header("authorization"), asked.path()), (None, path));
    assert_eq!((asked.header("authorization"), second.header("authorization")), (None, Some("Bearer for-anybody")));
    for text in ["{}", "{\"token\":\"a b\"}", "{\"token\":\"\"}", "x"] {
        place.answers.lock().unwrap().insert(path.to_owned(), answer(text.as_bytes()));
        let ran = place.add(":1");
        assert!(ran.code == 2 && ran.err.contains("the registry gives no token"), "{text}: {ran}");
    }
}
