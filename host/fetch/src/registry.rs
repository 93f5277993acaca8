//! A plugin in a registry of the Open Container Initiative: one artifact with the packed plugin, and its signatures beside
//! it. The requests are the host's own, each decided on, each redirect anew; what comes is held to its digest before anything
//! reads it.
//!
//! The forms are those of the [distribution](https://github.com/opencontainers/distribution-spec) and the
//! [image](https://github.com/opencontainers/image-spec) specification, versions 1.1.

mod login;
mod manifest;
mod publish;

use std::time::Duration;

use harness_artifact::third_party;
use harness_capability::http::{self, own};
use harness_capability::secrets::Vault;
use harness_plugin::archive::MAX_PACKED;
use harness_plugin::source::{RegistrySource, Version};
use harness_policy::grant::Grant;
use harness_policy::layer::{Layer, Origin, Scope};
use harness_policy::network::{HostRule, Method, NetworkRules, Scheme};
use harness_sys as sys;
use harness_sys::digest::digest_of;
use harness_sys::tree;
use url::{Host, Url};

use crate::{Failure, FetchContext, Found, PLUGIN, Packed, STEP, decide, fresh, late, unpacked};
use login::Login;
use manifest::Manifest;

pub use publish::{Publication, Published, publish};

/// In the new folder: what was fetched, before it is unpacked.
const FETCHED: &str = "fetched";
const FILE: &str = "plugin.tar";

/// Bytes of a manifest, and of any answer that is no part of a plugin.
const MAX_ANSWER: usize = 64 << 10;
/// Bytes of a signature.
const MAX_SIGNATURE: usize = 16 << 10;

pub(crate) async fn fetch(
    source: &RegistrySource,
    resolved: Option<&str>,
    place: FetchContext<'_>,
) -> Result<Found, Failure> {
    tokio::time::timeout(STEP, Box::pin(fetched(source, resolved, place))).await.map_err(|_| late())?
}

async fn fetched(source: &RegistrySource, resolved: Option<&str>, place: FetchContext<'_>) -> Result<Found, Failure> {
    let mut registry = Registry::new(source, "pull", place)?;
    let reference = match (resolved, source.version()) {
        (Some(digest), _) => digest,
        (None, Version::Digest(version) | Version::Tag(version)) => version.as_str(),
    };
    let (text, digest) = registry.manifest(reference).await?;
    if let Version::Digest(wanted) = source.version() {
        is_wanted(&digest, wanted)?;
    }
    resolved.map_or(Ok(()), |wanted| is_wanted(&digest, wanted))?;
    let manifest = Manifest::read(&text)?;
    let packed = registry.blob(&manifest.plugin, MAX_PACKED).await?;
    let mut signatures = Vec::new();
    for (name, signature) in &manifest.signatures {
        let text = registry.blob(signature, MAX_SIGNATURE).await?;
        let text = String::from_utf8(text).map_err(|_| Failure::new(format!("its `{name}` is not text")))?;
        signatures.push((name, text));
    }
    let (fresh, folder) = fresh(place)?;
    tree::write(&folder.join(FETCHED), [(FILE, packed.as_slice())].into_iter())?;
    unpacked(&folder, (Packed::ByHarness, &format!("{FETCHED}/{FILE}")), place).await?;
    for (name, text) in signatures {
        sys::write_whole(&folder.join(PLUGIN).join(name), &text)?;
    }
    Ok(Found { folder: folder.join(PLUGIN), resolved: digest, _fresh: fresh })
}

fn is_wanted(digest: &str, wanted: &str) -> Result<(), Failure> {
    match digest == wanted {
        true => Ok(()),
        false => Err(Failure::new(format!("its manifest is {digest}, and {wanted} is wanted"))),
    }
}

/// A repository of a registry, asked for one plugin.
struct Registry<'a> {
    place: FetchContext<'a>,
    grant: Grant,
    /// The address of the registry, with a slash at its end.
    base: Url,
    name: &'a str,
    login: Login<'a>,
}

