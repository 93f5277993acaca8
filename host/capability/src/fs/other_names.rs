//! Files with several names, of which one may be protected.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use cap_std::fs::{Metadata, MetadataExt};
use rustix::fs::Mode;

use super::{Error, Workspace, denied};
use harness_policy::grant::Grant;
use harness_policy::path::{Access, PathPattern, WorkspacePath};
use harness_wall::hard_links::{FOLDER, HardLinks, Identity, Unsearched};

/// How long the answer of a search is good for, at the least.
const FRESH: Duration = Duration::from_secs(1);
/// And how many times as long as the search took, so that searches take no more than a tenth of the time.
const SHARE: u32 = 10;

/// What the last search found.
#[derive(Debug)]
pub(super) struct Searched {
    pub(super) until: Instant,
    /// The patterns that the policy protected.
    protect: Vec<PathPattern>,
    links: Result<HardLinks, Unsearched>,
}

impl Workspace {
    /// Fails for a file that may not be read under another of its names. Names outside of the workspace cannot be known.
    ///
    /// What someone links while a search is [`FRESH`] is found after it.
    pub(super) fn no_other_name_is_protected(
        &self,
        grant: &Grant,
        asked: &WorkspacePath,
        metadata: &Metadata,
    ) -> Result<(), Error> {
        if metadata.nlink() < 2 {
            return Ok(());
        }
        let not_allowed = |why: &str| denied(format!("reading `{asked}` is not allowed: {why}"));
        // Anyone who else asks meanwhile waits for this search instead of beginning another.
        let mut searched = self.searched.lock().unwrap_or_else(PoisonError::into_inner);
        let known = searched
            .take()
            .filter(|known| Instant::now() < known.until && grant.protected_paths().eq(&known.protect))
            .unwrap_or_else(|| self.search_hard_links(grant));
        match &searched.insert(known).links {
            Ok(links) if links.protected_from(Identity::new(metadata.dev(), metadata.ino())) == Some(Access::Read) => {
                Err(not_allowed("the file has another name, which is protected (hard links)"))
            }
            Ok(_) => Ok(()),
            Err(why) => Err(not_allowed(&format!(
                "the file has other names too (hard links), and whether one of them is protected cannot be seen: {why}"
            ))),
        }
    }

    fn search_hard_links(&self, grant: &Grant) -> Searched {
        let begun = Instant::now();
        let links = rustix::fs::openat(&self.root, ".", FOLDER, Mode::empty())
            .map_err(Unsearched::System)
            .and_then(|root| HardLinks::search(grant, root, &WorkspacePath::root()));
        let ended = Instant::now();
        let keep = FRESH.max(ended.duration_since(begun).saturating_mul(SHARE));
        Searched { until: ended + keep, protect: grant.protected_paths().cloned().collect(), links }
    }
}
