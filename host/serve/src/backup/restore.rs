//! A data folder that is made of a backup.

use std::path::Path;

use harness_sys::copy::{self, Item};
use harness_sys::{self as sys, private};

use super::manifest::Manifest;
use super::verify::{Report, differences, verify};
use super::{AUDIT, STORE, TENANTS};
use crate::data::{RESTORED, RESTORING};
use crate::seal::Sealer;

/// Why nothing was restored.
#[derive(Debug)]
pub enum Refused {
    /// The folder has something in it.
    NotEmpty,
    /// Secrets of tenants are sealed, and there is no key.
    NoKey(u64),
    /// The key has another form.
    Key(&'static str),
    /// The backup is not whole.
    Broken(Box<Report>),
    /// The folder cannot be written. It has to be emptied before it is restored to again.
    Failed(String),
}

/// Makes a data folder of a backup, which is verified first. The folder is created, or is there and empty. `key` is the
/// text of the sealing key of the server that the backup is of.
///
/// # Errors
///
/// Why nothing was restored; or what the system says, when something is there that no server starts with.
pub fn restore(backup: &Path, data: &Path, key: Option<&str>) -> Result<Report, Refused> {
    let failed = |what: &Path, error: &dyn std::fmt::Display| Refused::Failed(format!("`{}`: {error}", what.display()));
    let is_empty = sys::is_gone(data) || sys::list_folder(data).map_err(|error| failed(data, &error))?.is_empty();
    if !is_empty {
        return Err(Refused::NotEmpty);
    }
    let sealer = key.map(Sealer::new).transpose().map_err(Refused::Key)?;
    let report = verify(backup, sealer.as_ref());
    if !report.is_whole() {
        return Err(Refused::Broken(Box::new(report)));
    }
    if sealer.is_none() && report.secrets > 0 {
        return Err(Refused::NoKey(report.secrets));
    }
    copy::new_folder(data).map_err(|error| failed(data, &error))?;
    let marker = data.join(RESTORING);
    private::write(&marker, "").map_err(|error| failed(&marker, &error))?;
    if let Some(key) = key {
        let file = data.join("sealing.key");
        private::write(&file, key.trim()).map_err(|error| failed(&file, &error))?;
    }
    let mut manifest = Manifest::read(backup).map_err(|why| failed(backup, &why))?;
    files(backup, data, &manifest).map_err(|error| failed(data, &error))?;
    // What is on the disk, and not what was read.
    copy::durable(data).map_err(|error| failed(data, &error))?;
    for own in [RESTORING, "sealing.key"] {
        let bytes = sys::length(&data.join(own)).ok();
        let digest = sys::digest::digest_of_file(&data.join(own)).ok();
        if let (Some(bytes), Some(digest)) = (bytes, digest) {
            manifest.items.insert(own.as_bytes().to_vec(), Item::File { bytes, digest, is_executable: false });
        }
    }
    let wrong = differences(data, &manifest).map_err(|error| failed(data, &error))?;
    if let Some(first) = wrong.first() {
        return Err(failed(data, first));
    }
    let restored = data.join(RESTORED);
    private::write(&restored, "").map_err(|error| failed(&restored, &error))?;
    private::remove(&marker).map_err(|error| failed(&marker, &error))?;
    copy::durable(data).map_err(|error| failed(data, &error))?;
    Ok(report)
}

fn files(backup: &Path, data: &Path, manifest: &Manifest) -> std::io::Result<()> {
    let mut store = copy::new_file(&data.join(STORE))?;
    std::io::copy(&mut sys::open_file(&backup.join(STORE))?, &mut store)?;
    for folder in [AUDIT, TENANTS] {
        let from = backup.join(folder);
        if sys::is_folder(&from) {
            copy::new_folder(&data.join(folder))?;
            // Something else than a file or a folder is no part of a backup that was verified.
            copy::copy(&from, &data.join(folder), |_, _| Ok(()))?;
        }
    }
    let mut links = manifest.items.iter().filter_map(|(path, item)| match item {
        Item::Link(target) => Some((path, target)),
        _ => None,
    });
    links.try_for_each(|(path, target)| copy::link(data, path, target))
}