impl<'a> Registry<'a> {
    fn new(source: &'a RegistrySource, actions: &'static str, place: FetchContext<'a>) -> Result<Self, Failure> {
        let https = source.url("https").map_err(Failure::new)?;
        // On this machine nobody else listens in, and registries for trying things out have no certificate.
        let is_here = match https.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        let scheme = if is_here && place.is_private { Scheme::Http } else { Scheme::Https };
        let base = source.url(scheme.name()).map_err(Failure::new)?;
        let grant = grant(&base, scheme, place)?;
        Ok(Self { place, grant, base, name: source.name(), login: Login::new(source.name(), actions) })
    }

    fn url(&self, rest: &str) -> Result<Url, Failure> {
        self.base.join(&format!("v2/{}/{rest}", self.name)).map_err(|error| Failure::new(error.to_string()))
    }

    /// A manifest as it is, and its digest.
    async fn manifest(&mut self, reference: &str) -> Result<(Vec<u8>, String), Failure> {
        let url = self.url(&format!("manifests/{reference}"))?;
        let mut answer = self.ask(Asked::get(url, Some(manifest::MANIFEST))).await?;
        expect(&mut answer, 200, "the manifest").await?;
        let text = answer.whole(MAX_ANSWER).await.map_err(|error| failure(&error))?;
        let digest = digest_of(&text);
        if let Some(said) = answer.header("docker-content-digest").filter(|said| **said != *digest) {
            let said = third_party::line(said);
            return Err(Failure::new(format!("the registry says that the manifest is {said}, and it is {digest}")));
        }
        Ok((text, digest))
    }

    /// What a manifest names, held to its size and its digest.
    async fn blob(&mut self, blob: &manifest::Descriptor, most: usize) -> Result<Vec<u8>, Failure> {
        let size = usize::try_from(blob.size).ok().filter(|size| *size <= most);
        let size = size.ok_or_else(|| Failure::new(format!("a part of it has more than {most} bytes")))?;
        let url = self.url(&format!("blobs/{}", blob.digest))?;
        let mut answer = self.ask(Asked { anywhere: true, ..Asked::get(url, None) }).await?;
        expect(&mut answer, 200, "a part of the plugin").await?;
        let bytes = answer.whole(size).await.map_err(|error| failure(&error))?;
        let digest = digest_of(&bytes);
        if bytes.len() != size || digest != blob.digest {
            return Err(Failure::new(format!("a part of it is {digest}, and its manifest has {}", blob.digest)));
        }
        Ok(bytes)
    }

    /// Asks the registry, and logs in where it wants that.
    async fn ask(&mut self, asked: Asked) -> Result<own::Answer, Failure> {
        let answer = self.send(&asked).await?;
        if answer.status() != 401 {
            return Ok(answer);
        }
        let challenges: Vec<String> = answer.header_values("www-authenticate").map(str::to_owned).collect();
        drop(answer);
        if self.login.renew(&challenges, &self.base, (&self.grant, self.place)).await? {
            let answer = self.send(&asked).await?;
            if answer.status() != 401 {
                return Ok(answer);
            }
        }
        Err(Failure {
            why: "the registry wants a login".to_owned(),
            hint: Some(
                "name a secret with `USER:PASSWORD` as the `credentials` of the source in `trusted_sources`".to_owned(),
            ),
        })
    }

    async fn send(&self, asked: &Asked) -> Result<own::Answer, Failure> {
        let accept = asked.accept.map(|accept| ("accept".to_owned(), accept.to_owned()));
        let request = own::OwnRequest {
            method: asked.method,
            url: &asked.url,
            headers: accept.into_iter().chain(asked.headers.iter().cloned()).collect(),
            sealed: self.login.headers(),
            body: asked.body.clone(),
            anywhere: asked.anywhere,
        };
        let vault = Vault::default();
        self.place.http.open(&self.grant, &vault, request).await.map_err(|error| failure(&error))
    }
}

/// A request to the registry.
struct Asked {
    method: Method,
    url: Url,
    accept: Option<&'static str>,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
    /// Whether the answer may be elsewhere: what is held to its digest.
    anywhere: bool,
}

impl Asked {
    fn get(url: Url, accept: Option<&'static str>) -> Self {
        Self { method: Method::Get, url, accept, headers: Vec::new(), body: None, anywhere: false }
    }
}

