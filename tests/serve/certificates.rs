//! Clients that show certificates: which are let in, and keys that are bound to one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::process::Signal;
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::project::{FINE, Project};
use crate::site::{Site, archive, problem};
use crate::web::{Reply, exchange, request};

/// Makes authorities and certificates with openssl, in a folder of their own.
struct Authority(TempDir);

impl Authority {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let own = "[ca]\ndefault_ca = it\n[it]\nnew_certs_dir = .\ndatabase = index\nserial = serial\nrand_serial = yes\ndefault_md = sha256\n\
                   policy = any\nx509_extensions = client\nunique_subject = no\n[any]\ncommonName = supplied\n[client]\n\
                   basicConstraints = CA:FALSE\nextendedKeyUsage = clientAuth\n[server]\nbasicConstraints = CA:FALSE\nextendedKeyUsage = serverAuth\n";
        std::fs::write(folder.path().join("ca.conf"), own).unwrap();
        std::fs::write(folder.path().join("index"), "").unwrap();
        let made = Self(folder);
        for name in ["ours", "others"] {
            made.openssl(&format!("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"));
        }
        made
    }

    /// A certificate of an authority, valid between these moments, for this use.
    fn sign(&self, name: &str, by: &str, (from, to): (&str, &str), usage: &str) {
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
        ));
        self.openssl(&format!(
            "ca -batch -notext -config ca.conf -extensions {usage} -cert {by}.pem -keyfile {by}.key -startdate {from} -enddate {to} -in {name}.csr -out {name}.pem"
        ));
    }

    fn openssl(&self, line: &str) -> String {
        let ran = Command::new("openssl").args(line.split(' ')).current_dir(self.0.path()).output().unwrap();
        assert!(ran.status.success(), "openssl {line}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    }

    fn fingerprint(&self, name: &str) -> String {
        let printed = self.openssl(&format!("x509 -in {name}.pem -noout -fingerprint -sha256"));
        printed.trim_end().split_once('=').unwrap().1.to_owned()
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }
}

const NOW: (&str, &str) = ("20200101000000Z", "20990101000000Z");

/// All that the tests need.
fn authority() -> Authority {
    let made = Authority::new();
    made.sign("robot", "ours", NOW, "client");
    made.sign("other-robot", "ours", NOW, "client");
    made.sign("stranger", "others", NOW, "client");
    made.sign("expired", "ours", ("20200101000000Z", "20210101000000Z"), "client");
    made.sign("early", "ours", ("20980101000000Z", "20990101000000Z"), "client");
    made.sign("server-only", "ours", NOW, "server");
    made
}

fn identity(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tls").join(file)
}

fn site(made: &Authority, more: &[&str]) -> Site {
    let folder = Arc::new(TempDir::new().unwrap());
    std::fs::write(folder.path().join("serve.yaml"), "").unwrap();
    start(made, folder, more)
}

fn start(made: &Authority, folder: Arc<TempDir>, more: &[&str]) -> Site {
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    let (certificate, key, ca) =
        (text(identity("certificate.pem")), text(identity("key.pem")), text(made.path("ours.pem")));
    let tls = ["--tls-cert", &certificate, "--tls-key", &key, "--tls-client-ca", &ca];
    Site::start(folder, &[tls.as_slice(), more].concat())
}

/// Sends a request over TLS with this certificate. Nothing where the connection ends instead.
fn sent(site: &Site, made: &Authority, certificate: Option<&str>, bytes: &[u8]) -> Option<Reply> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(identity("certificate.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots);
    let config = match certificate {
        None => config.with_no_client_auth(),
        Some(name) => {
            let chain = vec![CertificateDer::from_pem_file(made.path(&format!("{name}.pem"))).unwrap()];
            let key = PrivateKeyDer::from_pem_file(made.path(&format!("{name}.key"))).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let connection = ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, site.connect());
    // Of a refusal the client hears when it reads.
    let mut answer = Vec::new();
    let _ = std::io::Write::write_all(&mut stream, bytes);
    let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
    if answer.is_empty() { None } else { Some(exchange(&mut Answered(answer), &[])) }
}

/// What was answered already.
struct Answered(Vec<u8>);

impl std::io::Read for Answered {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let count = to.len().min(self.0.len());
        to[..count].copy_from_slice(&self.0[..count]);
        self.0.drain(..count);
        Ok(count)
    }
}

impl std::io::Write for Answered {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn ask(site: &Site, made: &Authority, certificate: Option<&str>, key: &str, line: &str, body: &Json) -> Option<Reply> {
    let bearer = format!("Bearer {key}");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    sent(site, made, certificate, &request(line, &[("Authorization", &bearer)], &body))
}

/// A tenant with a project, made without a connection of its own; and its key.
fn tenant(site: &Site, id: &str) -> String {
    let project = site.folder().join(format!("{id}.project"));
    let packed = archive(&Project::with_script(FINE));
    std::fs::create_dir(&project).unwrap();
    tar::Archive::new(&*packed).unpack(&project).unwrap();
    let (code, _, err) =
        site.harness(&["admin", "tenant", "add", id, "--data", "data", "--from", project.to_str().unwrap()], "");
    assert_eq!(code, 0, "{err}");
    key(site, id, &["--role", "owner"])
}

fn key(site: &Site, id: &str, more: &[&str]) -> String {
    let start = ["admin", "key", "add", id, "--data", "data", "--label", "test"];
    let (code, out, err) = site.harness(&[start.as_slice(), more].concat(), "");
    assert_eq!(code, 0, "{err}");
    serde_json::from_str::<Json>(&out).unwrap()["key"].as_str().unwrap().to_owned()
}

const CALL: &str = "POST /v1/tools/it/calls";

#[test]
fn clients_show_a_certificate_of_the_authority_that_is_valid_now() {
    let made = authority();
    let (required, optional) = (site(&made, &[]), site(&made, &["--tls-clients", "optional"]));
    for (site, is_optional) in [(&required, false), (&optional, true)] {
        let owner = tenant(site, "acme");
        let status = |certificate| ask(site, &made, certificate, &owner, CALL, &json!({})).map(|reply| reply.status);
        assert_eq!((status(Some("robot")), status(Some("other-robot"))), (Some(200), Some(200)));
        assert_eq!(status(None), is_optional.then_some(200));
        for wrong in ["stranger", "expired", "early", "server-only"] {
            assert_eq!(status(Some(wrong)), None, "{wrong}, optional: {is_optional}");
        }
        // A certificate alone is no key, and nobody is let in without TLS.
        let none = ask(site, &made, Some("robot"), "none", CALL, &json!({})).unwrap();
        assert_eq!(problem(&none), (401, "unauthorized".to_owned()));
        let mut plain = site.connect();
        std::io::Write::write_all(&mut plain, &request("GET /healthz", &[], "")).unwrap();
        let mut answer = Vec::new();
        let _ = std::io::Read::read_to_end(&mut plain, &mut answer);
        assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");
    }
}

/// The same certificates at a server that asks for none: the difference is the server's.
#[test]
fn a_server_without_an_authority_asks_for_no_certificate() {
    let made = authority();
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    let (certificate, key) = (text(identity("certificate.pem")), text(identity("key.pem")));
    let folder = Arc::new(TempDir::new().unwrap());
    std::fs::write(folder.path().join("serve.yaml"), "").unwrap();
    let site = Site::start(folder, &["--tls-cert", &certificate, "--tls-key", &key]);
    let owner = tenant(&site, "acme");
    for certificate in [None, Some("robot"), Some("stranger"), Some("expired")] {
        let reply = ask(&site, &made, certificate, &owner, CALL, &json!({})).unwrap();
        assert_eq!(reply.status, 200, "{certificate:?}");
    }
    // Where no certificate is shown, a bound key counts for nothing.
    let bound = self::key(&site, "acme", &["--role", "owner", "--certificate", &made.fingerprint("robot")]);
    let refused = ask(&site, &made, Some("robot"), &bound, CALL, &json!({})).unwrap();
    assert_eq!(problem(&refused), (401, "unauthorized".to_owned()));
}

#[test]
fn a_bound_key_counts_with_its_certificate_alone() {
    let made = authority();
    let site = site(&made, &["--tls-clients", "optional"]);
    let owner = tenant(&site, "acme");
    let fingerprint = made.fingerprint("robot");
    let bound = key(&site, "acme", &["--role", "owner", "--certificate", &fingerprint]);
    let plain = fingerprint.replace(':', "").to_lowercase();
    // By the interface too, in another spelling.
    let body = json!({"role": "caller", "label": "second", "certificate": plain});
    let second = ask(&site, &made, None, &owner, "POST /v1/keys", &body).unwrap();
    assert_eq!(second.status, 201, "{second:?}");
    let second = second.json()["key"].as_str().unwrap().to_owned();
    for key in [&bound, &second] {
        for (certificate, status) in [(Some("robot"), 200), (Some("other-robot"), 401), (None, 401)] {
            let reply = ask(&site, &made, certificate, key, CALL, &json!({})).unwrap();
            assert_eq!(reply.status, status, "{certificate:?} {reply:?}");
            let unbound = ask(&site, &made, certificate, &owner, CALL, &json!({})).unwrap();
            assert_eq!(unbound.status, 200, "{certificate:?}");
        }
    }
    // A key that a bound one makes is bound too, to another certificate where it names that.
    let body = json!({"role": "caller", "label": "made"});
    let made_by = |key: &str, body: &Json| {
        let reply = ask(&site, &made, Some("robot"), key, "POST /v1/keys", body).unwrap();
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()
    };
    let named = json!({"role": "caller", "label": "made", "certificate": made.fingerprint("other-robot")});
    let new = [made_by(&bound, &body), made_by(&bound, &named), made_by(&owner, &body)];
    let statuses = new.each_ref().map(|new| {
        let status = |certificate| {
            ask(&site, &made, certificate, new["key"].as_str().unwrap(), CALL, &json!({})).unwrap().status
        };
        let statuses = (status(Some("robot")), status(Some("other-robot")), status(None));
        let removal = format!("DELETE /v1/keys/{}", new["id"].as_str().unwrap());
        assert_eq!(ask(&site, &made, None, &owner, &removal, &Json::Null).unwrap().status, 200);
        statuses
    });
    assert_eq!(statuses, [(200, 401, 401), (401, 200, 401), (200, 200, 200)]);
    // What is kept is what was meant, and a wrong one is not.
    let listed = ask(&site, &made, None, &owner, "GET /v1/keys", &Json::Null).unwrap().json();
    let certificates: Vec<&Json> = listed["keys"].as_array().unwrap().iter().map(|key| &key["certificate"]).collect();
    assert_eq!(certificates, [&Json::Null, &json!(plain), &json!(plain)]);
    for wrong in ["", "ab", &plain[1..], &format!("{plain}0"), &plain.replacen('0', "g", 1).replacen('1', "g", 1)] {
        let body = json!({"role": "caller", "label": "wrong", "certificate": wrong});
        let refused = ask(&site, &made, None, &owner, "POST /v1/keys", &body).unwrap();
        assert_eq!(problem(&refused), (400, "invalid".to_owned()), "{wrong}");
    }
    let own = site.admin("POST /admin/v1/keys", &json!({"role": "operator", "label": "own", "certificate": plain}));
    assert_eq!(problem(&own), (400, "invalid".to_owned()));
    // The operator sees why it was refused, and a start later it is bound still.
    let (_, log, _) = site.harness(&["admin", "audit", "--data", "data"], "");
    let of_key = |line: &&str| line.contains("\"refused\"") && line.contains("\"why\":\"certificate\"");
    assert_eq!(log.lines().filter(of_key).count(), 8, "{log}");
    let folder = site.folder().to_owned();
    site.signal(Signal::TERM);
    let site = Again::of(site, &made, &folder);
    for (certificate, status) in [(Some("robot"), 200), (Some("other-robot"), 401)] {
        let reply = ask(&site.0, &made, certificate, &bound, CALL, &json!({})).unwrap();
        assert_eq!(reply.status, status, "{certificate:?}");
    }
    assert!(ask(&site.0, &made, None, &bound, CALL, &json!({})).is_none());
}

/// The same folder with another server, which requires certificates.
struct Again(Site);

impl Again {
    fn of(mut site: Site, made: &Authority, folder: &Path) -> Self {
        let (code, _) = site.end();
        assert_eq!(code, Some(143));
        let copy = TempDir::new().unwrap();
        let copied = Command::new("cp")
            .args(["-a", "data", "serve.yaml"])
            .arg(copy.path())
            .current_dir(folder)
            .status()
            .unwrap();
        assert!(copied.success());
        Self(start(made, Arc::new(copy), &[]))
    }
}

/// A form of the dashboard, with a cookie.
fn form(site: &Site, made: &Authority, certificate: Option<&str>, path: &str, cookie: &str, fields: &str) -> Reply {
    let host = site.address();
    let origin = format!("https://{host}");
    let mut headers =
        vec![("Content-Type", "application/x-www-form-urlencoded"), ("Origin", origin.as_str()), ("Host", host)];
    if !cookie.is_empty() {
        headers.push(("Cookie", cookie));
    }
    let method = if fields.is_empty() { "GET" } else { "POST" };
    sent(site, made, certificate, &request(&format!("{method} {path}"), &headers, fields)).unwrap()
}

#[test]
fn the_cookie_of_a_bound_key_opens_the_dashboard_with_its_certificate_alone() {
    let made = authority();
    let site = site(&made, &["--tls-clients", "optional"]);
    let owner = tenant(&site, "acme");
    let bound = key(&site, "acme", &["--role", "owner", "--certificate", &made.fingerprint("robot")]);
    let cookie_of = |reply: &Reply, name: &str| {
        let mut lines = reply.raw_head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(header, value)| header.eq_ignore_ascii_case("set-cookie") && value.contains(name));
        found.unwrap_or_else(|| panic!("{reply:?}")).1.split(';').next().unwrap().to_owned()
    };
    let sign_in = |key: &str, certificate: Option<&str>| {
        let page = form(&site, &made, certificate, "/dashboard/sign-in", "", "");
        let token = page.body.split("name=\"form\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let cookie = cookie_of(&page, "sign-in");
        form(&site, &made, certificate, "/dashboard/sign-in", &cookie, &format!("form={token}&key={key}"))
    };
    for certificate in [None, Some("other-robot")] {
        assert_eq!(sign_in(&bound, certificate).status, 403, "{certificate:?}");
        assert_eq!(sign_in(&owner, certificate).status, 303, "{certificate:?}");
    }
    let signed_in = sign_in(&bound, Some("robot"));
    assert_eq!(signed_in.status, 303, "{signed_in:?}");
    let cookie = cookie_of(&signed_in, "session");
    for (certificate, status) in [(Some("robot"), 200), (Some("other-robot"), 303), (None, 303), (Some("robot"), 200)] {
        let page = form(&site, &made, certificate, "/dashboard", &cookie, "");
        assert_eq!(page.status, status, "{certificate:?} {page:?}");
    }
    // A key that is made there is bound too; the control: one that an owner makes whose key is not.
    let made_there = |cookie: &str, label: &str| {
        let page = form(&site, &made, Some("robot"), "/dashboard/keys", cookie, "");
        let token = page.body.split("name=\"form\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let fields = format!("form={token}&role=caller&label={label}&days=&policy=");
        assert_eq!(form(&site, &made, Some("robot"), "/dashboard/keys", cookie, &fields).status, 200);
    };
    made_there(&cookie, "bound");
    made_there(&cookie_of(&sign_in(&owner, Some("robot")), "session"), "free");
    let listed = ask(&site, &made, None, &owner, "GET /v1/keys", &Json::Null).unwrap().json();
    let bound_to = |label: &str| {
        let mut keys = listed["keys"].as_array().unwrap().iter();
        keys.find(|key| key["label"] == label).unwrap()["certificate"].clone()
    };
    let plain = made.fingerprint("robot").replace(':', "").to_lowercase();
    assert_eq!((bound_to("bound"), bound_to("free")), (json!(plain), Json::Null));
}

#[test]
fn what_is_wrong_with_the_options_is_said_at_the_start() {
    let made = authority();
    let folder = TempDir::new().unwrap();
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    let (certificate, key) = (text(identity("certificate.pem")), text(identity("key.pem")));
    std::fs::write(made.path("empty.pem"), "").unwrap();
    std::fs::write(folder.path().join("serve.yaml"), "").unwrap();
    let refused = |more: &[&str]| {
        let ran = Site::command(folder.path(), more).output().unwrap();
        (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
    };
    let with_ca = |file: &str| refused(&["--tls-cert", &certificate, "--tls-key", &key, "--tls-client-ca", file]);
    let empty = text(made.path("empty.pem"));
    assert_eq!(
        with_ca(&empty),
        (Some(2), format!("error: `{empty}`: there is no certificate of an authority in the file\n"))
    );
    let none = text(made.path("none.pem"));
    let (code, why) = with_ca(&none);
    assert!(code == Some(2) && why.starts_with(&format!("error: `{none}` cannot be read: ")), "{why}");
    for more in [
        &["--tls-client-ca", &empty][..],
        &["--tls-cert", &certificate, "--tls-key", &key, "--tls-clients", "optional"],
    ] {
        let (code, why) = refused(more);
        assert!(code == Some(2) && why.contains("required"), "{why}");
    }
}
