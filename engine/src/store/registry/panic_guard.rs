//! A guard around the database, which panics on bytes that it did not write. A registry file may come from an untrusted
//! repository, so panics become errors and print nothing.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use super::registry_error;
use crate::store::StoreError;

thread_local! {
    /// True while this thread runs a closure under [`catch_panics`].
    static IN_GUARDED_CALL: Cell<bool> = const { Cell::new(false) };
}

/// Error for a registry file with invalid contents.
#[derive(Debug, thiserror::Error)]
#[error("the file's contents are not a valid database")]
struct InvalidDatabase;

/// Runs a database operation and converts a panic into an error.
pub fn catch_panics<T>(
    doing: &'static str,
    operation: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    install_panic_hook();
    let before = IN_GUARDED_CALL.replace(true);
    // The database checks its own state on the next call, so asserting unwind safety is sound.
    let result = catch_unwind(AssertUnwindSafe(operation));
    IN_GUARDED_CALL.set(before);
    result.unwrap_or_else(|_| Err(registry_error(doing)(InvalidDatabase)))
}

/// Installs a panic hook that suppresses the output of caught panics and forwards all others.
fn install_panic_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !IN_GUARDED_CALL.get() {
                before(panic);
            }
        }));
    });
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::super::{Change, Registry, ThreadRow};
    use super::*;
    use crate::store::disk::{Disk, RealDisk};
    use crate::store::layout::REGISTRY;
    use crate::thread_id::ThreadId;

    #[test]
    fn panic_becomes_an_error_and_later_calls_succeed() {
        let broken = catch_panics("reading it", || -> Result<(), StoreError> {
            Vec::<()>::new().swap_remove(0);
            Ok(())
        });
        assert!(broken.unwrap_err().to_string().contains("run `rye threads repair` to rebuild it"));
        assert_eq!(catch_panics("reading it", || Ok(1)).unwrap(), 1);
        assert!(!IN_GUARDED_CALL.get());
    }

    /// A deterministic pseudo-random sequence.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % end
        }
    }

    #[test]
    fn corrupt_registry_file_is_an_error_not_a_panic() {
        let folder = tempfile::tempdir().unwrap();
        let open = || -> Arc<dyn Disk> { Arc::new(RealDisk::open(folder.path()).unwrap()) };
        let row =
            |n: usize| Change::Put(Box::new(ThreadRow::new(ThreadId::parse(&format!("a-{n}")).unwrap(), "hello", 1)));
        let registry = Registry::open(open()).unwrap();
        for n in 0..20 {
            registry.commit(&[row(n)]).unwrap();
        }
        drop(registry);
        let path = folder.path().join(REGISTRY);
        let good = fs::read(&path).unwrap();
        let (mut numbers, mut refused) = (Numbers(1), 0);
        for round in 0..150 {
            let mut bytes = good.clone();
            match round % 3 {
                0 => {
                    let (from, to) =
                        (numbers.below(bytes.len() / 4096) * 4096, numbers.below(bytes.len() / 4096) * 4096);
                    bytes.copy_within(from..from + 4096, to);
                }
                1 => bytes.truncate(numbers.below(good.len())),
                _ => {}
            }
            for _ in 0..numbers.below(40) {
                let at = numbers.below(bytes.len().max(1));
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = u8::try_from(numbers.below(256)).unwrap();
                }
            }
            fs::write(&path, &bytes).unwrap();
            let checked =
                Registry::open_read_only(open()).and_then(|found| found.map_or(Ok(0), |r| Ok(r.threads()?.len())));
            fs::write(&path, &bytes).unwrap();
            let written = Registry::open(open()).and_then(|registry| registry.commit(&[row(99)]).map(|_| registry));
            refused += usize::from(checked.is_err()) + usize::from(written.is_err());
        }
        assert!(refused > 20, "{refused}");
    }
}