/// What a fetch may ask: the registry, and of all public hosts what it leads to.
fn grant(base: &Url, scheme: Scheme, place: FetchContext<'_>) -> Result<Grant, Failure> {
    let host = base.host_str().unwrap_or_default();
    let port = base.port_or_known_default().unwrap_or_default();
    let own = HostRule::parse(&format!("{host}:{port}")).map_err(Failure::new)?;
    decide(&own, base, place)?;
    let own = own.private(place.is_private).map_err(Failure::new)?.only(None, Some(scheme));
    let public = HostRule::parse("*").map_err(Failure::new)?.only(Some(vec![Method::Get]), Some(Scheme::Https));
    let machine = place
        .machine
        .iter()
        .filter(|layer| layer.origin.scope == Scope::Machine)
        .map(|layer| Layer { network: layer.network.clone(), ..Layer::silent(layer.origin.clone()) });
    let layer = Layer {
        network: Some(NetworkRules { allow: vec![own, public] }),
        ..Layer::silent(Origin::new("harness plugin", Scope::Default))
    };
    Ok(Grant::new(machine.chain([layer]).collect()))
}

/// Refuses another status, with what the registry says of it.
async fn expect(answer: &mut own::Answer, status: u16, what: &str) -> Result<(), Failure> {
    if answer.status() == status {
        return Ok(());
    }
    let answered = answer.status();
    let said = tokio::time::timeout(Duration::from_secs(5), answer.whole(MAX_ANSWER)).await;
    let said = said.ok().and_then(Result::ok).map(|said| manifest::error(&said)).unwrap_or_default();
    let said = if said.is_empty() { String::new() } else { format!(": {}", third_party::line(&said)) };
    Err(Failure::new(format!("the registry answers {answered} to {what}{said}")))
}

fn failure(error: &http::Error) -> Failure {
    match error {
        http::Error::AccessDenied(denial) => Failure {
            why: denial.reason.clone(),
            // Where the host policy refuses it, a line there would lift that; the rest is the fetch's own.
            hint: Some(denial.hint.clone()).filter(|hint| !hint.is_empty() && !hint.contains("harness plugin")),
        },
        http::Error::InvalidUrl(why) | http::Error::InvalidRequest(why) | http::Error::Connection(why) => {
            Failure::new(third_party::line(why))
        }
        http::Error::TooLarge(most) => Failure::new(format!("an answer has more than {most} bytes")),
        http::Error::Timeout(millis) => Failure::new(format!("no answer within {millis} ms")),
        http::Error::TooManyRedirects => Failure::new("the registry redirects in a circle"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use harness_capability::env::Variables;
    use harness_capability::http::Client;
    use harness_plugin::source::Source;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A registry that sends `bytes` of an answer, one a second of a clock that moves when nobody has anything else to do.
    async fn dripping(bytes: usize) -> (String, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = sent.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let counted = counted.clone();
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    let _ = stream.read(&mut request).await;
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n");
                    if stream.write_all(head.as_bytes()).await.is_err() {
                        return;
                    }
                    for _ in 0..bytes {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        if stream.write_all(b" ").await.is_err() {
                            return;
                        }
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    // The deadline covers the last byte too.
                    tokio::time::sleep(Duration::from_secs(1)).await;
                });
            }
        });
        (format!("oci://{address}/acme:1"), sent)
    }

    /// What a fetch from there says, and how many bytes were sent.
    async fn fetched_from(bytes: usize) -> (String, usize) {
        let (source, sent) = dripping(bytes).await;
        let Ok(Source::Registry(source)) = Source::parse(&source) else { panic!("{source}") };
        let place = FetchContext {
            machine: &[],
            cache: std::path::Path::new("/nowhere"),
            program: std::path::Path::new("/nowhere"),
            variables: &Variables::Host,
            http: &Client::default(),
            credentials: None,
            is_private: true,
        };
        let failure = fetch(&source, None, place).await.unwrap_err();
        (failure.why, sent.load(Ordering::Relaxed))
    }

    /// An answer that comes a byte a second ends with the time of the fetch, however long it would go on.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_drips_ends_with_the_time_of_the_fetch() {
        let (why, sent) = fetched_from(60_000).await;
        assert_eq!(why, "it took more than 120 seconds");
        assert!((100..=121).contains(&sent), "{sent}");
        // The control: one that is over before that is read to its end.
        let (why, sent) = fetched_from(60).await;
        assert!(why.starts_with("it is not the artifact of a plugin: "), "{why}");
        assert_eq!(sent, 60);
    }
}
