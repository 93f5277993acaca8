//! Whom a script talks to over TLS: a server whose certificate this machine trusts, for the name that was asked for.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use insta::assert_snapshot;

use crate::project::{Project, Ran};

/// A server of `openssl` that answers with a page about the connection, and its certificate.
struct Server {
    process: Child,
    address: String,
    certificate: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    /// With a certificate of its own for this name.
    fn new(folder: &Path, name: &str) -> Self {
        let at = |file: &str| folder.join(file);
        let config = format!(
            "[req]\ndistinguished_name = who\nx509_extensions = more\nprompt = no\n[who]\nCN = a test\n[more]\n\
             basicConstraints = critical, CA:FALSE\nsubjectAltName = {name}\n"
        );
        std::fs::write(at("config"), config).unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-config", "config"])
            .args(["-keyout", "key.pem", "-out", "certificate.pem"])
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut process = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-www", "-cert", "certificate.pem", "-key", "key.pem"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = lines.find_map(|line| Some(line.unwrap().strip_prefix("ACCEPT ")?.to_owned())).unwrap();
        Self { process, address, certificate: at("certificate.pem") }
    }

    /// What a script gets that may ask it, where its certificate is trusted or not.
    fn asked(&self, trusted: bool) -> Ran {
        let script = format!("def run(args):\n    return http.get('https://{}/')['status']\n", self.address);
        let project = Project::with_script(&script)
            .policy(&format!("network: {{ allowed_domains: [{{ host: '{}', scheme: https }}] }}\n", self.address));
        let mut command = project.command(&["call", "it"]);
        command.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
        if trusted {
            command.env("SSL_CERT_FILE", &self.certificate);
        }
        let ran = project.ran(&command.output().unwrap());
        Ran { err: ran.err.replace(&self.address, "[server]"), ..ran }
    }

    /// The request is not made, and the script is told why.
    #[track_caller]
    fn refuses(&self, trusted: bool, why: &str) {
        let ran = self.asked(trusted);
        let err = ran.err.replace(why, "[why]");
        insta::allow_duplicates! {
            assert_snapshot!(Ran { err, ..ran }, @r"
            exit 1
            --- stdout
            --- stderr
            error: tool `it` failed: http.get: no trusted connection: invalid peer certificate: [why]
             --> .harness/tools/it.md:4:14
              |
            4 |       return http.get('https://[server]/')['status']
              |              ^

            calls, outermost first:
              .harness/tools/it.md:4:14 in run
              .harness/tools/it.md:4:14 in get
            ");
        }
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "told where it is left out")]
fn a_certificate_is_verified() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("no `openssl` on this machine: left out");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(folder.path(), "IP:127.0.0.1");
    server.refuses(false, "UnknownIssuer");
    server.asked(true).gives("200");

    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(folder.path(), "DNS:other.example");
    let why = "certificate not valid for name \"127.0.0.1\"; certificate is only valid for DnsName(\"other.example\")";
    server.refuses(true, why);
}
