//! The folder that a server keeps everything in.
//!
//! ```text
//! DATA/store.db               tenants, keys, sealed secrets, budgets, runs
//! DATA/sealing.key            what secrets are sealed with, mode 0600
//! DATA/admin.key              the first key, mode 0600, where nobody was at a terminal to read it
//! DATA/admin.sock             the socket of the admin interface, mode 0600
//! DATA/audit/                 the audit log of the server: changes by its operator, and refused keys
//! DATA/backups/NAME/          copies of all that, but for keys
//! DATA/restoring              there only while a backup is restored
//! DATA/restored               there from then to the first start
//! DATA/default-policy.yaml    the host policy of classes that name none
//! DATA/tenants/ID/project/    the tenant's project, with its audit log and its sessions
//! DATA/tenants/ID/workspace/  the files that its tools work with, in the workspace `default`
//! DATA/tenants/ID/workspaces/ those of its other workspaces, by name
//! ```

use std::io;
use std::path::{Path, PathBuf};

use harness_sys::{self as sys, private, tree};

use crate::seal::{MAX_KEY, Sealer};

/// The host policy of a class that names none: files of the workspace, and nothing of the machine or the network.
const DEFAULT_POLICY: &str = "\
# The host policy of classes of tenants that name none. It is written anew at each start: give a class a `policy` of its own.
network: { allowed_domains: [] }
sandbox:
  audit: true
  exec: { allow: [] }
  env: []
";
/// Marks a folder that a backup is being restored to: what is there is not whole yet.
pub(crate) const RESTORING: &str = "restoring";
/// Marks a folder that was restored, until its first start: runs of the backup are not continued, because the server that it is
/// of has done more of them since.
pub(crate) const RESTORED: &str = "restored";

/// The folder, and where everything is in it.
#[derive(Debug, Clone)]
pub struct DataFolder(PathBuf);

impl DataFolder {
    /// Makes the folder where it is not there, closed to others, and what is in it from the first start on.
    ///
    /// # Errors
    ///
    /// What the system says, with the name of what it is about.
    pub fn open(folder: &Path) -> Result<Self, String> {
        let failed = |what: &Path, error: io::Error| format!("`{}` cannot be used: {error}", what.display());
        if !sys::is_gone(&folder.join(RESTORING)) {
            let folder = folder.display();
            return Err(format!("the restore to `{folder}` was cut short: empty the folder, and restore it again"));
        }
        let marker = folder.join("default-policy.yaml");
        private::write(&marker, DEFAULT_POLICY).map_err(|error| failed(&marker, error))?;
        let real = sys::real_path(folder).map_err(|error| failed(folder, error))?;
        let data = Self(real);
        tree::create(&data.tenants()).map_err(|error| failed(&data.tenants(), error))?;
        Ok(data)
    }

    /// What is sealed with. It is made at the first start.
    ///
    /// # Errors
    ///
    /// It cannot be read or written, or is none.
    pub fn sealer(&self) -> Result<Sealer, String> {
        let file = self.0.join("sealing.key");
        let failed = |why: &dyn std::fmt::Display| format!("`{}` cannot be used: {why}", file.display());
        let key = match sys::read_secret(&file, MAX_KEY) {
            Ok(key) => key,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = Sealer::random_key();
                private::write(&file, &key).map_err(|error| failed(&error))?;
                key
            }
            Err(error) => return Err(failed(&error)),
        };
        Sealer::new(&key).map_err(|why| failed(&why))
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The folder of the backups.
    pub(crate) fn backups(&self) -> PathBuf {
        self.0.join("backups")
    }

    /// The folder of the server's own audit log.
    pub(crate) fn audit(&self) -> PathBuf {
        self.0.join("audit")
    }

    /// The folder of all tenants.
    pub fn tenants(&self) -> PathBuf {
        self.0.join("tenants")
    }

    /// The folder of a tenant.
    pub fn tenant(&self, id: &str) -> PathBuf {
        self.tenants().join(id)
    }

    /// The host policy of classes that name none.
    pub fn default_policy(&self) -> PathBuf {
        self.0.join("default-policy.yaml")
    }

    /// The file of the first key.
    pub fn admin_key(&self) -> PathBuf {
        self.0.join("admin.key")
    }

    /// The socket of the admin interface.
    pub fn admin_socket(&self) -> PathBuf {
        self.0.join("admin.sock")
    }
}
