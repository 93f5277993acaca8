//! The program of a package that is started, and what it needs to find the rest.

use std::path::{Path, PathBuf};

use harness_artifact::policy::mcp::{Installer, PackageProgram, Packages};
use harness_capability::exec::Installed;
use harness_sys as sys;
use serde_json::Value as Json;

use crate::failure::Failure;

/// Where packages of Node are. Node looks for others beside one in a folder of this name.
const NODE: &str = "node_modules";
/// Where packages of Python are.
pub(super) const PYTHON: &str = "python";

/// Bytes of the description of a package.
const MAX_BYTES: u64 = 4 << 20;

/// What is started instead of a package runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// The program.
    pub(crate) installed: Installed,
    /// A folder for `PYTHONPATH`.
    python: Option<PathBuf>,
}

impl Program {
    /// Of packages that were installed in a folder, which is absolute and without links.
    pub(super) fn of(folder: &Path, packages: &Packages) -> Result<Self, Failure> {
        let (programs, python) = match packages.installer {
            Installer::Npm => (folder.join(NODE).join(".bin"), None),
            Installer::Uv => (folder.join(PYTHON).join("bin"), Some(folder.join(PYTHON))),
        };
        let name = match &packages.program {
            PackageProgram::Named(name) => name.clone(),
            PackageProgram::Of(package) => named_by(folder, package)?,
        };
        let is_program = |path: &PathBuf| path.starts_with(folder) && sys::is_executable(path);
        let program = sys::real_path(&programs.join(&name)).ok().filter(is_program);
        let program = program.ok_or_else(|| Failure::Broken(format!("its packages have no program `{name}`")))?;
        let installed = Installed { program, args: packages.args.clone(), folder: folder.to_owned() };
        Ok(Self { installed, python })
    }

    /// The variables that it needs beside those that it has.
    pub(crate) fn add_to(&self, env: &mut std::collections::BTreeMap<String, String>) {
        let Some(python) = &self.python else { return };
        let mut path = python.to_string_lossy().into_owned();
        if let Some(given) = env.get("PYTHONPATH").filter(|given| !given.is_empty()) {
            path.push(':');
            path.push_str(given);
        }
        env.insert("PYTHONPATH".to_owned(), path);
        // It cannot write there.
        env.entry("PYTHONDONTWRITEBYTECODE".to_owned()).or_insert_with(|| "1".to_owned());
    }
}

