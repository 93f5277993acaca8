//! `hash.sha256`, `hash.md5`: of the text's UTF-8 bytes, in hexadecimal.

use md5::Md5;
use sha2::{Digest, Sha256};
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::Value;

use super::argument;

use crate::observe::pure;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("hash", |space| pure(space, "hash", functions));
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn sha256<'v>(text: Value<'v>) -> anyhow::Result<String> {
        Ok(argument::hex(&Sha256::digest(argument::text("hash.sha256", "text", text)?)))
    }

    /// For checksums that others have published; not for anything that someone may want to forge.
    fn md5<'v>(text: Value<'v>) -> anyhow::Result<String> {
        Ok(argument::hex(&Md5::digest(argument::text("hash.md5", "text", text)?)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{check_all, fail_all};

    #[test]
    fn published_vectors() {
        // FIPS 180-4's examples, RFC 1321's test suite.
        check_all([
            ("hash.sha256('')", json!("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")),
            ("hash.sha256(text = 'abc')", json!("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")),
            ("hash.md5('')", json!("d41d8cd98f00b204e9800998ecf8427e")),
            ("hash.md5(text = 'message digest')", json!("f96b697d7cb7938d525a2f31aaf161d0")),
        ]);
    }

    #[test]
    fn errors() {
        fail_all([
            ("hash.sha256(1)", "hash.sha256: text must be a string, got int"),
            ("hash.md5(None)", "hash.md5: text must be a string, got NoneType"),
        ]);
    }
}
