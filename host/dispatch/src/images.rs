//! The images of a project's scripts, made when they are first wanted, and how much of them is kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::loaded::Unloadable;
use harness_artifact::policy::sources;
use harness_sandbox::engine::Image;
use harness_sandbox::outcome::{Failure, FailureKind, Source};

/// Bytes of memory that the images of one bundle hold together, or those of all that is in none: a thousand tools of the
/// size of the shipped ones. A few bytes of text can leave megabytes.
const MAX_KEPT: u64 = 128 << 20;
/// Scripts of one bundle that are kept. One that is called takes some 3 MiB of the host beside its image, however small it
/// is. What is in no bundle is the operator's own, and may be as much as they like.
const MAX_SCRIPTS: u64 = 256;

/// A load that continues: its end, once there is one.
type UnderWay = watch::Receiver<Option<Result<Image, Unloadable>>>;

/// Images by the script they are of.
#[derive(Debug, Default)]
pub(super) struct Images {
    kept: Mutex<Kept>,
    /// What is being loaded, and where its end is told.
    under_way: Mutex<HashMap<Source, UnderWay>>,
    /// Fuel that the loads of each bundle took beyond what every script may use.
    spent: Mutex<HashMap<Option<String>, Arc<Mutex<u64>>>>,
    /// Fuel that all loads of each bundle took.
    taken: Mutex<HashMap<String, u64>>,
}

#[derive(Debug, Default)]
struct Kept {
    /// With the bundle that each is of, where it is of one.
    images: HashMap<Source, (Option<String>, Result<Image, Unloadable>)>,
    /// What the images of each bundle hold.
    held: HashMap<Option<String>, Held>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Held {
    bytes: u64,
    scripts: u64,
}

/// Whether it would be the same another time.
pub(super) fn lasts(image: &Result<Image, Unloadable>) -> bool {
    matches!(image, Ok(_) | Err(Unloadable::Script(_)))
}

impl Images {
    pub(super) fn get(&self, source: &Source) -> Option<Result<Image, Unloadable>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.images.get(source).map(|(_, image)| image.clone())
    }

    /// Keeps what came of loading a script of an artifact whose source has this name, where its bundle has the room. Gives
    /// back what is kept.
    pub(super) fn keep(&self, source: Source, of: &str, image: Result<Image, Unloadable>) -> Result<Image, Unloadable> {
        if !lasts(&image) {
            return image;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // Someone else may have been faster.
        if let Some((_, image)) = kept.images.get(&source) {
            return image.clone();
        }
        kept.insert(source, sources::bundle_of(of).map(str::to_owned), image)
    }

    /// What comes of loading a script: of `load`, or of the load of it that is in progress already.
    pub(super) async fn once(
        self: &Arc<Self>,
        source: Source,
        load: impl Future<Output = wasmtime::Result<Result<Image, Unloadable>>> + Send + 'static,
    ) -> Result<Image, Unloadable> {
        let mut ended = {
            let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
            match under_way.get(&source).filter(|known| known.has_changed().is_ok()) {
                Some(known) => known.clone(),
                None => {
                    let (tell, told) = watch::channel(None);
                    under_way.insert(source.clone(), told.clone());
                    let images = self.clone();
                    let work = async move {
                        let image = load.await.unwrap_or_else(|error| Err(Unloadable::Host(format!("{error:#}"))));
                        images.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&source);
                        tell.send_replace(Some(image));
                    };
                    drop(tokio::spawn(work));
                    told
                }
            }
        };
        let image = ended.wait_for(Option::is_some).await.ok().and_then(|image| image.clone());
        image.unwrap_or_else(|| Err(Unloadable::Host("loading the script was canceled".to_owned())))
    }

    /// The fuel that was spent on a bundle, or on what is in none.
    pub(super) fn spent(&self, bundle: Option<&str>) -> Arc<Mutex<u64>> {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.entry(bundle.map(str::to_owned)).or_default().clone()
    }

    /// The fuel that all loads of a bundle took, and that those of all bundles did.
    pub(super) fn taken(&self, bundle: &str) -> (u64, u64) {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        (taken.get(bundle).copied().unwrap_or(0), taken.values().fold(0, |all, one| all.saturating_add(*one)))
    }

    /// Adds what a load took.
    pub(super) fn count(&self, bundle: &str, fuel: u64) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.entry(bundle.to_owned()).or_default();
        *own = own.saturating_add(fuel);
    }

    /// Those of these scripts. What could not be loaded is tried again: another policy may let it.
    pub(super) fn of(&self, scripts: impl Iterator<Item = Source>) -> Self {
        let known = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = Kept::default();
        for source in scripts {
            if let Some((bundle, Ok(image))) = known.images.get(&source).cloned() {
                let _ = kept.insert(source, bundle, Ok(image));
            }
        }
        Self { kept: Mutex::new(kept), ..Self::default() }
    }
}

impl Kept {
    fn insert(
        &mut self,
        source: Source,
        bundle: Option<String>,
        image: Result<Image, Unloadable>,
    ) -> Result<Image, Unloadable> {
        let held = self.held.entry(bundle.clone()).or_default();
        let image = image.and_then(|image| {
            let more = Held {
                bytes: held.bytes.saturating_add(image.size()),
                scripts: held.scripts.saturating_add(u64::from(bundle.is_some())),
            };
            if more.bytes > MAX_KEPT {
                let what =
                    format!("hold more than {} MiB once they are loaded: move work into functions", MAX_KEPT >> 20);
                return Err(over(&source, bundle.as_deref(), &what));
            }
            if more.scripts > MAX_SCRIPTS {
                let what = format!("are more than {MAX_SCRIPTS}: the others are not loaded");
                return Err(over(&source, bundle.as_deref(), &what));
            }
            *held = more;
            Ok(image)
        });
        self.images.insert(source, (bundle, image.clone()));
        image
    }
}

pub(super) fn over(source: &Source, bundle: Option<&str>, what: &str) -> Unloadable {
    let whose = bundle.map_or("the project".to_owned(), |bundle| format!("`{bundle}`"));
    let why = format!("the scripts of {whose} {what}");
    Unloadable::Script(Failure::without_place(FailureKind::Script, &source.file, why))
}