/// The name of the program that `npx` starts of a package: the only one, or the one that is called like the package.
fn named_by(folder: &Path, package: &str) -> Result<String, Failure> {
    let own = package.rsplit('/').next().unwrap_or(package);
    let path = folder.join(NODE).join(package).join("package.json");
    let unreadable = |why: &dyn std::fmt::Display| Failure::Broken(format!("the package `{package}`: {why}"));
    let text = sys::read_at_most(&path, MAX_BYTES).map_err(|error| unreadable(&error))?;
    let described: Json = serde_json::from_str(&text).map_err(|error| unreadable(&error))?;
    let names: Vec<&str> = match described.get("bin") {
        Some(Json::String(_)) => vec![own],
        Some(Json::Object(all)) => all.keys().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let name = match names.as_slice() {
        [only] => only,
        all => all.iter().copied().find(|name| *name == own).ok_or_else(|| {
            let how = "name one: `npx -p PACKAGE PROGRAM`";
            unreadable(&format!("it has {} programs and none is called `{own}`; {how}", all.len()))
        })?,
    };
    // It becomes the end of a path.
    let is_plain = !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']);
    if is_plain { Ok(name.to_owned()) } else { Err(unreadable(&"its program has no plain name")) }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn packages(installer: Installer, program: PackageProgram) -> Packages {
        Packages { installer, specs: vec!["a".to_owned()], program, args: vec!["-x".to_owned()] }
    }

    fn file(folder: &Path, path: &str, text: &str, mode: u32) {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_program_of_a_package_is_found_as_npx_finds_it() {
        let root = tempfile::tempdir().unwrap();
        let folder = sys::real_path(root.path()).unwrap();
        let told = |bin: &str, links: &[&str]| {
            let _ = std::fs::remove_dir_all(folder.join(NODE));
            file(&folder, "node_modules/@s/own/package.json", &format!("{{\"name\": \"@s/own\"{bin}}}"), 0o644);
            file(&folder, "node_modules/@s/own/dist/x.js", "#!/usr/bin/env node\n", 0o755);
            std::fs::create_dir_all(folder.join("node_modules/.bin")).unwrap();
            for link in links {
                symlink("../@s/own/dist/x.js", folder.join("node_modules/.bin").join(link)).unwrap();
            }
            let found = Program::of(&folder, &packages(Installer::Npm, PackageProgram::Of("@s/own".to_owned())));
            found.map(|found| found.installed).map_err(|failure| failure.to_string())
        };
        let program = Installed {
            program: folder.join("node_modules/@s/own/dist/x.js"),
            args: vec!["-x".to_owned()],
            folder: folder.clone(),
        };
        assert_eq!(told(r#", "bin": "dist/x.js""#, &["own"]), Ok(program.clone()));
        assert_eq!(told(r#", "bin": {"other": "dist/x.js"}"#, &["other"]), Ok(program.clone()));
        assert_eq!(told(r#", "bin": {"a": "b", "own": "dist/x.js"}"#, &["own"]), Ok(program));
        let wrong = |why: &str| Err(format!("the package `@s/own`: {why}"));
        let how = "name one: `npx -p PACKAGE PROGRAM`";
        let none = |count: usize| wrong(&format!("it has {count} programs and none is called `own`; {how}"));
        assert_eq!(told("", &[]), none(0));
        assert_eq!(told(r#", "bin": {"a": "b", "c": "d"}"#, &[]), none(2));
        assert_eq!(told(r#", "bin": {"../../x": "b"}"#, &[]), wrong("its program has no plain name"));
        assert_eq!(told(r#", "bin": {"..": "b"}"#, &[]), wrong("its program has no plain name"));
        assert_eq!(told(r#", "bin": "dist/x.js""#, &[]), Err("its packages have no program `own`".to_owned()));
    }

    #[test]
    fn a_program_outside_of_the_packages_is_none() {
        let root = tempfile::tempdir().unwrap();
        let folder = sys::real_path(root.path()).unwrap().join("kept");
        let named = |name: &str| packages(Installer::Uv, PackageProgram::Named(name.to_owned()));
        file(&folder, "python/bin/run", "#!/usr/bin/python3\n", 0o755);
        file(&folder, "python/bin/plain", "", 0o644);
        file(&folder, "../outside", "#!/bin/sh\n", 0o755);
        symlink("../../../outside", folder.join("python/bin/out")).unwrap();
        let found = Program::of(&folder, &named("run")).unwrap();
        assert_eq!(found.installed.program, folder.join("python/bin/run"));
        for name in ["out", "plain", "absent"] {
            let why = Err(Failure::Broken(format!("its packages have no program `{name}`")));
            assert_eq!(Program::of(&folder, &named(name)), why);
        }
        let variables = |given: &[(&str, &str)]| {
            let mut env: BTreeMap<_, _> =
                given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            found.add_to(&mut env);
            env.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        let python = folder.join("python").display().to_string();
        assert_eq!(variables(&[]), ["PYTHONDONTWRITEBYTECODE=1".to_owned(), format!("PYTHONPATH={python}")]);
        assert_eq!(
            variables(&[("PYTHONPATH", "/x"), ("PYTHONDONTWRITEBYTECODE", "0")]),
            ["PYTHONDONTWRITEBYTECODE=0".to_owned(), format!("PYTHONPATH={python}:/x")]
        );
    }
}
